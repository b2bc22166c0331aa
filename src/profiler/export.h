#pragma once
// Recording → Trace: our own recordings enter the same analyses, tables and writers as any other trace.

#include "attnscope/profiler.h"
#include "trace/trace.h"

#include <string>

namespace attnscope::profiler {

struct ExportOptions {
  std::string producer = "attnscope";  // metadata().producer
  std::string trace_name{};
};

// Operators and ranges become spans of their host thread. CPU kernels, copies and fills become device work
// that ran inline on that thread: class kKernel, kMemcpy, kMemset with category cpu_kernel, cpu_copy,
// cpu_fill, which other viewers show as spans nested in their operator. Steps become ProfilerStep#n ranges,
// allocations [memory] instants with the running total, GPU work rows of its device and stream.
trace::Trace to_trace(const Recording& recording, const ExportOptions& options = {});

// The operators' inputs as Kineto writes them: `"Input Dims": [[8, 16]], "Input Strides": …, "Input type":
// …`.
std::string kineto_input_args(const std::vector<RecordedInput>& inputs);

}  // namespace attnscope::profiler
