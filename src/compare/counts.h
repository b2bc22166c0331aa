#pragma once
// What a recording of repeated calls says about one call: how many kernels, copies and fills, in which
// order, what they moved, and what was needed in between.

#include "compare/statistics.h"

#include "attnscope/profiler.h"

#include <cstdint>
#include <string>
#include <vector>

namespace attnscope::compare {

// One kernel, copy or fill of a call, in order of execution.
struct WorkRow {
  std::string name;
  std::string op;  // the innermost operator around it, or around its launch
  profiler::RecordKind kind = profiler::RecordKind::kKernel;
  double time_us = 0;  // mean over the calls
  int64_t bytes_read = -1, bytes_written = -1, flops = -1;
  std::vector<profiler::RecordedInput> inputs;  // of the operator, when shapes were recorded
  std::string what;  // decoded from the name: "gemm", "softmax", "fused" …; empty: not decoded yet
  // GPU kernels only.
  std::array<int, 3> grid{}, block{}, cluster{1, 1, 1};
  int registers = -1;
  int64_t shared_bytes = -1;
  double occupancy_percent = -1;  // theoretical, ours
  std::string occupancy_limiter;
};

struct CallCounts {
  int calls = 0;
  bool steady = true;  // every call ran the same sequence; if not, the figures are the first call's
  int kernels = 0, copies = 0, fills = 0;
  double bytes_moved = -1;        // read and written by all rows; −1 when a row does not say
  double copied_bytes = 0;        // by copies alone
  double intermediate_bytes = 0;  // largest sum of allocations alive at once, beyond inputs and outputs
  Distribution work_us;           // sum over the rows, per call
  Distribution host_us;           // CPU: the call's time outside its rows; GPU: until the call returned
  std::vector<WorkRow> rows;      // of one call
};

// The recording's steps are the calls. With GPU activity only device work counts as rows: what the host
// reports of a launch is not the kernel.
CallCounts count_calls(const profiler::Recording& recording);

}  // namespace attnscope::compare
