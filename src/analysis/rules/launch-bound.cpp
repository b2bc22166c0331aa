// The device runs dry because the host cannot launch fast enough.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

extern const Rule launch_bound_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"min_idle", 30, "%", "of the device's window idle while the host was launching"},
    {"min_launches", 50, "launches", "in the window; fewer make no pattern"},
    {"warning_idle", 10, "%",
     "idle that remains after the profiler's own cost is taken off: from here on a warning"}};

// Host events that the profiler recorded on the launching threads within the window.
uint64_t recorded_events(const RuleFacts& facts, int64_t begin_ns, int64_t end_ns) {
  uint64_t most = 0;
  for (uint32_t thread = 0; thread < facts.trace().threads().size(); ++thread) {
    const std::span<const EventIndex> order = facts.links().preorder(thread);
    const auto before = [&](EventIndex e, int64_t t) { return facts.trace().ts_ns(e) < t; };
    const auto from = std::lower_bound(order.begin(), order.end(), begin_ns, before);
    most = std::max(most, static_cast<uint64_t>(std::lower_bound(from, order.end(), end_ns, before) - from));
  }
  return most;
}

// Work that began only after the device had been idle, and whose launch began after that too.
std::vector<EventIndex> starved(const RuleFacts& facts, const DeviceTimeline& d) {
  std::vector<EventIndex> events;
  int64_t busy_until = d.begin_ns;
  for (const Work& work : facts.work()) {
    if (facts.trace().queue(work.event).device != d.device) continue;
    const int64_t begin = facts.trace().ts_ns(work.event);
    const EventIndex launch = facts.links().launch(work.event);
    if (launch != trace::kNoEvent && begin > busy_until && facts.trace().end_ns(launch) > busy_until)
      events.push_back(work.event);
    busy_until = std::max(busy_until, begin + work.ns);
  }
  return events;
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::vector<Finding> findings;
  const Metrics& m = facts.metrics();
  for (const DeviceTimeline& d : m.gaps.devices) {
    const int64_t window = d.end_ns - d.begin_ns;
    const auto cause = [&](GapCause c) { return d.idle_ns[static_cast<size_t>(c)]; };
    const int64_t idle = cause(GapCause::kLaunch) + cause(GapCause::kLatency);
    if (window <= 0 || static_cast<double>(m.launches) < limits["min_launches"]) continue;
    const double share = 100.0 * static_cast<double>(idle) / static_cast<double>(window);
    if (share < limits["min_idle"]) continue;
    // What recording costs the host makes the device wait longer than it would by itself.
    const int64_t cost =
        static_cast<int64_t>(recorded_events(facts, d.begin_ns, d.end_ns)) * facts.profiler_ns_per_event();
    const int64_t remaining = std::max<int64_t>(0, idle - cost);
    const int64_t window_without = std::max<int64_t>(1, window - (idle - remaining));
    const double remaining_share =
        100.0 * static_cast<double>(remaining) / static_cast<double>(window_without);
    const auto steps = static_cast<double>(std::max<size_t>(1, m.steps.size()));
    Finding finding = make_finding(
        launch_bound_rule,
        fmt::format(
            "under the profiler the device waits {} of the time for launches: {} kernels of median {}",
            percent_text(share), group_digits(static_cast<int64_t>(m.total.kernels)),
            format_time_us(us(m.median_kernel_ns))));
    if (remaining_share < limits["warning_idle"]) finding.severity = Severity::kNote;
    finding.range = m.steps.size() > 1 ? "step" : "";
    finding.saving_us = us(remaining) / steps;
    finding.saving_per = m.steps.size() > 1 ? "step" : "trace";
    finding.saving_basis = fmt::format(
        "up to: idle while launching, less an estimated {} that recording itself cost the host ({:.0f} µs "
        "per recorded event)",
        format_time_us(us(std::min(cost, idle))), us(facts.profiler_ns_per_event()));
    finding.confidence = remaining > cost ? Certainty::kHigh : Certainty::kMedium;
    finding.group = "idle";
    facts.cite(finding, starved(facts, d));
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule launch_bound_rule{
    .id = "launch-bound",
    .category = RuleCategory::kHost,
    .severity = Severity::kWarning,
    .summary = "The device waits for launches: the host is slower than the kernels it starts.",
    .what =
        "A device that is idle for a large part of its window in gaps where the host was launching all the "
        "time.",
    .why =
        "Starting a kernel costs the host several microseconds of operator and driver code. Kernels shorter "
        "than "
        "that drain the queue faster than the host can fill it.",
    .remedy =
        "Capture the step in a CUDA graph, compile it (torch.compile with mode='reduce-overhead'), or do "
        "more work "
        "per kernel: larger batches, fused operators.",
    .false_positives =
        "Host times in a trace are times under the profiler. An estimate of what recording costs is taken "
        "off; when little remains, the finding is a note. Check the step time without profiling.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsLinks,
    .check = check};

}  // namespace attnscope
