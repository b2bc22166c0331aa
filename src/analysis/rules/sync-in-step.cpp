// A synchronising call inside a step let the device run dry.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

extern const Rule sync_in_step_rule;

namespace {

using trace::EventIndex;
using trace::kNoEvent;

constexpr Threshold kThresholds[] = {
    {"min_share", 2, "%", "of the device's window idle after synchronising calls inside steps"}};

bool is_synchronising(std::string_view name) {
  return name.find("Synchronize") != std::string_view::npos || name == "cudaMemcpy" || name == "hipMemcpy";
}

// Synchronising calls, by the time they return.
std::vector<EventIndex> synchronising_calls(const RuleFacts& facts) {
  std::vector<EventIndex> calls;
  const trace::Trace& t = facts.trace();
  for (EventIndex e = 0; e < t.size(); ++e)
    if (trace::is_launch_api(t.cls(e)) && is_synchronising(t.name(e))) calls.push_back(e);
  std::sort(calls.begin(), calls.end(),
            [&](EventIndex a, EventIndex b) { return t.end_ns(a) < t.end_ns(b); });
  return calls;
}

// Which step a moment of host time lies in; −1: between steps. Without steps all is one.
int step_at(const RuleFacts& facts, int64_t ns) {
  const std::vector<StepStats>& steps = facts.metrics().steps;
  if (steps.size() < 2) return 0;
  for (size_t i = 0; i < steps.size(); ++i)
    if (ns >= steps[i].begin_ns && ns <= steps[i].end_ns) return static_cast<int>(i);
  return -1;
}

// The call that was waiting when the device ran dry at the gap's begin. It counts when the work after the gap
// was launched in the same step; without steps, only when an operator asked for it: a program may synchronise
// between its parts.
EventIndex cause_of(const RuleFacts& facts, const std::vector<EventIndex>& calls, const Gap& gap) {
  const trace::Trace& t = facts.trace();
  if (gap.after == kNoEvent || facts.links().launch(gap.after) == kNoEvent) return kNoEvent;
  const int64_t launched = t.ts_ns(facts.links().launch(gap.after));
  auto at = std::lower_bound(calls.begin(), calls.end(), gap.begin_ns - 2000,
                             [&](EventIndex e, int64_t ns) { return t.end_ns(e) < ns; });
  for (; at != calls.end() && t.end_ns(*at) <= gap.end_ns; ++at) {
    if (t.ts_ns(*at) > gap.begin_ns) continue;
    if (facts.metrics().steps.size() < 2) return facts.above(*at).operators.empty() ? kNoEvent : *at;
    const int step = step_at(facts, t.ts_ns(*at));
    return step >= 0 && step == step_at(facts, launched) ? *at : kNoEvent;
  }
  return kNoEvent;
}

std::string who_asked(const RuleFacts& facts, EventIndex call) {
  const Above above = facts.above(call);
  const EventIndex top = facts.top_operator(above);
  return top == kNoEvent ? std::string() : " under " + std::string(facts.trace().name(top));
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  const std::vector<EventIndex> calls = synchronising_calls(facts);
  std::vector<Finding> findings;
  for (const DeviceTimeline& d : facts.metrics().gaps.devices) {
    const int64_t window = d.end_ns - d.begin_ns;
    Total idle;
    int64_t longest = 0;
    std::vector<EventIndex> guilty;
    EventIndex worst = kNoEvent;
    for (const Gap& gap : facts.metrics().gaps.longest) {
      if (gap.device != d.device || gap.cause != GapCause::kSync) continue;
      const EventIndex call = cause_of(facts, calls, gap);
      if (call == kNoEvent) continue;
      idle += gap.end_ns - gap.begin_ns;
      guilty.push_back(call);
      if (gap.end_ns - gap.begin_ns <= longest) continue;
      longest = gap.end_ns - gap.begin_ns;
      worst = call;
    }
    if (window <= 0 || guilty.empty()) continue;
    const double share = 100.0 * static_cast<double>(idle) / static_cast<double>(window);
    if (share < limits["min_share"]) continue;
    std::sort(guilty.begin(), guilty.end(),
              [&](EventIndex a, EventIndex b) { return facts.trace().ts_ns(a) < facts.trace().ts_ns(b); });
    guilty.erase(std::unique(guilty.begin(), guilty.end()), guilty.end());
    const bool steps = facts.metrics().steps.size() > 1;
    const auto divide = static_cast<double>(steps ? facts.metrics().steps.size() : 1);
    Finding finding =
        make_finding(sync_in_step_rule,
                     fmt::format("{} let the device run dry: idle {} "
                                 "afterwards ({} of its window); the longest after {}{}",
                                 counted(guilty.size(), "synchronising call"), format_time_us(us(idle)),
                                 percent_text(share), facts.trace().name(worst), who_asked(facts, worst)));
    finding.range = steps ? "step" : "";
    finding.saving_us = us(idle) / divide;
    finding.saving_per = steps ? "step" : "trace";
    finding.saving_basis =
        "up to: idle from the moment the queue was empty to the next work, under the profiler";
    finding.confidence = Certainty::kMedium;
    finding.group = "idle";
    facts.cite(finding, guilty);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule sync_in_step_rule{
    .id = "sync-in-step",
    .category = RuleCategory::kHost,
    .severity = Severity::kWarning,
    .summary =
        "The host waited for the device in the middle of a step, and the device then waited for the host.",
    .what =
        "Synchronising calls inside a step (or, without steps, before further work), after which the device "
        "was "
        "idle until the host had launched again in the same step. Without steps only calls that an operator "
        "made "
        "count.",
    .why =
        "A synchronisation lets the queue run empty. Everything the host does until the next launch is then "
        "idle time "
        "of the device.",
    .remedy =
        "Avoid reading values back inside the step: item(), nonzero(), printing a loss, copies to pageable "
        "memory. "
        "Keep values on the device, or read them one step later with non_blocking copies.",
    .false_positives =
        "A synchronisation at the end of a measured step is what makes the measurement right; those "
        "between steps are not counted. Generation loops need each token on the host.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsLinks,
    .check = check};

}  // namespace attnscope
