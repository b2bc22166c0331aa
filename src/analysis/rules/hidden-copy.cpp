// A copy that nobody asked for: same dtype, under an operator that does not promise one.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule hidden_copy_rule;

namespace {

using trace::EventIndex;
using trace::kNoEvent;

constexpr Threshold kThresholds[] = {
    {"min_bytes", 1048576, "B", "smaller copies are not worth a line"},
    {"min_share", 1, "%", "of the trace's device time, all copies of one place together"},
    {"warning_share", 5, "%", "of the trace's device time: from here on it is a warning, below a note"}};

// Autograd copies gradients on its own account; that is its contract, not a hidden cost of an operator.
bool engine_copies(const RuleFacts& facts, const Above& above) {
  if (above.autograd == kNoEvent) return false;
  const std::string_view name = facts.trace().name(above.autograd);
  for (std::string_view word : {"AccumulateGrad", "Copy", "Clone", "Repeat", "Cat", "Expand"})
    if (name.find(word) != std::string_view::npos) return true;
  return false;
}

// "aten::masked_fill > aten::clone": from the operator that was called down to the one that copied.
std::string path_of(const RuleFacts& facts, const Above& above) {
  std::string path;
  for (auto op = above.operators.rbegin(); op != above.operators.rend(); ++op) {
    const std::string_view name = facts.trace().name(*op);
    if (name == "aten::copy_" && !path.empty()) break;
    if (path.ends_with(name)) continue;  // autocast's wrapper and the operator itself
    path += (path.empty() ? "" : " > ") + std::string(name);
  }
  return path;
}

// Operators that are there to place values into a new tensor, or to move them between devices.
bool places_values(std::string_view name) {
  for (std::string_view word :
       {"select_backward", "slice_backward", "diagonal_backward", "unfold_backward", "all_reduce",
        "all_gather", "reduce_scatter", "all_to_all", "c10d::", "nccl", "broadcast"})
    if (name.find(word) != std::string_view::npos) return true;
  return false;
}

bool is_hidden(const RuleFacts& facts, const Work& work, const Above& above) {
  const EventIndex top = facts.top_operator(above);
  if (top == kNoEvent || above.in_optimizer || engine_copies(facts, above)) return false;
  const std::string_view name = facts.trace().name(top);
  if (promises_copy(name) || places_values(name)) return false;
  const int call = facts.attention_of(work.event);
  // Copies inside a fused attention have a rule of their own.
  return !(is_sdpa_operator(name) && call >= 0 &&
           is_fused_attention(facts.metrics().attention_calls[static_cast<size_t>(call)].implementation));
}

std::string remedy_for(const std::string& path) {
  if (path.find("masked_fill") != std::string::npos)
    return "Mask in place (masked_fill_), which is safe when no gradient needs the unmasked values; or let "
           "scaled_dot_product_attention mask inside its kernel.";
  if (path.find("reshape") != std::string::npos)
    return "The tensor's strides do not allow a view. Arrange the layout before (or use a kernel that takes "
           "strides), so that reshape need not copy.";
  if (path.find("matmul") != std::string::npos || path.find("bmm") != std::string::npos)
    return "The product's input is not laid out as the GEMM needs it. Expanded or transposed inputs are "
           "copied; "
           "for grouped heads use enable_gqa or a kernel that repeats the head index.";
  return std::string(hidden_copy_rule.remedy);
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  GatheredMap places;
  for (const Work& work : facts.work()) {
    if (work.cls == trace::EventClass::kMemset) continue;
    const bool may_copy = work.cls == trace::EventClass::kMemcpy || work.name->kind == KernelKind::kCopy;
    if (!may_copy) continue;
    const Above above = facts.above(work.event);
    if (facts.copy_nature(work, above) != RuleFacts::CopyNature::kCopy || !is_hidden(facts, work, above))
      continue;
    const int64_t bytes = facts.copied_bytes(work, above);
    if (bytes < limits["min_bytes"]) continue;
    const EventIndex call = above.range != kNoEvent ? above.range : facts.top_operator(above);
    Gathered& g = gather(places, facts.where(above), path_of(facts, above), work, call);
    g.bytes = std::max<int64_t>(g.bytes, bytes);
  }
  std::vector<Finding> findings;
  for (const auto& [key, g] : places) {
    if (facts.share(g.ns) < limits["min_share"]) continue;
    const std::string most = g.events.size() > g.calls.size() ? "up to " : "";
    Finding finding = make_finding(
        hidden_copy_rule,
        fmt::format("{}{} B copied inside {}: {} ({} of device time)", most, group_digits(g.bytes), g.what,
                    per_call(g.ns, g.calls.size()), percent_text(facts.share(g.ns))));
    if (facts.share(g.ns) < limits["warning_share"]) finding.severity = Severity::kNote;
    finding.range = g.where;
    finding.remedy = remedy_for(g.what);
    finding.saving_us = us(g.ns) / static_cast<double>(std::max<size_t>(g.calls.size(), 1));
    finding.saving_per = "call";
    finding.saving_basis = "the measured time of the copies";
    finding.confidence = Certainty::kHigh;
    const int call = facts.attention_of(g.events.front());
    if (call >= 0) finding.group = "attention:" + g.where;
    facts.cite(finding, g.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule hidden_copy_rule{
    .id = "hidden-copy",
    .category = RuleCategory::kMemory,
    .severity = Severity::kWarning,
    .summary = "An operator copied a whole tensor although nobody asked for a copy.",
    .what =
        "A copy of one dtype (a memcpy on the device or a copy kernel) launched under an operator that does "
        "not "
        "promise one: masked_fill, matmul, reshape, but not clone, contiguous, to or cat.",
    .why =
        "The copy reads and writes the whole tensor and computes nothing. It does not appear in the source: "
        "out-of-place operators copy first, and some operators copy inputs whose strides they cannot take.",
    .remedy =
        "Use the in-place form where no gradient needs the old values, or arrange the layout so that the "
        "operator can work on it as it is.",
    .false_positives =
        "In training the copy may be needed: autograd would otherwise read overwritten values. Copies "
        "by autograd's engine, by optimizers, by collectives and by operators that promise one are left out; "
        "so are "
        "copies inside fused attention (transposes-before-fused-kernel) and kernels whose name does "
        "not tell a copy from a cast when no input types were recorded.",
    .thresholds = kThresholds,
    .needs = kNeedsWork | kNeedsOperators | kNeedsLinks,
    .check = check};

}  // namespace attnscope
