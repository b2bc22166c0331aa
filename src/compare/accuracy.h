#pragma once
// The error of an output against float64.

#include "compare/problem.h"

#include "tensor/reference.h"

#include <cstdint>
#include <string>
#include <vector>

namespace attnscope::compare {

// What counts as right for a dtype: a few roundings of the type itself, more where the scale stretches the
// scores. rel_l2 = |out − ref|₂ / |ref|₂; max_abs is relative to the largest |ref|, at least 1.
struct Tolerance {
  double max_abs = 0;
  double rel_l2 = 0;
};

struct Accuracy {
  double max_abs = 0;
  double rel_l2 = 0;
  int64_t rows_checked = 0;
  int64_t rows_total = 0;
  int64_t empty_rows = 0;      // of those checked: every key masked
  int64_t nan_rows = 0;        // NaN or infinity where the reference is finite and the row not empty
  int64_t empty_nan_rows = 0;  // NaN in an empty row: the formula's own answer, 0 in every other variant
  Tolerance tolerance;
  bool within() const { return nan_rows == 0 && max_abs <= tolerance.max_abs && rel_l2 <= tolerance.rel_l2; }
};

inline constexpr double kFullCheckFlops = 5e9;  // about two seconds on two cores

// Expected rows, computed once for all variants: all of them when that costs little, else spread evenly
// with the first and the last among them.
class Oracle {
 public:
  // max_flops bounds what the expected rows may cost, down to 256 rows.
  Oracle(const Problem& problem, const Request& host_request, int threads,
         double max_flops = kFullCheckFlops);
  Accuracy check(const TensorView& out) const;  // host
  int64_t rows_checked() const { return static_cast<int64_t>(rows_.size()); }
  int64_t rows_total() const { return total_; }

 private:
  struct Row {
    int64_t b = 0, h = 0, i = 0;
    ReferenceRow expected;
  };
  Problem problem_;
  int64_t total_ = 0;
  double largest_ = 0;
  std::vector<Row> rows_;
};

}  // namespace attnscope::compare
