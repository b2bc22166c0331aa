// GPU annotation rows, whose percentages in torch's table mean nothing.

#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <cmath>

namespace attnscope {

extern const Rule annotation_percent_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"min_excess", 1, "%", "by which an annotation's row differs from the work launched in the range"}};

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  struct Row {
    std::vector<EventIndex> events;
    Total ns;
  };
  std::map<std::string, Row> rows;
  const trace::Trace& t = facts.trace();
  for (EventIndex e = 0; e < t.size(); ++e) {
    if (t.cls(e) != trace::EventClass::kGpuAnnotation) continue;
    Row& row = rows[std::string(t.name(e))];
    row.events.push_back(e);
    row.ns += t.dur_ns(e);
  }
  std::vector<Finding> findings;
  for (const auto& [name, row] : rows) {
    if (name.starts_with("ProfilerStep#")) continue;
    const RangeStats* range = facts.metrics().range(name);
    const int64_t work_ns = range ? range->process.device_ns : Total();
    const double shown = facts.share(row.ns), true_share = facts.share(work_ns);
    if (std::abs(shown - true_share) < limits["min_excess"]) continue;
    Finding finding = make_finding(
        annotation_percent_rule,
        fmt::format("the row {} reads {} of the device total; the work launched in it is {} ({})",
                    terminal_safe(name, 60), percent_text(shown), percent_text(true_share),
                    format_time_us(us(work_ns))));
    finding.range = name;
    finding.saving_us = 0;
    finding.saving_per = "trace";
    finding.saving_basis = "nothing to save: a figure to leave aside";
    finding.confidence = Certainty::kHigh;
    facts.cite(finding, row.events);
    findings.push_back(std::move(finding));
    if (findings.size() >= 8) break;  // the ninth teaches nothing new
  }
  return findings;
}

}  // namespace

const Rule annotation_percent_rule{
    .id = "annotation-percent",
    .category = RuleCategory::kMeasurement,
    .severity = Severity::kInfo,
    .summary =
        "A range's row on the GPU is a span from first to last work, not a sum: its percentage is not a "
        "share.",
    .what =
        "GPU annotation events (the device row of record_function) whose duration differs from the work that "
        "was "
        "launched inside the range.",
    .why =
        "The row spans from the start of the first to the end of the last linked work, pauses and other "
        "ranges' work "
        "included. torch's table divides it by the sum of kernels, copies and fills, so it can exceed 100 %.",
    .remedy = "Use the device time of the work launched in the range, as given here per range.",
    .false_positives = "Where the two figures agree within the threshold nothing is said.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsLinks,
    .check = check};

}  // namespace attnscope
