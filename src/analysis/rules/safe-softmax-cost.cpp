// What guarding against fully masked rows costs.

#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule safe_softmax_cost_rule;

namespace {

using trace::EventIndex;
using trace::kNoEvent;

constexpr Threshold kThresholds[] = {
    {"min_share", 1, "%", "of the trace's device time, in the guard's kernels"},
    {"warning_share", 5, "%", "of the trace's device time: from here on it is a warning"}};

struct Place {
  std::vector<EventIndex> guards;
  std::vector<EventIndex> calls;
  Total guard_ns, softmax_ns;
};

// The safe softmax above a piece of work, if any.
EventIndex safe_softmax_above(const RuleFacts& facts, const Above& above) {
  for (EventIndex op : above.operators)
    if (facts.trace().name(op).find("safe_softmax") != std::string_view::npos) return op;
  return kNoEvent;
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::map<std::string, Place> places;
  for (const Work& work : facts.work()) {
    const Above above = facts.above(work.event);
    const EventIndex guard = safe_softmax_above(facts, above);
    if (guard == kNoEvent) continue;
    Place& place = places[facts.where(above)];
    if (place.calls.empty() || place.calls.back() != guard) place.calls.push_back(guard);
    if (work.name->kind == KernelKind::kSoftmax) {
      place.softmax_ns += work.ns;
    } else {
      place.guard_ns += work.ns;
      place.guards.push_back(work.event);
    }
  }
  std::vector<Finding> findings;
  for (const auto& [where, place] : places) {
    const double share = facts.share(place.guard_ns);
    if (share < limits["min_share"] || place.guards.empty()) continue;
    const size_t calls = place.calls.size();
    Finding finding = make_finding(
        safe_softmax_cost_rule,
        fmt::format("guarding the softmax against empty rows: {} kernels, {} beside {} of softmax ({} of "
                    "device time)",
                    place.guards.size() / calls, per_call(place.guard_ns, calls),
                    format_time_us(us(place.softmax_ns) / static_cast<double>(calls)), percent_text(share)));
    if (share >= limits["warning_share"]) finding.severity = Severity::kWarning;
    finding.range = where;
    finding.saving_us = us(place.guard_ns) / static_cast<double>(calls);
    finding.saving_per = "call";
    finding.saving_basis = "the measured time of the guard's kernels; a fused kernel guards at no cost";
    finding.confidence = Certainty::kHigh;
    finding.group = "attention:" + where;
    facts.cite(finding, place.guards);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule safe_softmax_cost_rule{
    .id = "safe-softmax-cost",
    .category = RuleCategory::kAttention,
    .severity = Severity::kNote,
    .summary = "The softmax is guarded against fully masked rows by kernels of its own.",
    .what =
        "Kernels other than the softmax itself under _safe_softmax: compare with −inf, test each row, write "
        "zeros, "
        "select.",
    .why =
        "A row whose every score is −inf makes an ordinary softmax divide 0 by 0. The math path tests for "
        "such rows "
        "by reading all scores again, although a causal mask cannot produce one.",
    .remedy = "Use a fused backend: it keeps the row's maximum in registers and tests it at no cost.",
    .false_positives =
        "Where rows can be fully masked, the guard is what makes their output 0 instead of NaN: remove "
        "it only together with such rows.",
    .thresholds = kThresholds,
    .needs = kNeedsWork | kNeedsOperators | kNeedsLinks,
    .check = check};

}  // namespace attnscope
