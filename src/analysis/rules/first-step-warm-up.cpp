// The first recorded step took longer on the device than the others.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

extern const Rule first_step_warm_up_rule;

namespace {

constexpr Threshold kThresholds[] = {
    {"min_steps", 3, "steps", "with device work, so that the later ones agree among themselves"},
    {"min_factor", 1.2, "×", "the median device time of the later steps"},
    {"min_excess", 20, "µs", "above that median"}};

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::vector<const StepStats*> steps;
  for (const StepStats& step : facts.metrics().steps)
    if (step.work.device_ns > 0) steps.push_back(&step);
  if (static_cast<double>(steps.size()) < limits["min_steps"]) return {};
  const StepStats& first = *steps.front();
  std::vector<int64_t> later;
  for (size_t i = 1; i < steps.size(); ++i) {
    // Only steps that did the same can be compared; an incomplete last step drops out here.
    if (steps[i]->work.kernels != first.work.kernels) continue;
    later.push_back(steps[i]->work.device_ns);
  }
  if (static_cast<double>(later.size()) < limits["min_steps"] - 1) return {};
  std::sort(later.begin(), later.end());
  const int64_t median = later[(later.size() - 1) / 2];
  const int64_t excess = first.work.device_ns - median;
  if (static_cast<double>(first.work.device_ns) < limits["min_factor"] * static_cast<double>(median) ||
      us(excess) < limits["min_excess"])
    return {};
  Finding finding = make_finding(
      first_step_warm_up_rule,
      fmt::format("the first step's device time is {}, the median of the {} later ones {}: {:.2f} ×",
                  format_time_us(us(first.work.device_ns)), later.size(), format_time_us(us(median)),
                  static_cast<double>(first.work.device_ns) / static_cast<double>(median)));
  finding.range = "step";
  finding.saving_us = 0;
  finding.saving_per = "trace";
  finding.saving_basis = "nothing to save: leave the first step out of averages, or record one step later";
  finding.confidence = Certainty::kHigh;
  for (const Work& work : facts.work()) {
    const trace::EventIndex launch = facts.links().launch(work.event);
    const int64_t at = launch == trace::kNoEvent ? -1 : facts.trace().ts_ns(launch);
    if (at < first.begin_ns || at > first.end_ns) continue;
    finding.evidence.push_back(facts.evidence(work.event));
    if (finding.evidence.size() >= RuleFacts::kMostEvidence) break;
  }
  finding.evidence_total = first.work.kernels + first.work.copies + first.work.fills;
  return {std::move(finding)};
}

}  // namespace

const Rule first_step_warm_up_rule{
    .id = "first-step-warm-up",
    .category = RuleCategory::kMeasurement,
    .severity = Severity::kNote,
    .summary = "The first recorded step ran longer on the device than the later ones.",
    .what =
        "The device time of the first complete step against the median of the later ones that launched as "
        "many "
        "kernels.",
    .why =
        "Clocks rise, caches fill, and workspaces are allocated during the first steps. An average over all "
        "steps "
        "contains that.",
    .remedy = "Use a schedule with warm-up steps, and compare medians.",
    .false_positives =
        "A first step with other data (a longer batch) takes longer for that reason. Only steps with the "
        "same number of kernels are compared.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsLinks | kNeedsSteps,
    .check = check};

}  // namespace attnscope
