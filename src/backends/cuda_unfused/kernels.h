#pragma once
// The kernels of the unfused CUDA variants, one per step of the formula, as host calls. All are bound by
// memory: 16-byte accesses, several loads in flight per thread.
//
// Scores are rows of `ld` elements, ld = S rounded up to 16, so that every row starts at a 16-byte boundary
// whatever its type; columns S … ld−1 hold anything and are never read into a result. Rows are [B, Hq, L] in
// that order.

#include "attnscope/tensor_view.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace attnscope::cuda_unfused {

constexpr int64_t kRowPad = 16;
constexpr int64_t padded(int64_t columns) {
  return (columns + kRowPad - 1) / kRowPad * kRowPad;
}

// Which keys a row sees, from causal mode, window and lengths: one interval per row. Lengths lie on the
// device.
struct KeyGeometry {
  int causal = 0;  // 0 none, 1 top-left, 2 lower-right
  int64_t left = -1, right = -1;
  int64_t q_len = 0, kv_len = 0;
  const void* kv_lengths = nullptr;  // [B] or null
  const void* cu_q = nullptr;        // [sequences + 1] or null
  const void* cu_k = nullptr;
  int64_t kv_stride = 1, cu_q_stride = 1, cu_k_stride = 1;
  int64_t sequences = 0;
  bool wide_lengths = false;  // i64, else i32
  bool wide_q = false, wide_k = false;
  bool restricts() const { return causal != 0 || left >= 0 || right >= 0 || kv_lengths || cu_q; }
};

struct ScoreShape {
  int64_t batch = 0, heads = 0, q_len = 0, kv_len = 0, ld = 0;
  constexpr int64_t rows() const { return batch * heads * q_len; }
};

// [B, Hq, L, S] strides, 0 where it broadcasts.
struct BroadcastMask {
  const void* data = nullptr;
  DType dtype = DType::kBool;
  int64_t stride_b = 0, stride_h = 0, stride_i = 0, stride_j = 0;
};

// Converts, copies and scales: to[b,h,l,e] = T(factor · from[b,h,l,e]) for 4-D views of equal sizes.
// Rows at and past kv_lengths[b] are written 0 (kv_lengths null: none).
// nonfinite_flag: set to 1 when a value is not finite, and 0 is written in its place.
// reset_flag: that word is set to 0 first (by the kernel that runs before the one that sets it).
struct ConvertExtras {
  float factor = 1.0f;
  const void* kv_lengths = nullptr;
  int64_t kv_stride = 1;
  bool wide_lengths = false;
  int* nonfinite_flag = nullptr;
  int* reset_flag = nullptr;
};
cudaError_t convert(const TensorView& from, const TensorView& to, const ConvertExtras& extras,
                    cudaStream_t stream);

// The last step of `math`: f32 result [B, Hq, L, Ev] dense → out. When *flag is set, values that were
// replaced by 0 are put back where a row sees their key: out += weight · v over the non-finite v of the row's
// kept keys.
struct NonFiniteFix {
  const int* flag = nullptr;
  const float* weights = nullptr;    // [rows, ld]
  const uint8_t* removed = nullptr;  // [rows, ld], 1 = the score was −inf
  TensorView v;                      // original values
  ScoreShape shape;
};
cudaError_t convert_out(const TensorView& from, const TensorView& to, const NonFiniteFix& fix,
                        cudaStream_t stream);

// x[i] = factor · x[i] (to another buffer or in place); n elements of dtype, 16-byte aligned, n a multiple
// of 8.
cudaError_t scale(const void* from, void* to, DType dtype, int64_t n, float factor, cudaStream_t stream);
// x = cap · tanh(x / cap) in place.
cudaError_t softcap(void* x, DType dtype, int64_t n, float cap, cudaStream_t stream);
// Scores become −inf where the row does not see the key, or where `keep` is false. Kept scores are not
// touched (and not read, unless they share 16 bytes with a removed one).
cudaError_t masked_fill(void* scores, DType dtype, const ScoreShape& shape, const KeyGeometry& geometry,
                        const BroadcastMask& keep, cudaStream_t stream);
// scores += bias in place; a bias of −inf removes the score whatever it was (NaN included).
cudaError_t add_bias(void* scores, DType dtype, const ScoreShape& shape, const BroadcastMask& bias,
                     cudaStream_t stream);

// Mask building of `math`.
cudaError_t fill_bytes(uint8_t* to, int64_t n, uint8_t value, cudaStream_t stream);  // n a multiple of 16
// mask[b,i,j] &= row i of batch b sees key j; [batches, L, ld].
cudaError_t band(uint8_t* mask, int64_t batches, int64_t q_len, int64_t ld, const KeyGeometry& geometry,
                 cudaStream_t stream);
cudaError_t fill_scalar(float* to, float value, cudaStream_t stream);
// bias[i] = mask[i] ? *zero : *minus_inf; n a multiple of 16.
cudaError_t where_bias(const uint8_t* mask, float* bias, int64_t n, const float* zero, const float* minus_inf,
                       cudaStream_t stream);
// The same from a strided bool mask of sizes [b, h, l, s] to dense rows of ld.
cudaError_t where_bias_strided(const BroadcastMask& mask, float* bias, int64_t b, int64_t h, int64_t l,
                               int64_t s, int64_t ld, const float* zero, const float* minus_inf,
                               cudaStream_t stream);

// Softmax along rows, from → to (may be the same). A row of −inf gives NaN, as the plain formula does.
// sinks: one more logit per head (device, f32/f16/bf16); lse: f32 with strides [b, h, i], natural log.
struct SoftmaxExtras {
  const void* sinks = nullptr;
  DType sinks_dtype = DType::kF32;
  int64_t sinks_stride = 1;
  float* lse = nullptr;
  int64_t lse_stride_b = 0, lse_stride_h = 0, lse_stride_i = 0;
};
cudaError_t softmax(const void* from, void* to, DType dtype, const ScoreShape& shape,
                    const SoftmaxExtras& extras, cudaStream_t stream);

// Safe softmax of `math`.
cudaError_t is_minus_inf(const float* scores, uint8_t* removed, int64_t n, cudaStream_t stream);
cudaError_t all_in_row(const uint8_t* removed, uint8_t* row_empty, const ScoreShape& shape,
                       cudaStream_t stream);
// to = row_empty ? *zero : from
cudaError_t where_rows(const uint8_t* row_empty, const float* from, float* to, const ScoreShape& shape,
                       const float* zero, cudaStream_t stream);
cudaError_t cast_rows(const float* from, void* to, DType dtype, int64_t n, cudaStream_t stream);

// Weights that dropout removes become 0, the others are scaled by 1/(1−p); in place. seed_offset: two words
// on the device that replace seed and offset, or null.
struct DropoutParams {
  double p = 0;
  uint64_t seed = 0, offset = 0;
  const uint64_t* seed_offset = nullptr;
};
cudaError_t dropout(void* weights, DType dtype, const ScoreShape& shape, const DropoutParams& params,
                    cudaStream_t stream);

}  // namespace attnscope::cuda_unfused
