// Layout copies that a fused attention call makes before its kernel.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule transposes_before_fused_kernel_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"min_share", 1, "%", "of the trace's device time, all such copies of one place together"}};

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  GatheredMap places;
  for (const AttentionCall& call : facts.metrics().attention_calls) {
    if (!is_fused_attention(call.implementation) || call.bare_kernel || call.attention_kernel_ns == 0)
      continue;
    for (EventIndex event : call.work) {
      Work work{event, facts.trace().cls(event), facts.trace().dur_ns(event),
                &facts.metrics().decoded(facts.trace().name_id(event))};
      if (work.name->kind == KernelKind::kAttention && work.name->role != AttentionRole::kPrepare) break;
      const Above above = facts.above(event);
      const bool moves = work.name->kind == KernelKind::kTranspose ||
                         facts.copy_nature(work, above) == RuleFacts::CopyNature::kCopy;
      if (!moves) continue;
      Gathered& g = gather(places, facts.where(above), call.op, work, call.event);
      g.bytes = std::max<int64_t>(g.bytes, facts.copied_bytes(work, above));
    }
  }
  std::vector<Finding> findings;
  for (const auto& [key, g] : places) {
    if (facts.share(g.ns) < limits["min_share"]) continue;
    const size_t calls = std::max<size_t>(g.calls.size(), 1);
    Finding finding = make_finding(
        transposes_before_fused_kernel_rule,
        fmt::format("{} copies before the fused kernel of {}: {} ({} of device time)",
                    g.events.size() / calls, g.what, per_call(g.ns, calls), percent_text(facts.share(g.ns))));
    finding.range = g.where;
    finding.saving_us = us(g.ns) / static_cast<double>(calls);
    finding.saving_per = "call";
    finding.saving_basis = "the measured time of the copies";
    finding.confidence = Certainty::kHigh;
    facts.cite(finding, g.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule transposes_before_fused_kernel_rule{
    .id = "transposes-before-fused-kernel",
    .category = RuleCategory::kAttention,
    .severity = Severity::kWarning,
    .summary = "A fused attention call copies its inputs into another layout first.",
    .what = "Copy or transpose kernels inside a fused attention call, before its attention kernel.",
    .why =
        "The kernel reads q, k and v once; a layout copy reads and writes them once more, and for short "
        "sequences "
        "costs as much as the attention.",
    .remedy =
        "Produce q, k and v in the layout that the kernel takes (for PyTorch's fused kernels: any batch, "
        "head and "
        "sequence strides, last stride 1), or choose a backend that takes these strides.",
    .false_positives =
        "A padded head_dim (not a multiple of 8) has to be copied for some backends; pad the weights "
        "once instead, or accept it.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsOperators | kNeedsLinks | kNeedsAttention,
    .check = check};

}  // namespace attnscope
