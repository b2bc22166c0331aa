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

}  // namespace

double kept_scores(const Request& r) {
  const int64_t rows = r.q_len(), keys = r.kv_len();
  const bool exact = !r.lengths.has_kv_lengths() && !r.lengths.packed();
  double per_head = static_cast<double>(rows) * static_cast<double>(keys);
  if (exact && (r.causal != CausalMode::kNone || r.window.active())) {
    const int64_t shift = r.causal == CausalMode::kLowerRight ? keys - rows : 0;
    per_head = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t diagonal = i + shift;
      // A window side may be as large as int64 allows: never add it to the diagonal.
      const int64_t begin = r.window.left >= 0 && diagonal > r.window.left ? diagonal - r.window.left : 0;
      int64_t end = keys;
      if (r.window.right >= 0 && r.window.right < keys - 1 - diagonal) end = diagonal + r.window.right + 1;
      if (r.causal != CausalMode::kNone) end = std::min(end, diagonal + 1);
      per_head += static_cast<double>(std::max<int64_t>(end - begin, 0));
    }
  }
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
