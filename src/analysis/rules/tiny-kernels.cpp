// Many kernels shorter than what starting them costs.

#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule tiny_kernels_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"tiny", 5, "µs", "a kernel shorter than this costs more to launch than to run"},
    {"min_kernels", 100, "kernels", "that short, in the trace"},
    {"min_part", 50, "%", "of all kernels that were launched one by one"}};

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::vector<EventIndex> tiny;
  size_t launched = 0;
  Total ns;
  for (const Work& work : facts.work()) {
    if (work.cls != trace::EventClass::kKernel) continue;
    const trace::LinkBasis basis = facts.links().device_link(work.event).basis;
    // A graph starts its kernels without the host: short ones cost little there.
    if (basis == trace::LinkBasis::kGraph || basis == trace::LinkBasis::kNone) continue;
    ++launched;
    // A recorded duration of 0 is a clock that counts whole microseconds, not a measurement.
    if (us(work.ns) >= limits["tiny"] || work.ns == 0) continue;
    tiny.push_back(work.event);
    ns += work.ns;
  }
  if (static_cast<double>(tiny.size()) < limits["min_kernels"]) return {};
  const double part = 100.0 * static_cast<double>(tiny.size()) / static_cast<double>(launched);
  if (part < limits["min_part"]) return {};
  Finding finding = make_finding(
      tiny_kernels_rule,
      fmt::format("{} of {} launched kernels take less than {:.0f} µs ({} of the kernels, {} of device time)",
                  group_digits(static_cast<int64_t>(tiny.size())),
                  group_digits(static_cast<int64_t>(launched)), limits["tiny"], percent_text(part),
                  percent_text(facts.share(ns))));
  finding.saving_basis =
      "not estimated: it shows as idle time, see launch-bound; nothing while the device is kept busy";
  finding.confidence = Certainty::kHigh;
  finding.group = "idle";
  facts.cite(finding, tiny);
  return {std::move(finding)};
}

}  // namespace

const Rule tiny_kernels_rule{
    .id = "tiny-kernels",
    .category = RuleCategory::kHost,
    .severity = Severity::kNote,
    .summary = "Most kernels are shorter than what it costs to launch one.",
    .what =
        "Kernels below 5 µs that were launched one by one (not by a graph), when they are most of all "
        "kernels.",
    .why =
        "Each launch costs the host and the device's front end a few microseconds, whatever the kernel does.",
    .remedy =
        "Fuse neighbouring elementwise operators (torch.compile), use the foreach or fused optimizer, batch "
        "small "
        "problems, or replay the sequence as a CUDA graph.",
    .false_positives =
        "Kernels inside CUDA graphs and kernels without a launch in the file are not counted. While the "
        "device is busy all the time, nothing is lost.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsLinks,
    .check = check};

}  // namespace attnscope
