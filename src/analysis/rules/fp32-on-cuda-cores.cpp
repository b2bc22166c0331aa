// Matrix products on the FMA units, where tensor cores would have done.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule fp32_on_cuda_cores_rule;

namespace {

using trace::EventIndex;
using trace::kNoEvent;

constexpr Threshold kThresholds[] = {
    {"min_share", 5, "%", "of the trace's device time, all such products of one place together"},
    {"tf32_capability", 80, "sm", "tensor cores take f32 inputs, as TF32, from this compute capability on"}};

// Did this product's caller hold 16-bit data?
bool inputs_were_16_bit(const RuleFacts& facts, const Work& work, const Above& above) {
  if (const int call = facts.attention_of(work.event); call >= 0)
    if (is_16_bit(facts.metrics().attention_calls[static_cast<size_t>(call)].dtype)) return true;
  const EventIndex top = facts.top_operator(above);
  return top != kNoEvent && is_16_bit(facts.first_float(top));
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  GatheredMap places;
  for (const Work& work : facts.work()) {
    const KernelName& name = *work.name;
    if (name.kind != KernelKind::kGemm || name.tensor_cores != Tristate::kNo || name.is_gemv ||
        name.input != NumericType::kF32)
      continue;
    // Who asked for work of before the window is not in the file, nor what it was given.
    if (facts.links().unlinked(work.event) != trace::Unlinked::kLinked) continue;
    const Above above = facts.above(work.event);
    const bool was_16_bit = inputs_were_16_bit(facts, work, above);
    // An f32 model before Ampere has no tensor cores to go to.
    if (!was_16_bit && facts.capability_of(work.event) < limits["tf32_capability"]) continue;
    const EventIndex call = above.range != kNoEvent ? above.range : facts.top_operator(above);
    gather(places, facts.where(above), was_16_bit ? "16-bit" : "f32", work, call);
  }
  // An f32 model has products in many places; one line for all of them says as much.
  Gathered by_choice;
  std::vector<Finding> findings;
  for (const auto& [key, g] : places) {
    if (g.what == "f32") {
      by_choice.events.insert(by_choice.events.end(), g.events.begin(), g.events.end());
      by_choice.ns += g.ns;
      continue;
    }
    if (facts.share(g.ns) < limits["min_share"]) continue;
    const size_t calls = std::max<size_t>(g.calls.size(), 1);
    Finding finding = make_finding(
        fp32_on_cuda_cores_rule,
        fmt::format("{} matrix products of 16-bit data ran in f32 on the FMA units: {} ({} of device time)",
                    g.events.size() % calls == 0 ? g.events.size() / calls : g.events.size(),
                    per_call(g.ns, calls), percent_text(facts.share(g.ns))));
    finding.range = g.where;
    finding.saving_basis =
        "not estimated: the same products on tensor cores take several times less, by how much "
        "depends on their shapes";
    finding.confidence = Certainty::kHigh;
    finding.group = "attention:" + g.where;
    facts.cite(finding, g.events);
    findings.push_back(std::move(finding));
  }
  if (!by_choice.events.empty() && facts.share(by_choice.ns) >= limits["min_share"]) {
    Finding finding =
        make_finding(fp32_on_cuda_cores_rule,
                     fmt::format("{} of f32 data ran on the FMA units: {} in the trace ({} of device time)",
                                 counted(by_choice.events.size(), "matrix product"),
                                 format_time_us(us(by_choice.ns)), percent_text(facts.share(by_choice.ns))));
    finding.severity = Severity::kNote;
    finding.remedy =
        "If about three decimal digits in the products are enough, allow TF32 "
        "(torch.set_float32_matmul_precision('high')), or run the model in bf16 under autocast. Check the "
        "error on your own data.";
    finding.saving_basis = "not estimated: depends on the products' shapes";
    finding.confidence = Certainty::kHigh;
    std::sort(by_choice.events.begin(), by_choice.events.end(),
              [&](EventIndex a, EventIndex b) { return facts.trace().ts_ns(a) < facts.trace().ts_ns(b); });
    facts.cite(finding, by_choice.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule fp32_on_cuda_cores_rule{
    .id = "fp32-on-cuda-cores",
    .category = RuleCategory::kAttention,
    .severity = Severity::kWarning,
    .summary = "Matrix products ran on the FMA units instead of tensor cores.",
    .what =
        "GEMM kernels whose names say FMA (sgemm, simt, f32f32_f32…ffma), inside attention or under a "
        "product "
        "whose inputs were 16-bit; and, as a note, f32 products on a GPU whose tensor cores take f32 as "
        "TF32.",
    .why =
        "Tensor cores multiply several times faster than the FMA units. A name tells which unit ran: sgemm "
        "and "
        "ffma are FMA; s16816, hmma, wgmma and nvjet are tensor cores.",
    .remedy =
        "Keep the 16-bit inputs: use a fused attention backend, or remove the cast to f32 before the "
        "product.",
    .false_positives =
        "Full f32 accuracy may be wanted: then the note is no more than that. Matrix-vector products "
        "are left out (memory bounds them), and so are f32 products before Ampere, which has no unit "
        "for them.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsLinks,
    .check = check};

}  // namespace attnscope
