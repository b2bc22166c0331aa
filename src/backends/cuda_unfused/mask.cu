// Masking: fill in place, add a bias, and the mask building of `math`.
#include "backends/cuda_unfused/device.cuh"

#include <math_constants.h>

#include <algorithm>

namespace attnscope::cuda_unfused {
namespace {

struct RowIndex {
  int64_t b, h, i;
};
__device__ __forceinline__ RowIndex split_row(int64_t row, const ScoreShape& s) {
  const int64_t rest = row / s.q_len;
  return {rest / s.heads, rest % s.heads, row % s.q_len};
}

// row and first column of vector `item`; 32-bit division where it suffices (it is several times cheaper).
template <bool kNarrow>
__device__ __forceinline__ void split_item(int64_t item, int64_t per_row, int64_t& row, int64_t& at) {
  if constexpr (kNarrow) {
    const auto q = static_cast<unsigned>(item) / static_cast<unsigned>(per_row);
    row = q;
    at = static_cast<unsigned>(item) - q * static_cast<unsigned>(per_row);
  } else {
    row = item / per_row;
    at = item - row * per_row;
  }
}

// A warp per row, whose interval is found once; only vectors that hold a removed score are touched.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    masked_fill_kernel(T* scores, ScoreShape shape, KeyGeometry geometry, BroadcastMask keep) {
  constexpr int kN = kVector<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= shape.rows()) return;
  const int lane = threadIdx.x % 32;
  const RowIndex index = split_row(row, shape);
  const Interval seen = visible(geometry, index.b, index.i);
  const auto begin = static_cast<int>(seen.begin), end = static_cast<int>(seen.end);
  const int vectors = static_cast<int>(shape.ld / kN);
  const T minus_inf = from_float<T>(-CUDART_INF_F);
  T* scores_of_row = scores + row * shape.ld;
  Pack<T, kN> all_removed;
#pragma unroll
  for (int k = 0; k < kN; ++k) all_removed.values[k] = minus_inf;
  const uint8_t* mask = keep.data ? static_cast<const uint8_t*>(keep.data) + index.b * keep.stride_b +
                                        index.h * keep.stride_h + index.i * keep.stride_i
                                  : nullptr;
  for (int v = lane; v < vectors; v += 32) {
    const int column = v * kN;
    T* target = scores_of_row + column;
    if (column + kN <= begin || column >= end) {
      all_removed.store(target);
      continue;
    }
    unsigned removed = 0;
    if (column < begin || column + kN > end)
      for (int k = 0; k < kN; ++k)
        if (column + k < begin || column + k >= end) removed |= 1u << k;
    if (mask)
      for (int k = 0; k < kN; ++k)
        if (column + k < shape.kv_len && !mask[(column + k) * keep.stride_j]) removed |= 1u << k;
    if (removed == 0) continue;
    Pack<T, kN> values;
    values.load(target);
#pragma unroll
    for (int k = 0; k < kN; ++k)
      if (removed >> k & 1) values.values[k] = minus_inf;
    values.store(target);
  }
}

__device__ __forceinline__ float bias_at(const BroadcastMask& bias, int64_t offset) {
  switch (bias.dtype) {
    case DType::kF32: return static_cast<const float*>(bias.data)[offset];
    case DType::kF16: return to_float(static_cast<const __half*>(bias.data)[offset]);
    case DType::kBF16: return to_float(static_cast<const __nv_bfloat16*>(bias.data)[offset]);
    case DType::kF64: return static_cast<float>(static_cast<const double*>(bias.data)[offset]);
    default: return 0.0f;
  }
}

__device__ __forceinline__ float biased(float score, float bias) {
  return bias == -CUDART_INF_F ? bias : score + bias;
}

// A dense f32 bias whose rows are as wide as the scores': 16-byte loads on both sides.
template <bool kNarrow>
__global__ void __launch_bounds__(kThreads)
    add_bias_f32(float* scores, ScoreShape shape, BroadcastMask bias) {
  constexpr int kN = 4;
  const int64_t per_row = shape.ld / kN;
  const int64_t items = shape.rows() * per_row;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
  Pack<float, kN> score[kUnroll];
  float4 add[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t item = first + u * kThreads;
    if (item >= items) break;
    score[u].load(scores + item * kN);
    int64_t row, at;
    split_item<kNarrow>(item, per_row, row, at);
    const RowIndex index = split_row(row, shape);
    const float* from = static_cast<const float*>(bias.data) + index.b * bias.stride_b +
                        index.h * bias.stride_h + index.i * bias.stride_i + at * kN;
    add[u] = *reinterpret_cast<const float4*>(from);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t item = first + u * kThreads;
    if (item >= items) return;
    score[u].values[0] = biased(score[u].values[0], add[u].x);
    score[u].values[1] = biased(score[u].values[1], add[u].y);
    score[u].values[2] = biased(score[u].values[2], add[u].z);
    score[u].values[3] = biased(score[u].values[3], add[u].w);
    score[u].store(scores + item * kN);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) add_bias_any(T* scores, ScoreShape shape, BroadcastMask bias) {
  constexpr int kN = kVector<T>;
  const int64_t per_row = shape.ld / kN;
  const int64_t items = shape.rows() * per_row;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t item = first + u * kThreads;
    if (item >= items) return;
    Pack<T, kN> score;
    score.load(scores + item * kN);
    const int64_t row = item / per_row, column = (item - row * per_row) * kN;
    const RowIndex index = split_row(row, shape);
    const int64_t base = index.b * bias.stride_b + index.h * bias.stride_h + index.i * bias.stride_i;
#pragma unroll
    for (int k = 0; k < kN; ++k)
      if (column + k < shape.kv_len)
        score.values[k] = from_float<T>(
            biased(to_float(score.values[k]), bias_at(bias, base + (column + k) * bias.stride_j)));
    score.store(scores + item * kN);
  }
}

__global__ void __launch_bounds__(kThreads) fill_kernel(uint4* to, int64_t items, uint4 value) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item < items) to[item] = value;
}

__global__ void __launch_bounds__(kThreads)
    band_kernel(uint8_t* mask, int64_t rows, int64_t q_len, int64_t ld, KeyGeometry geometry) {
  constexpr int kN = 16;
  const int64_t per_row = ld / kN;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= rows * per_row) return;
  const int64_t row = item / per_row, column = item % per_row * kN;
  const Interval seen = visible(geometry, row / q_len, row % q_len);
  Pack<uint8_t, kN> values;
  values.load(mask + item * kN);
#pragma unroll
  for (int k = 0; k < kN; ++k)
    if (column + k < seen.begin || column + k >= seen.end) values.values[k] = 0;
  values.store(mask + item * kN);
}

__global__ void fill_scalar_kernel(float* to, float value) {
  *to = value;
}

__global__ void __launch_bounds__(kThreads)
    where_kernel(const uint8_t* mask, float* bias, int64_t items, const float* zero, const float* minus_inf) {
  constexpr int kN = 16;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= items) return;
  const float kept = *zero, removed = *minus_inf;
  Pack<uint8_t, kN> in;
  in.load(mask + item * kN);
  Pack<float, kN> out;
#pragma unroll
  for (int k = 0; k < kN; ++k) out.values[k] = in.values[k] ? kept : removed;
  out.store(bias + item * kN);
}

__global__ void __launch_bounds__(kThreads)
    where_strided_kernel(BroadcastMask mask, float* bias, int64_t heads, int64_t rows, int64_t columns,
                         int64_t ld, int64_t items, const float* zero, const float* minus_inf) {
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; item < items;
       item += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t j = item % ld, rest = item / ld;
    const int64_t i = rest % rows, h = rest / rows % heads, b = rest / rows / heads;
    const int64_t offset = b * mask.stride_b + h * mask.stride_h + i * mask.stride_i + j * mask.stride_j;
    bias[item] = j >= columns || static_cast<const uint8_t*>(mask.data)[offset] ? *zero : *minus_inf;
  }
}

bool narrow(int64_t items) {
  return items < (int64_t{1} << 31);
}
unsigned blocks_of(int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t masked_fill(void* scores, DType dtype, const ScoreShape& shape, const KeyGeometry& geometry,
                        const BroadcastMask& keep, cudaStream_t stream) {
  if (shape.rows() * shape.ld == 0) return cudaSuccess;
  return dispatch_float(dtype, [&](auto tag) {
    using T = decltype(tag);
    constexpr int kRows = kThreads / 32;
    const auto blocks = static_cast<unsigned>((shape.rows() + kRows - 1) / kRows);
    masked_fill_kernel<T><<<blocks, kThreads, 0, stream>>>(static_cast<T*>(scores), shape, geometry, keep);
    return cudaGetLastError();
  });
}

cudaError_t add_bias(void* scores, DType dtype, const ScoreShape& shape, const BroadcastMask& bias,
                     cudaStream_t stream) {
  if (shape.rows() * shape.ld == 0) return cudaSuccess;
  const bool rows_match = bias.dtype == DType::kF32 && bias.stride_j == 1 && bias.stride_i % 4 == 0 &&
                          bias.stride_h % 4 == 0 && bias.stride_b % 4 == 0 &&
                          reinterpret_cast<uintptr_t>(bias.data) % 16 == 0 && shape.kv_len == shape.ld;
  // A bias that math built itself has rows of ld, whatever S is.
  const bool built = bias.dtype == DType::kF32 && bias.stride_j == 1 && bias.stride_i == shape.ld;
  if (dtype == DType::kF32 && (rows_match || built)) {
    const int64_t items = shape.rows() * (shape.ld / 4);
    if (narrow(items))
      add_bias_f32<true>
          <<<blocks_for(items), kThreads, 0, stream>>>(static_cast<float*>(scores), shape, bias);
    else
      add_bias_f32<false>
          <<<blocks_for(items), kThreads, 0, stream>>>(static_cast<float*>(scores), shape, bias);
    return cudaGetLastError();
  }
  return dispatch_float(dtype, [&](auto tag) {
    using T = decltype(tag);
    add_bias_any<T><<<blocks_for(shape.rows() * (shape.ld / kVector<T>)), kThreads, 0, stream>>>(
        static_cast<T*>(scores), shape, bias);
    return cudaGetLastError();
  });
}

cudaError_t fill_bytes(uint8_t* to, int64_t n, uint8_t value, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const unsigned word = value * 0x01010101u;
  fill_kernel<<<blocks_of(n / 16), kThreads, 0, stream>>>(reinterpret_cast<uint4*>(to), n / 16,
                                                          uint4{word, word, word, word});
  return cudaGetLastError();
}

cudaError_t band(uint8_t* mask, int64_t batches, int64_t q_len, int64_t ld, const KeyGeometry& geometry,
                 cudaStream_t stream) {
  const int64_t rows = batches * q_len;
  if (rows * ld == 0) return cudaSuccess;
  band_kernel<<<blocks_of(rows * (ld / 16)), kThreads, 0, stream>>>(mask, rows, q_len, ld, geometry);
  return cudaGetLastError();
}

cudaError_t fill_scalar(float* to, float value, cudaStream_t stream) {
  fill_scalar_kernel<<<1, 1, 0, stream>>>(to, value);
  return cudaGetLastError();
}

cudaError_t where_bias(const uint8_t* mask, float* bias, int64_t n, const float* zero, const float* minus_inf,
                       cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  where_kernel<<<blocks_of(n / 16), kThreads, 0, stream>>>(mask, bias, n / 16, zero, minus_inf);
  return cudaGetLastError();
}

cudaError_t where_bias_strided(const BroadcastMask& mask, float* bias, int64_t b, int64_t h, int64_t l,
                               int64_t s, int64_t ld, const float* zero, const float* minus_inf,
                               cudaStream_t stream) {
  const int64_t items = b * h * l * ld;
  if (items == 0) return cudaSuccess;
  const unsigned blocks = std::min(blocks_of(items), 262144u);
  where_strided_kernel<<<blocks, kThreads, 0, stream>>>(mask, bias, h, l, s, ld, items, zero, minus_inf);
  return cudaGetLastError();
}

}  // namespace attnscope::cuda_unfused
