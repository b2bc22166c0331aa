// Host time that a fused attention call spends inside its library.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

extern const Rule library_host_time_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"setup_time", 5000, "µs", "of host time in the first call: more than a launch can take"},
    {"setup_factor", 10, "×", "the median of the later calls"},
    {"min_host", 50, "µs", "of host time per later call after the profiler's cost is taken off"},
    {"min_ratio", 1, "×", "of that to the call's device time"}};

// Host time of a call without what recording it cost, by estimate; at least a fifth is left.
int64_t host_without_profiler(const RuleFacts& facts, const AttentionCall& call) {
  const int64_t cost = static_cast<int64_t>(facts.host_events_in(call.event)) * facts.profiler_ns_per_event();
  return std::max(call.host_ns - cost, call.host_ns / 5);
}

int64_t median(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2),
                   values.end());
  return values[(values.size() - 1) / 2];
}

void add_findings(const RuleFacts& facts, const RuleLimits& limits, const AttentionGroup& group,
                  std::vector<Finding>& out) {
  const std::vector<AttentionCall>& calls = facts.metrics().attention_calls;
  std::vector<int64_t> host, raw, device;
  std::vector<EventIndex> events;
  for (uint32_t i : group.calls) {
    events.push_back(calls[i].event);
    if (i == group.calls.front() && group.calls.size() > 1) continue;
    host.push_back(host_without_profiler(facts, calls[i]));
    raw.push_back(calls[i].host_ns);
    device.push_back(calls[i].device_ns);
  }
  const AttentionCall& first = calls[group.calls.front()];
  const int64_t later = median(host), later_raw = median(raw);
  const std::string_view who = implementation_name(first.implementation);
  if (group.calls.size() > 1 && us(first.host_ns) >= limits["setup_time"] &&
      static_cast<double>(first.host_ns) >= limits["setup_factor"] * static_cast<double>(later_raw)) {
    Finding finding = make_finding(
        library_host_time_rule,
        fmt::format("the first {} call took {} on the host, later ones {}: set-up at first use (plan search, "
                    "compilation or module loading)",
                    who, format_time_us(us(first.host_ns)), format_time_us(us(later_raw))));
    finding.range = first.op;
    finding.saving_us = us(first.host_ns - later_raw);
    finding.saving_per = "trace";
    finding.saving_basis = "once per process and shape: call it once before the part that matters";
    finding.confidence = Certainty::kMedium;
    finding.evidence = {facts.evidence(first.event)};
    finding.evidence_total = 1;
    out.push_back(std::move(finding));
  }
  const int64_t device_ns = median(device);
  if (us(later) < limits["min_host"] || device_ns <= 0 ||
      static_cast<double>(later) < limits["min_ratio"] * static_cast<double>(device_ns))
    return;
  Finding finding = make_finding(library_host_time_rule,
                                 fmt::format("a {} call takes {} on the host under the profiler (about {} "
                                             "without it, estimated) for {} on the device",
                                             who, format_time_us(us(later_raw)), format_time_us(us(later)),
                                             format_time_us(us(device_ns))));
  finding.range = first.op;
  finding.saving_us = 0;
  finding.saving_per = "call";
  finding.saving_basis =
      "nothing while the device has other work queued; without a profiler the call is cheaper still";
  finding.confidence = Certainty::kLow;
  finding.group = "idle";
  facts.cite(finding, events);
  out.push_back(std::move(finding));
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::vector<Finding> findings;
  for (const AttentionGroup& group : facts.metrics().attention_groups) {
    const AttentionCall& first = facts.metrics().attention_calls[group.calls.front()];
    if (first.bare_kernel || first.hand_written || !is_fused_attention(first.implementation)) continue;
    if (first.pass == AttentionPass::kBackward) continue;
    add_findings(facts, limits, group, findings);
  }
  return findings;
}

}  // namespace

const Rule library_host_time_rule{
    .id = "library-host-time",
    .category = RuleCategory::kHost,
    .severity = Severity::kNote,
    .summary = "A fused attention call costs more on the host than on the device.",
    .what =
        "Fused attention calls whose host time, less the estimated cost of recording, exceeds their device "
        "time; and "
        "first calls that took much longer than later ones.",
    .why =
        "One short kernel can stand behind one long, opaque bar on the host: argument checks, plan look-up, "
        "descriptor "
        "building. For small problems the host then sets the pace.",
    .remedy =
        "Capture the step in a CUDA graph, or batch more work per call. Set-up at first use goes away by one "
        "call "
        "with each shape before the loop.",
    .false_positives =
        "A warmed call is not a plan search: libraries cache plans by shape. Host times are times under "
        "the profiler and shrink without it.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsOperators | kNeedsLinks | kNeedsAttention,
    .check = check};

}  // namespace attnscope
