#include "attention/cost.h"

#include <algorithm>

namespace attnscope {
namespace {

// Distinct elements: a dimension of stride 0 is one element wide.
double distinct_bytes(const TensorView& v) {
  double bytes = static_cast<double>(dtype_size(v.dtype));
  for (int d = 0; d < v.rank; ++d)
    if (v.stride(d) != 0 || v.size(d) == 0) bytes *= static_cast<double>(v.size(d));
  return bytes;
}

// K or V: of a paged cache, the pages that the block table can name, but no more than there are.
double cache_bytes(const Request& r, const TensorView& cache) {
  const double all = distinct_bytes(cache);
  if (!r.paging.active()) return all;
  const double named = static_cast<double>(r.batch()) * static_cast<double>(r.kv_len()) *
                       static_cast<double>(cache.size(1)) * static_cast<double>(cache.size(3)) *
                       static_cast<double>(dtype_size(cache.dtype));
  return std::min(all, named);
}

// Σ over i in [0, rows) of i + first, held to [0, keys].
double sum_of_ends(int64_t first, int64_t rows, int64_t keys) {
  const int64_t rising = std::clamp<int64_t>(-first, 0, rows), flat = std::clamp(keys - first, rising, rows);
  const double mean = (static_cast<double>(rising + first) + static_cast<double>(flat - 1 + first)) / 2;
  const double rise = flat > rising ? static_cast<double>(flat - rising) * mean : 0.0;
  return rise + static_cast<double>(rows - flat) * static_cast<double>(keys);
}

}  // namespace

double kept_of(const Request& r, int64_t rows, int64_t keys) {
  const int64_t shift = r.causal == CausalMode::kLowerRight ? keys - rows : 0;
  // A side beyond all rows and keys is none: it may be as large as int64 allows.
  const int64_t most = rows + keys;
  const int64_t left = r.window.left >= 0 ? std::min(r.window.left, most) : most;
  int64_t right = r.window.right >= 0 ? std::min(r.window.right, most) : most;
  if (r.causal != CausalMode::kNone) right = 0;
  return sum_of_ends(shift + right + 1, rows, keys) - sum_of_ends(shift - left, rows, keys);
}

double kept_scores(const Request& r) {
  const bool exact = !r.lengths.has_kv_lengths() && !r.lengths.packed();
  const double per_head = exact ? kept_of(r, r.q_len(), r.kv_len())
                                : static_cast<double>(r.q_len()) * static_cast<double>(r.kv_len());
  return per_head * static_cast<double>(r.batch()) * static_cast<double>(r.heads());
}

CostModel base_cost(const Request& r) {
  CostModel cost;
  cost.flops = 2.0 * kept_scores(r) * static_cast<double>(r.head_dim() + r.value_dim());
  cost.min_bytes = distinct_bytes(r.q) + cache_bytes(r, r.k) + cache_bytes(r, r.v);
  if (r.mask_kind != MaskKind::kNone) cost.min_bytes += distinct_bytes(r.mask);
  const double rows =
      static_cast<double>(r.batch()) * static_cast<double>(r.heads()) * static_cast<double>(r.q_len());
  cost.min_bytes += rows * static_cast<double>(r.value_dim()) * static_cast<double>(dtype_size(r.q.dtype));
  if (r.wants.lse) cost.min_bytes += rows * 4;
  return cost;
}

}  // namespace attnscope
