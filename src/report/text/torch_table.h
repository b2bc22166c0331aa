#pragma once
// The layout of torch.profiler's table, and ours of outermost calls.

#include "analysis/metrics.h"
#include "analysis/table.h"

#include <cstddef>
#include <string>

namespace attnscope::report {

struct TorchTableOptions {
  size_t row_limit = 100;
  size_t name_width = 55;    // longer names are cut, as torch does
  size_t shapes_width = 80;  // the same for the input shapes
};

// As torch prints it, trailing spaces included; names are made safe for a terminal.
std::string torch_table(const Table& table, const TorchTableOptions& options);

// One row per range and operator: outermost calls, host time, and what was launched inside them.
struct OutermostOptions {
  size_t row_limit = 100;
  size_t width = 100;
};
std::string outermost_table(const Metrics& metrics, TableSort sort, const OutermostOptions& options);
// The rows of that table: operators, ranges and spans, sorted.
std::vector<const RangeStats*> outermost_rows(const Metrics& metrics, TableSort sort);

}  // namespace attnscope::report
