#pragma once
// A stretch of a trace as bars for the page.

#include "analysis/metrics.h"
#include "report/html/page.h"

namespace attnscope::report {

struct TimelineLimits {
  size_t max_events = 20'000;  // the longest are kept; launches of kept device work are kept with them
};

// Host spans and device work that begin in [begin_ns, end_ns) of the trace, or were launched there. Device
// rows are one lane, whatever their stream. Costs O(events of the trace).
Timeline make_timeline(const Metrics& metrics, std::string name, int64_t begin_ns, int64_t end_ns,
                       const TimelineLimits& limits = {});

// The step a reader should look at: the middle one, so neither warm-up nor the last. The whole trace when it
// has none.
std::pair<int64_t, int64_t> typical_step(const Metrics& metrics);

// The kind a bar or a strip block is coloured by: gemm, elementwise, mask, softmax, reduction, copy, cast,
// fill, fused, host, other.
std::string_view bar_kind(KernelKind kind);

}  // namespace attnscope::report
