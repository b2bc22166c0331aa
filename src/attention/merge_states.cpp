#include "attention/validate.h"
#include "attnscope/attention.h"
#include "base/event_sink.h"
#include "tensor/convert.h"
#include "tensor/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnscope {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

bool same_sizes(const TensorView& a, const TensorView& b) {
  return a.rank == b.rank && a.dtype == b.dtype && a.device == b.device &&
         std::equal(a.sizes.begin(), a.sizes.begin() + a.rank, b.sizes.begin());
}

Status check(const std::vector<Outputs>& parts, const Outputs& merged) {
  if (parts.empty()) return fail(ErrorCode::kInvalidArgument, "merge_states needs at least one part");
  const TensorView& out = merged.out;
  const TensorView& lse = merged.lse;
  if (!out.device.is_cpu()) return fail(ErrorCode::kUnavailable, "merge_states runs on host tensors");
  if (out.rank != 4 || !dtype_is_float(out.dtype) || lse.rank != 3 || lse.dtype != DType::kF32 ||
      out.size(0) != lse.size(0) || out.size(1) != lse.size(1) || out.size(2) != lse.size(2))
    return fail(ErrorCode::kInvalidArgument, "merge_states needs out [B,H,L,Ev] and lse f32 [B,H,L]");
  const auto missing = [](const TensorView& v) { return v.numel() > 0 && v.data == nullptr; };
  for (size_t p = 0; p < parts.size(); ++p) {
    if (!same_sizes(parts[p].out, out) || !same_sizes(parts[p].lse, lse))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("part {} differs from the result in sizes, dtype or device", p));
    if (missing(parts[p].out) || missing(parts[p].lse))
      return fail(ErrorCode::kInvalidArgument, fmt::format("part {} has no data", p));
  }
  if (missing(out)) return fail(ErrorCode::kInvalidArgument, "out has no data");
  if (missing(lse)) return fail(ErrorCode::kInvalidArgument, "lse has no data");
  for (const auto& [name, v] : {std::pair{"out", &out}, std::pair{"lse", &lse}})
    for (int d = 0; d < v->rank; ++d)
      if (v->numel() > 0 && v->size(d) > 1 && v->stride(d) == 0)
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} has stride 0 in dimension {}: its elements would overlap", name, d));
  return {};
}

// Weights of the parts for one row and the merged LSE. An empty part (−inf) weighs exactly 0 and its content
// is not read: it may be uninitialised.
double merge_weights(const std::vector<Outputs>& parts, int64_t b, int64_t h, int64_t i,
                     std::vector<double>& weight) {
  double max = -kInf;
  bool nan = false;
  for (size_t p = 0; p < parts.size(); ++p) {
    weight[p] = read_element(parts[p].lse, b, h, i);
    nan = nan || std::isnan(weight[p]);
    max = std::max(max, weight[p]);
  }
  if (nan) {
    std::fill(weight.begin(), weight.end(), std::nan(""));
    return std::nan("");
  }
  if (max == -kInf) {
    std::fill(weight.begin(), weight.end(), 0.0);
    return -kInf;
  }
  double sum = 0.0;
  for (double& w : weight) sum += w = std::exp(w - max);
  for (double& w : weight) w /= sum;
  return max + std::log(sum);
}

}  // namespace

Status merge_states(const std::vector<Outputs>& parts, const Outputs& merged) {
  ATTNSCOPE_TRY(check(parts, merged));
  const TensorView& out = merged.out;
  const int64_t heads = out.size(1), len = out.size(2), width = out.size(3);
  const int64_t rows = out.size(0) * heads * len;
  const int64_t out_bytes = out.numel() * static_cast<int64_t>(dtype_size(out.dtype)) + rows * 4;
  const EventScope op("attnscope::merge_states", EventKind::kOperator);
  const EventScope kernel("attnscope::merge_states", EventKind::kKernel,
                          out_bytes * static_cast<int64_t>(parts.size()), out_bytes);
#if !defined(__SANITIZE_THREAD__)  // it does not see how GCC's OpenMP runtime synchronises
#pragma omp parallel if (rows * width > 16384)
#endif
  {
    std::vector<double> weight(parts.size());
    std::vector<double> sum(static_cast<size_t>(width));
#pragma omp for schedule(static)
    for (int64_t n = 0; n < rows; ++n) {
      const int64_t b = n / len / heads, h = n / len % heads, i = n % len;
      const double lse = merge_weights(parts, b, h, i, weight);
      std::fill(sum.begin(), sum.end(), std::isnan(lse) ? lse : 0.0);
      for (size_t p = 0; p < parts.size(); ++p) {
        if (weight[p] == 0.0 || std::isnan(lse)) continue;
        const TensorView& part = parts[p].out;
        const int64_t from = element_offset(part, b, h, i);
        for (int64_t e = 0; e < width; ++e)
          sum[static_cast<size_t>(e)] +=
              weight[p] * load_f64(part.data, part.dtype, from + e * part.stride(3));
      }
      const int64_t to = element_offset(out, b, h, i);
      for (int64_t e = 0; e < width; ++e)
        store_f64(out.data, out.dtype, to + e * out.stride(3), sum[static_cast<size_t>(e)]);
      write_element(merged.lse, lse, b, h, i);
    }
  }
  return {};
}

}  // namespace attnscope
