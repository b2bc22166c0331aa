#pragma once
// Cuts one call into tasks: blocks of query rows of one head group, and parts of their keys when there are
// too few blocks to keep the threads busy.

#include "attnscope/attention.h"
#include "backends/cpu_fused/problem.h"

#include <vector>

namespace attnscope::cpu_fused {

enum class Style : uint8_t {
  kTuned,   // blocks sized to the caches, shared panels, streaming for few rows, split keys
  kSimple,  // small fixed blocks, products in f32, keys never split unless asked
};

// Decided when the plan is made: from shapes and the machine, never from data.
struct Tiling {
  int threads = 1;
  int row_tile = 1;  // of the kernels
  int rows_per_task = 0;
  int keys_per_block = 0;
  int splits = 1;
};

// Query heads that share one K head and one V head.
int64_t head_group(const Request& request);
// Few rows per head group, and rows of K and V whose elements lie next to each other: no panels are packed.
bool should_stream(const Request& request, Style style);
Tiling choose_tiling(const Request& request, Style style, const KernelSet& kernels, int threads);

struct Schedule {
  std::vector<Unit> units;
  std::vector<Task> tasks;  // in the order to start them; the parts of a split row block are neighbours
};
// Reads the lengths. Partial pointers of split tasks are laid out from `partials` on.
Schedule make_schedule(const Request& request, const Problem& problem, const Tiling& tiling, int value_align,
                       float* partials);
// Bytes of partial states that any data of this shape can need.
size_t partial_bytes(const Request& request, const Tiling& tiling, int value_align);

// Work of the tasks as they run: whole register tiles against the keys their rows see.
struct Work {
  double flops = 0;
  double bytes_read = 0;
  double bytes_written = 0;
};
Work work_of(const Request& request, const Problem& problem, const Schedule& schedule, int row_tile);

}  // namespace attnscope::cpu_fused
