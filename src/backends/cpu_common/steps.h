#pragma once
// The elementwise and row-wise steps of the unfused backends, each one parallel loop nest over rows. T is the
// type computed in; tensors are widened row by row in cache-sized pieces, never as a whole.

#include "attention/geometry.h"
#include "attnscope/tensor_view.h"

#include <cstdint>

namespace attnscope::cpu {

// dst = src · factor (factor 1: a cast), any strides and dtypes.
template <typename T>
void scale_step(const TensorView& src, T factor, const TensorView& dst, int threads);
void copy_step(const TensorView& src, const TensorView& dst, int threads);

// scores = −inf outside the interval of keys each row sees and where a bool mask is false. In place.
template <typename T>
void mask_step(const TensorView& scores, const Geometry& geometry, const MaskAccess* keep, int threads);
// dst = src + bias; a bias of −inf selects −inf. bias broadcasts over [B, H, L, S].
template <typename T>
void bias_step(const TensorView& src, const MaskAccess& bias, const TensorView& dst, int threads);
template <typename T>
void softcap_step(const TensorView& scores, T cap, int threads);

// dst = softmax of each row of src: exp(x − max)/Σ, NaN in a row without any finite score. lse (may be null
// data): [B, H, L], −inf for a row of −inf only. rows: space for a row of T a thread, not needed when dst
// holds T.
template <typename T>
void softmax_step(const TensorView& src, const TensorView& dst, const TensorView& lse, T* rows, int threads);
template <typename T>
void dropout_step(const TensorView& weights, double p, uint64_t seed, uint64_t offset, int threads);

// out when every weight was dropped: 0, but NaN in a row whose weights are.
template <typename T>
void drop_all_step(const TensorView& weights, const TensorView& out, int threads);

// Steps of the safe softmax.
template <typename T>
void is_neg_inf_step(const TensorView& scores, const TensorView& flags, int threads);
void all_step(const TensorView& flags, const TensorView& row_flags, int threads);
// weights = 0 in the rows flagged.
void zero_rows_step(const TensorView& row_flags, double zero, const TensorView& weights, int threads);

// Building a mask. keep is bool, dense, [B or 1, H or 1, L, S].
void ones_step(const TensorView& keep, int threads);
void interval_step(const Geometry& geometry, const TensorView& keep, int threads);
void and_step(const MaskAccess& mask, const TensorView& keep, int threads);
// bias = keep ? zero : neg_inf.
template <typename T>
void where_step(const MaskAccess& keep, T neg_inf, T zero, const TensorView& bias, int threads);

// Of the product with the values where keys are masked.
inline constexpr const char* kSelectingProduct =
    "weights·v; v is read once more ahead of it: where it is not finite, only the keys that are seen count";

// Is every element of v finite? [B, H, N, D], any strides.
template <typename T>
bool finite_step(const TensorView& v, int threads);
// out = weights · v over the keys whose score is not −inf only: what a masked value holds never matters.
template <typename T>
void select_matmul_step(const TensorView& weights, const TensorView& scores, const TensorView& v,
                        const TensorView& out, int threads);

}  // namespace attnscope::cpu
