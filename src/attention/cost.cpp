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
  cost.min_bytes = distinct_bytes(r.q) + distinct_bytes(r.k) + distinct_bytes(r.v);
  if (r.mask_kind != MaskKind::kNone) cost.min_bytes += distinct_bytes(r.mask);
  const double rows =
      static_cast<double>(r.batch()) * static_cast<double>(r.heads()) * static_cast<double>(r.q_len());
  cost.min_bytes += rows * static_cast<double>(r.value_dim()) * static_cast<double>(dtype_size(r.q.dtype));
  if (r.wants.lse) cost.min_bytes += rows * 4;
  return cost;
}

}  // namespace attnscope
