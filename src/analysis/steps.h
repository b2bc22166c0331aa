#pragma once
// Steps of a training or inference loop: recorded (ProfilerStep#n), or found because something repeats.

#include "analysis/metrics.h"
#include "analysis/ranges.h"

namespace attnscope {

// Fills metrics.steps, step_source and step_range. Needs metrics.ranges.
void compute_steps(const trace::Trace& trace, const trace::Links& links, Metrics& metrics);

}  // namespace attnscope
