#include "report/html/timeline.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace attnscope::report {
namespace {

using trace::EventClass;
using trace::EventIndex;

bool is_shown_host(EventClass c) {
  return trace::is_host_span(c) && c != EventClass::kPython;
}

std::string_view device_kind(const Metrics& metrics, EventIndex i) {
  switch (metrics.trace->cls(i)) {
    case EventClass::kMemcpy: return "copy";
    case EventClass::kMemset: return "fill";
    default: return bar_kind(metrics.decoded(metrics.trace->name_id(i)).kind);
  }
}

// Events of the window, longest first, cut at the limit; then in file order again.
std::vector<EventIndex> chosen(const Metrics& metrics, int64_t begin_ns, int64_t end_ns, size_t limit,
                               uint64_t& left_out) {
  const trace::Trace& trace = *metrics.trace;
  std::vector<EventIndex> picked;
  for (EventIndex i = 0; i < trace.size(); ++i) {
    const bool device = trace::is_device_work(trace.cls(i));
    if (!device && !is_shown_host(trace.cls(i))) continue;
    const EventIndex launch = device ? metrics.links->launch_point(i) : trace::kNoEvent;
    const int64_t at = launch == trace::kNoEvent ? trace.ts_ns(i) : trace.ts_ns(launch);
    if (at >= begin_ns && at < end_ns) picked.push_back(i);
  }
  if (picked.size() > limit) {
    std::nth_element(picked.begin(), picked.begin() + static_cast<std::ptrdiff_t>(limit), picked.end(),
                     [&](EventIndex a, EventIndex b) { return trace.dur_ns(a) > trace.dur_ns(b); });
    left_out = picked.size() - limit;
    picked.resize(limit);
    std::vector<EventIndex> launches;
    for (const EventIndex i : picked) {
      if (!trace::is_device_work(trace.cls(i))) continue;
      if (const EventIndex launch = metrics.links->launch(i); launch != trace::kNoEvent)
        launches.push_back(launch);
    }
    picked.insert(picked.end(), launches.begin(), launches.end());
    std::sort(picked.begin(), picked.end());
    picked.erase(std::unique(picked.begin(), picked.end()), picked.end());
  }
  return picked;
}

}  // namespace

std::string_view bar_kind(KernelKind kind) {
  switch (kind) {
    case KernelKind::kGemm:
    case KernelKind::kConv: return "gemm";
    case KernelKind::kElementwise:
    case KernelKind::kNorm:
    case KernelKind::kRope: return "elementwise";
    case KernelKind::kMask: return "mask";
    case KernelKind::kSoftmax: return "softmax";
    case KernelKind::kReduction: return "reduction";
    case KernelKind::kCopy:
    case KernelKind::kTranspose: return "copy";
    case KernelKind::kCast: return "cast";
    case KernelKind::kFill: return "fill";
    case KernelKind::kAttention:
    case KernelKind::kFused: return "fused";
    default: return "other";
  }
}

std::pair<int64_t, int64_t> typical_step(const Metrics& metrics) {
  if (metrics.steps.empty())
    return {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  const StepStats& step = metrics.steps[metrics.steps.size() / 2];
  return {step.begin_ns, step.end_ns};
}

Timeline make_timeline(const Metrics& metrics, std::string name, int64_t begin_ns, int64_t end_ns,
                       const TimelineLimits& limits) {
  const trace::Trace& trace = *metrics.trace;
  Timeline timeline;
  timeline.name = std::move(name);
  const std::vector<EventIndex> events =
      chosen(metrics, begin_ns, end_ns, limits.max_events, timeline.left_out);
  if (timeline.left_out > 0)
    timeline.left_out_why =
        "the longest events of one step are kept, with the launches of what they launched";
  int64_t zero = std::numeric_limits<int64_t>::max();
  std::unordered_map<EventIndex, int64_t> position;
  for (const EventIndex i : events) {
    zero = std::min(zero, trace.ts_ns(i));
    position.emplace(i, static_cast<int64_t>(position.size()));
  }
  timeline.events.reserve(events.size());
  for (const EventIndex i : events) {
    const bool device = trace::is_device_work(trace.cls(i));
    TimelineEvent bar;
    bar.lane = device ? 1 : 0;
    bar.ts_us = static_cast<double>(trace.ts_ns(i) - zero) / 1e3;
    bar.dur_us = static_cast<double>(std::max<int64_t>(trace.dur_ns(i), 0)) / 1e3;
    bar.name = std::string(trace.name(i).substr(0, 2000));
    bar.kind = device ? device_kind(metrics, i) : "host";
    bar.ordinal = trace.ordinal(i);
    if (device) {
      const auto launch = position.find(metrics.links->launch(i));
      if (launch != position.end()) bar.launched_by = launch->second;
    }
    timeline.events.push_back(std::move(bar));
  }
  return timeline;
}

}  // namespace attnscope::report
