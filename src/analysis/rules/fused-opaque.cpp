// Compiled kernels whose operators a trace no longer shows; their names still do.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule fused_opaque_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"min_share", 1, "%", "of the trace's device time in one compiled kernel"}};

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  GatheredMap kernels;
  for (const Work& work : facts.work()) {
    const KernelName& name = *work.name;
    if (work.cls != trace::EventClass::kKernel || !name.demangled.starts_with("triton_")) continue;
    gather(kernels, {}, name.demangled, work, work.event);
  }
  std::vector<Finding> findings;
  for (const auto& [key, g] : kernels) {
    if (facts.share(g.ns) < limits["min_share"]) continue;
    const KernelName& name = facts.metrics().decoded(facts.trace().name_id(g.events.front()));
    std::string fuses;
    for (const std::string& op : name.fused) fuses += (fuses.empty() ? "" : ", ") + op;
    if (name.implementation == AttentionImpl::kFlex)
      fuses = "FlexAttention: both products, the score change, the mask and the softmax";
    Finding finding = make_finding(
        fused_opaque_rule,
        fuses.empty()
            ? fmt::format(
                  "{}: a compiled kernel whose name does not say what it fuses; {} ({} of device time)",
                  terminal_safe(g.what, 60), per_call(g.ns, g.events.size()), percent_text(facts.share(g.ns)))
            : fmt::format("{} fuses {}; {} ({} of device time)", terminal_safe(g.what, 60), fuses,
                          per_call(g.ns, g.events.size()), percent_text(facts.share(g.ns))));
    finding.saving_basis = "nothing to save: this says what ran";
    finding.confidence = fuses.empty() ? Certainty::kLow : Certainty::kMedium;
    facts.cite(finding, g.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule fused_opaque_rule{
    .id = "fused-opaque",
    .category = RuleCategory::kAttention,
    .severity = Severity::kInfo,
    .summary = "A compiled kernel stands for several operators that the trace no longer shows.",
    .what =
        "Kernels that torch.compile generated (triton_poi, triton_per, triton_red, triton_tem), whose names "
        "list the "
        "operators they fuse.",
    .why =
        "After compilation, operators and kernels no longer correspond one to one: time per operator, shapes "
        "and "
        "counts are those of the compiled graph. The kernel's name is what is left to read.",
    .remedy =
        "To see inside, look at the generated code (TORCH_LOGS=output_code), or profile the eager form "
        "beside it.",
    .false_positives = "None: it states what ran. Names are cut when many operators are fused.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice,
    .check = check};

}  // namespace attnscope
