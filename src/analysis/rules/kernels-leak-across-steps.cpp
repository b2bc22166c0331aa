// Device work at the start of the window that was launched before it.

#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule kernels_leak_across_steps_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {{"min_events", 1, "events", "of earlier work inside the window"}};

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::vector<EventIndex> leaked;
  Total ns;
  size_t kernels = 0, all_kernels = 0;
  for (const Work& work : facts.work()) {
    all_kernels += work.cls == trace::EventClass::kKernel ? 1 : 0;
    if (!trace::is_device_work(work.cls) || facts.metrics().cpu_only) continue;
    if (facts.links().unlinked(work.event) != trace::Unlinked::kEarlierWork) continue;
    leaked.push_back(work.event);
    ns += work.ns;
    kernels += work.cls == trace::EventClass::kKernel ? 1 : 0;
  }
  if (leaked.empty() || static_cast<double>(leaked.size()) < limits["min_events"]) return {};
  Finding finding = make_finding(
      kernels_leak_across_steps_rule,
      fmt::format("{} of {} kernels ({} events of device work, {}) were launched before the recorded window",
                  kernels, all_kernels, leaked.size(), format_time_us(us(ns))));
  finding.saving_us = 0;
  finding.saving_per = "trace";
  finding.saving_basis = "nothing to save: sums over the file are too large by this work";
  finding.confidence = Certainty::kHigh;
  facts.cite(finding, leaked);
  return {std::move(finding)};
}

}  // namespace

const Rule kernels_leak_across_steps_rule{
    .id = "kernels-leak-across-steps",
    .category = RuleCategory::kMeasurement,
    .severity = Severity::kNote,
    .summary = "Device work of the step before the first recorded one is inside the trace.",
    .what = "Device work without a launch in the file, before the first work of its stream that has one.",
    .why =
        "The host runs ahead of the device. When recording starts, the device still works on what was "
        "launched "
        "before; the profiler records that work but not its launches. Counts and sums over the whole file, "
        "torch's "
        "table included, contain it.",
    .remedy =
        "Divide by the launches inside the ranges (as the figures here do), or synchronise before the "
        "recorded "
        "steps begin.",
    .false_positives =
        "None: the work is there. Where launches were lost for another reason before a stream's first "
        "linked work, it looks the same.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsLinks,
    .check = check};

}  // namespace attnscope
