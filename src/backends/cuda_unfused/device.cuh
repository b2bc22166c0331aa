#pragma once
// Device helpers of the unfused kernels: 16-byte vectors, conversions, row geometry, grids.

#include "backends/cuda_unfused/kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace attnscope::cuda_unfused {

// One vector per thread and small blocks: on an H200 that copies at 4.2 TB/s, four vectors per thread at 4.0.
constexpr int kThreads = 128;
constexpr int kUnroll = 1;

template <typename T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// N elements moved by 16-byte accesses (N · sizeof(T) a multiple of 16).
template <typename T, int N>
struct Pack {
  static constexpr int kWords = N * static_cast<int>(sizeof(T)) / 16;
  union {
    uint4 words[kWords];
    T values[N];
  };
  __device__ __forceinline__ Pack() {}
  __device__ __forceinline__ void load(const T* from) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = __ldcs(reinterpret_cast<const uint4*>(from) + w);
  }
  __device__ __forceinline__ void store(T* to) const {
#pragma unroll
    for (int w = 0; w < kWords; ++w) reinterpret_cast<uint4*>(to)[w] = words[w];
  }
};

__device__ __forceinline__ int64_t read_index(const void* data, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(data)[i]
              : static_cast<int64_t>(static_cast<const int32_t*>(data)[i]);
}

struct Interval {
  int64_t begin, end;
};

// The keys that row i of batch b sees (packed: positions in the packed k).
__device__ inline Interval visible(const KeyGeometry& g, int64_t b, int64_t i) {
  int64_t q_begin = 0, q_end = g.q_len, k_begin = 0, k_end = g.kv_len;
  if (g.cu_q) {
    int64_t low = 0, high = g.sequences;  // first sequence that ends past row i
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (read_index(g.cu_q, g.wide_q, (middle + 1) * g.cu_q_stride) > i)
        high = middle;
      else
        low = middle + 1;
    }
    if (low == g.sequences) return {0, 0};
    q_begin = read_index(g.cu_q, g.wide_q, low * g.cu_q_stride);
    q_end = read_index(g.cu_q, g.wide_q, (low + 1) * g.cu_q_stride);
    k_begin = read_index(g.cu_k, g.wide_k, low * g.cu_k_stride);
    k_end = read_index(g.cu_k, g.wide_k, (low + 1) * g.cu_k_stride);
  } else if (g.kv_lengths) {
    k_end = min(max(read_index(g.kv_lengths, g.wide_lengths, b * g.kv_stride), int64_t{0}), g.kv_len);
  }
  const int64_t keys = k_end - k_begin;
  int64_t diagonal = i - q_begin;
  if (g.causal == 2) diagonal += keys - (q_end - q_begin);
  int64_t begin = 0, end = keys;
  if (g.left >= 0 && diagonal > g.left) begin = diagonal - g.left;
  if (g.right >= 0 && g.right < keys - 1 - diagonal) end = diagonal + g.right + 1;
  if (g.causal != 0) end = min(end, diagonal + 1);
  end = min(max(end, begin), keys);
  begin = min(begin, keys);
  if (end < begin) end = begin;
  return {k_begin + begin, k_begin + max(end, int64_t{0})};
}

// Blocks for n work items with kUnroll per thread.
inline unsigned blocks_for(int64_t items) {
  const int64_t per_block = int64_t{kThreads} * kUnroll;
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

// Calls f with a value of the element type.
template <typename F>
cudaError_t dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16: return f(__nv_bfloat16{});
    case DType::kF16: return f(__half{});
    case DType::kF32: return f(float{});
    default: return cudaErrorInvalidValue;
  }
}

}  // namespace attnscope::cuda_unfused
