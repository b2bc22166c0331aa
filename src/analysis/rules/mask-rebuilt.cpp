// The same mask made again in every attention call.

#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule mask_rebuilt_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"min_calls", 2, "calls", "with equal inputs; one call has to build its mask once"},
    {"warning_share", 5, "%", "of the attention's device time: from here on it is a warning"}};

struct Place {
  std::vector<EventIndex> events;
  size_t calls = 0, kernels = 0;
  Total mask_ns, call_ns;
  bool converted = false;  // a mask was passed in, and is made additive
};

// Kernels that make the mask: fills and boolean selections before the first product or fused kernel.
std::vector<Work> mask_kernels(const RuleFacts& facts, const AttentionCall& call) {
  std::vector<Work> kernels;
  bool any_mask = false;
  for (EventIndex event : call.work) {
    if (facts.trace().cls(event) == trace::EventClass::kMemcpy) continue;
    Work work{event, facts.trace().cls(event), facts.trace().dur_ns(event),
              &facts.metrics().decoded(facts.trace().name_id(event))};
    const KernelKind kind = work.name->kind;
    if (kind == KernelKind::kGemm || kind == KernelKind::kAttention || kind == KernelKind::kSoftmax) break;
    if (kind != KernelKind::kMask && kind != KernelKind::kFill) continue;
    any_mask |= kind == KernelKind::kMask;
    kernels.push_back(work);
  }
  if (!any_mask) kernels.clear();
  return kernels;
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::map<std::pair<std::string, trace::StringId>, Place> places;
  for (const AttentionCall& call : facts.metrics().attention_calls) {
    if (call.hand_written || call.bare_kernel || call.pass == AttentionPass::kBackward) continue;
    const std::vector<Work> kernels = mask_kernels(facts, call);
    if (kernels.empty()) continue;
    const Above above = facts.above(call.event);
    const std::string where =
        above.range == trace::kNoEvent ? call.op : std::string(facts.trace().name(above.range));
    Place& place = places[{where, facts.trace().operator_args_id(call.event)}];
    ++place.calls;
    place.converted |= call.mask == MaskUse::kTensor;
    place.call_ns += call.device_ns;
    place.kernels += kernels.size();
    for (const Work& work : kernels) {
      place.events.push_back(work.event);
      place.mask_ns += work.ns;
    }
  }
  std::vector<Finding> findings;
  for (const auto& [key, place] : places) {
    if (static_cast<double>(place.calls) < limits["min_calls"]) continue;
    const double share =
        100.0 * static_cast<double>(place.mask_ns) / static_cast<double>(std::max<int64_t>(1, place.call_ns));
    Finding finding = make_finding(
        mask_rebuilt_rule,
        fmt::format("the mask is {} anew in each of {} equal calls: {} kernels, {} ({} of the attention)",
                    place.converted ? "converted" : "built", place.calls, place.kernels / place.calls,
                    per_call(place.mask_ns, place.calls), percent_text(share)));
    if (share >= limits["warning_share"]) finding.severity = Severity::kWarning;
    finding.range = key.first;
    finding.saving_us = us(place.mask_ns) / static_cast<double>(place.calls);
    finding.saving_per = "call";
    finding.saving_basis = "the measured time of the kernels that build the mask";
    finding.confidence = Certainty::kHigh;
    finding.group = "attention:" + key.first;
    facts.cite(finding, place.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule mask_rebuilt_rule{
    .id = "mask-rebuilt",
    .category = RuleCategory::kAttention,
    .severity = Severity::kNote,
    .summary = "Every attention call builds the same mask again.",
    .what =
        "Fill and selection kernels (ones, tril, where) inside attention calls with equal recorded inputs, "
        "before "
        "the first product.",
    .why =
        "A causal mask depends on the lengths only. Building it takes several small kernels and an L × S "
        "tensor in "
        "every call; a fused kernel compares two indices instead.",
    .remedy =
        "Use a fused backend with is_causal=True. If a mask tensor is needed, build it once, in the additive "
        "form "
        "the operator wants, and pass it in.",
    .false_positives =
        "A mask whose content changes between calls has to be converted every time; equal shapes do not "
        "show that. Masks built outside the attention call are not looked at.",
    .thresholds = kThresholds,
    .needs = kNeedsWork | kNeedsOperators | kNeedsAttention,
    .check = check};

}  // namespace attnscope
