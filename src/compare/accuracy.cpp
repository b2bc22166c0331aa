#include "compare/accuracy.h"

#include "backends/cpu_common/threads.h"

#include <algorithm>
#include <cmath>

namespace attnscope::compare {
namespace {

constexpr int64_t kLeastRows = 256;

// Relative error of one rounding.
double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 0x1p-53;
    case DType::kF16: return 0x1p-11;
    case DType::kBF16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

Tolerance tolerance_of(const Problem& p, double largest) {
  const double root = std::sqrt(static_cast<double>(std::max<int64_t>(p.head_dim, 1)));
  const double stretch = p.scale ? std::max(1.0, std::fabs(*p.scale) * root) : 1.0;
  const double u = unit_roundoff(p.dtype) * stretch;
  // f32 and f64 accumulate in their own precision, over head_dim and the keys; 16-bit types in f32.
  const double growth = dtype_is_half(p.dtype) ? 1.0 : 8.0;
  return {16 * growth * u * std::max(1.0, largest), 4 * growth * u};
}

}  // namespace

Oracle::Oracle(const Problem& problem, const Request& host_request, int threads, double max_flops)
    : problem_(problem) {
  total_ = problem.batch * problem.heads * problem.q_len;
  const double row_flops =
      2.0 * static_cast<double>(problem.kv_len) * static_cast<double>(problem.head_dim + problem.value_dim);
  const auto affordable = static_cast<int64_t>(std::min(max_flops / std::max(row_flops, 1.0), 1e15));
  const int64_t count = std::min(total_, std::max(affordable, kLeastRows));
  rows_.resize(static_cast<size_t>(count));
  const Reference reference(host_request);
  const int64_t rows_per_batch = problem.heads * problem.q_len;
  cpu::parallel_tasks(threads, count, [&](int64_t n, int) {
    // The n-th of `count` points of [0, total): first and last included.
    const int64_t at = count == 1
                           ? 0
                           : static_cast<int64_t>(static_cast<double>(n) * static_cast<double>(total_ - 1) /
                                                  static_cast<double>(count - 1));
    Row& row = rows_[static_cast<size_t>(n)];
    row.b = at / rows_per_batch;
    row.h = at % rows_per_batch / problem.q_len;
    row.i = at % problem.q_len;
    reference.row(row.b, row.h, row.i, row.expected);
  });
  for (const Row& row : rows_)
    for (const double v : row.expected.out)
      if (std::isfinite(v)) largest_ = std::max(largest_, std::fabs(v));
}

Accuracy Oracle::check(const TensorView& out) const {
  Accuracy result;
  result.rows_checked = rows_checked();
  result.rows_total = total_;
  result.tolerance = tolerance_of(problem_, largest_);
  double squares = 0, differences = 0;
  for (const Row& row : rows_) {
    const bool empty = std::isinf(row.expected.lse) && row.expected.lse < 0;
    result.empty_rows += empty ? 1 : 0;
    bool bad = false;
    for (size_t d = 0; d < row.expected.out.size(); ++d) {
      const double expected = row.expected.out[d];
      const double got = read_element(out, row.b, row.h, row.i, static_cast<int64_t>(d));
      if (!std::isfinite(expected)) continue;
      if (!std::isfinite(got)) {
        bad = true;
        continue;
      }
      result.max_abs = std::max(result.max_abs, std::fabs(got - expected));
      differences += (got - expected) * (got - expected);
      squares += expected * expected;
    }
    if (bad) ++(empty ? result.empty_nan_rows : result.nan_rows);
  }
  result.rel_l2 = squares > 0 ? std::sqrt(differences / squares) : std::sqrt(differences);
  return result;
}

}  // namespace attnscope::compare
