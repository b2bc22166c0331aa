// The device waits while the host does something other than launching.

#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

extern const Rule host_bound_gap_rule;

namespace {

using trace::EventIndex;
using trace::kNoEvent;

constexpr Threshold kThresholds[] = {{"min_gap", 500, "µs", "of one gap, without the profiler's own cost"},
                                     {"min_share", 5, "%", "of the device's window, all such gaps together"}};

// The host span on the launching thread that fills most of the gap without reaching far beyond it, and how
// much of the gap it fills.
struct Busy {
  EventIndex span = kNoEvent;
  int64_t ns = 0;
};
Busy busy_with(const RuleFacts& facts, const Gap& gap, EventIndex launch) {
  const std::span<const EventIndex> order = facts.links().preorder(facts.trace().thread(launch));
  const int64_t to = std::min(gap.end_ns, facts.trace().ts_ns(launch));
  Busy best;
  int64_t most = (to - gap.begin_ns) / 10;  // less than a tenth explains nothing
  const auto before = [&](EventIndex e, int64_t t) { return facts.trace().ts_ns(e) < t; };
  // Spans that begin up to one gap's length earlier can still lie mostly inside.
  auto at = std::lower_bound(order.begin(), order.end(), gap.begin_ns - (to - gap.begin_ns), before);
  for (; at != order.end() && facts.trace().ts_ns(*at) < to; ++at) {
    const int64_t begin = std::max(facts.trace().ts_ns(*at), gap.begin_ns),
                  end = std::min(facts.trace().end_ns(*at), to);
    if (facts.trace().dur_ns(*at) / 2 > to - gap.begin_ns || end - begin <= most) continue;
    most = end - begin;
    best = {*at, most};
  }
  return best;
}

// What the host did in a gap, as the end of a sentence; empty when nothing was recorded.
std::string describe_host(const RuleFacts& facts, const Busy& busy, int64_t gap_ns) {
  if (busy.span == kNoEvent) return {};
  const std::string name = terminal_safe(facts.trace().name(busy.span), 60);
  const std::string time = format_time_us(us(std::min(busy.ns, gap_ns)));
  return busy.ns >= gap_ns - busy.ns
             ? fmt::format("the host was in {} for {} of it", name, time)
             : fmt::format("the host went through many calls, the longest {} ({})", name, time);
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::vector<Finding> findings;
  for (const DeviceTimeline& d : facts.metrics().gaps.devices) {
    const int64_t window = d.end_ns - d.begin_ns;
    Total total;
    int64_t longest = 0;
    std::string doing;
    std::vector<EventIndex> after;
    for (const Gap& gap : facts.metrics().gaps.longest) {
      if (gap.device != d.device || gap.cause != GapCause::kHost || gap.after == kNoEvent) continue;
      const EventIndex launch = facts.links().launch(gap.after);
      if (launch == kNoEvent) continue;
      const Busy busy = busy_with(facts, gap, launch);
      const EventIndex span = busy.span;
      const int64_t cost =
          span == kNoEvent ? 0
                           : static_cast<int64_t>(facts.host_events_in(span)) * facts.profiler_ns_per_event();
      const int64_t net = std::max<int64_t>(0, gap.end_ns - gap.begin_ns - cost);
      if (us(net) < limits["min_gap"]) continue;
      total += net;
      after.push_back(gap.after);
      if (gap.end_ns - gap.begin_ns <= longest) continue;
      longest = gap.end_ns - gap.begin_ns;
      doing = describe_host(facts, busy, longest);
    }
    if (window <= 0 || after.empty()) continue;
    const double share = 100.0 * static_cast<double>(total) / static_cast<double>(window);
    if (share < limits["min_share"]) continue;
    Finding finding = make_finding(
        host_bound_gap_rule,
        fmt::format("the device waited {} for the host in {} ({} of its window; what recording cost is taken "
                    "off); the "
                    "longest lasted {}, {}",
                    format_time_us(us(total)), counted(after.size(), "gap"), percent_text(share),
                    format_time_us(us(longest)),
                    doing.empty() ? std::string("nothing was recorded on the launching thread") : doing));
    finding.saving_us = us(total);
    finding.saving_per = "trace";
    finding.saving_basis = "up to: the gaps, less what recording cost the host in them (estimated)";
    finding.confidence = Certainty::kMedium;
    finding.group = "idle";
    if (doing.empty()) {
      // The host may have worked unrecorded, or the file may have been thinned out.
      finding.severity = Severity::kNote;
      finding.confidence = Certainty::kLow;
    }
    std::sort(after.begin(), after.end(),
              [&](EventIndex a, EventIndex b) { return facts.trace().ts_ns(a) < facts.trace().ts_ns(b); });
    facts.cite(finding, after);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule host_bound_gap_rule{
    .id = "host-bound-gap",
    .category = RuleCategory::kHost,
    .severity = Severity::kWarning,
    .summary = "The device stood idle while the host was busy with other things than launching.",
    .what =
        "Gaps on the device before work whose launch began only after the device had run dry, with a long "
        "pause "
        "between two launches on the host.",
    .why =
        "The queue empties while the host loads data, runs Python, compiles or waits for a lock. The device "
        "can only "
        "wait for the next launch.",
    .remedy =
        "Move the host's work off the launching thread (data loader workers, prefetching), or before the "
        "loop.",
    .false_positives =
        "A pause between two independent parts of a program (warm-up and measurement) looks the same. Host "
        "times are times under the profiler.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsLinks,
    .check = check};

}  // namespace attnscope
