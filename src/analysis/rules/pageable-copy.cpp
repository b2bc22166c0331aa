// Copies between host and device through pageable memory.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule pageable_copy_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"min_bytes", 65536, "B", "smaller copies are staged by the driver anyway and cost little"},
    {"warning_share", 1, "%", "of the trace's device time: from here on it is a warning"}};

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  GatheredMap kinds;
  for (const Work& work : facts.work()) {
    if (work.cls != trace::EventClass::kMemcpy) continue;
    const trace::CopyInfo copy = facts.trace().copy(work.event);
    const bool up = copy.kind == trace::CopyKind::kHtoD && copy.from == trace::MemoryKind::kPageable;
    const bool down = copy.kind == trace::CopyKind::kDtoH && copy.to == trace::MemoryKind::kPageable;
    if ((!up && !down) || static_cast<double>(copy.bytes) < limits["min_bytes"]) continue;
    Gathered& g =
        gather(kinds, {}, up ? "from pageable memory to the device" : "from the device to pageable memory",
               work, work.event);
    g.bytes += copy.bytes;
  }
  std::vector<Finding> findings;
  for (const auto& [key, g] : kinds) {
    const double share = facts.share(g.ns);
    const double rate = g.ns > 0 ? static_cast<double>(g.bytes) / static_cast<double>(g.ns) : 0;  // GB/s
    Finding finding =
        make_finding(pageable_copy_rule,
                     fmt::format("{} {}: {}, {} at {:.3g} GB/s ({} of device time)",
                                 g.events.size() == 1 ? "1 copy" : fmt::format("{} copies", g.events.size()),
                                 g.what, format_bytes(static_cast<double>(g.bytes)), format_time_us(us(g.ns)),
                                 rate, percent_text(share)));
    if (share < limits["warning_share"]) finding.severity = Severity::kNote;
    finding.saving_basis = "not estimated: pinned copies reach the link's rate and run beside kernels";
    finding.confidence = Certainty::kHigh;
    facts.cite(finding, g.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule pageable_copy_rule{
    .id = "pageable-copy",
    .category = RuleCategory::kMemory,
    .severity = Severity::kWarning,
    .summary = "Copies between host and device go through pageable memory.",
    .what =
        "Copies of at least 64 KiB from the host to the device or back whose host side is pageable memory.",
    .why =
        "The driver copies pageable memory through a pinned buffer of its own, so the transfer is slower, "
        "and "
        "non_blocking has no effect: the host waits.",
    .remedy =
        "Pin the host memory (pin_memory=True in the data loader, tensor.pin_memory()) and copy with "
        "non_blocking=True.",
    .false_positives = "A copy that happens once, such as loading weights, is not worth pinning for.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice,
    .check = check};

}  // namespace attnscope
