#include "tensor/tolerance.h"

#include "tensor/tensor.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace attnscope {

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 0x1p-53;
    case DType::kF16: return 0x1p-11;
    case DType::kBF16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

namespace {

// Largest row norm and largest finite magnitude of a tensor.
double max_row_norm(const TensorView& v) {
  double best = 0;
  for (int64_t a = 0; a < v.size(0); ++a)
    for (int64_t b = 0; b < v.size(1); ++b)
      for (int64_t c = 0; c < v.size(2); ++c) {
        double sum = 0;
        for (int64_t d = 0; d < v.size(3); ++d) {
          const double x = read_element(v, a, b, c, d);
          if (std::isfinite(x)) sum += x * x;
        }
        best = std::max(best, std::sqrt(sum));
      }
  return best;
}

double max_magnitude(const TensorView& v) {
  double best = 0;
  std::array<int64_t, 4> n{1, 1, 1, 1};
  for (int d = 0; d < v.rank; ++d) n[static_cast<size_t>(d)] = v.size(d);
  for (int64_t a = 0; a < n[0]; ++a)
    for (int64_t b = 0; b < n[1]; ++b)
      for (int64_t c = 0; c < n[2]; ++c)
        for (int64_t d = 0; d < n[3]; ++d) {
          const double x = std::fabs(read_element(v, a, b, c, d));
          if (std::isfinite(x)) best = std::max(best, x);
        }
  return best;
}

}  // namespace

Tolerance tolerance_for(const Request& r, bool scores_rounded) {
  const double compute = unit_roundoff(r.q.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  const double stored = unit_roundoff(r.q.dtype);
  const double k_norm =
      std::max(max_row_norm(r.k), r.paging.append_k.data != nullptr ? max_row_norm(r.paging.append_k) : 0.0);
  const double score = std::fabs(r.effective_scale()) * max_row_norm(r.q) * k_norm;
  double bias = r.mask_kind == MaskKind::kBias ? max_magnitude(r.mask) : 0.0;
  if (bias > 1e6) bias = 0;  // finite minimum: it swamps the score exactly
  const double v_max =
      std::max(
          {max_magnitude(r.v), r.paging.append_v.data != nullptr ? max_magnitude(r.paging.append_v) : 0.0}) /
      (r.dropout.p > 0 && r.dropout.p < 1 ? 1.0 - r.dropout.p : 1.0);
  const double depth = std::sqrt(static_cast<double>(std::max<int64_t>(r.head_dim(), 1)));
  double score_error = compute * (4 * depth + 8) * (score + bias) + 4 * compute;
  if (scores_rounded) score_error += 3 * stored * (score + bias);
  score_error = std::min(score_error, 0.5);
  const double keys = std::sqrt(static_cast<double>(std::max<int64_t>(r.kv_len(), 1)));
  Tolerance t;
  t.out = v_max * (2 * score_error + compute * (2 * keys + 16)) + 3 * stored * v_max;
  t.lse = score_error + unit_roundoff(DType::kF32) * (score + bias + 16 + keys) * 2;
  return t;
}

}  // namespace attnscope
