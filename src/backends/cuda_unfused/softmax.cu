// Softmax along rows, the guards of the safe softmax, and dropout.
#include "attention/dropout_bits.h"
#include "backends/cuda_unfused/device.cuh"

#include <math_constants.h>

namespace attnscope::cuda_unfused {
namespace {

constexpr int kPerThread = 32;  // row elements that one thread keeps in registers

struct Maximum {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};

// Over the kThreadsPerRow threads of a row: a warp, or the whole block.
template <int kThreadsPerRow, typename Op>
__device__ __forceinline__ float reduce(float x, Op op, float* shared) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, step));
  if constexpr (kThreadsPerRow > 32) {
    constexpr int kWarps = kThreadsPerRow / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    __syncthreads();  // the previous reduction's readers are done
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    x = shared[lane % kWarps];
#pragma unroll
    for (int step = kWarps / 2; step > 0; step /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, step));
  }
  return x;
}

template <typename T>
__device__ __forceinline__ float exponential(float x) {
  if constexpr (sizeof(T) == 4)
    return expf(x);
  else
    return exp2f(x * CUDART_L2E_F);
}

__device__ __forceinline__ float sink_of(const SoftmaxExtras& extras, int64_t head) {
  const int64_t at = head * extras.sinks_stride;
  switch (extras.sinks_dtype) {
    case DType::kF32: return static_cast<const float*>(extras.sinks)[at];
    case DType::kF16: return to_float(static_cast<const __half*>(extras.sinks)[at]);
    case DType::kBF16: return to_float(static_cast<const __nv_bfloat16*>(extras.sinks)[at]);
    case DType::kF64: return static_cast<float>(static_cast<const double*>(extras.sinks)[at]);
    default: return -CUDART_INF_F;
  }
}

// An empty row has LSE −inf, with a sink too; a row that holds a NaN has NaN.
__device__ __forceinline__ void write_lse(const SoftmaxExtras& extras, const ScoreShape& shape, int64_t row,
                                          float max, float sum, bool nan, bool empty) {
  const int64_t i = row % shape.q_len, h = row / shape.q_len % shape.heads,
                b = row / shape.q_len / shape.heads;
  const float lse = nan ? CUDART_NAN_F : empty ? -CUDART_INF_F : max + logf(sum);
  extras.lse[b * extras.lse_stride_b + h * extras.lse_stride_h + i * extras.lse_stride_i] = lse;
}

// A row in registers: one read, one write.
template <typename T, int kThreadsPerRow>
__global__ void __launch_bounds__(kThreadsPerRow < 128 ? 128 : kThreadsPerRow)
    softmax_registers(const T* from, T* to, ScoreShape shape, SoftmaxExtras extras) {
  constexpr int kN = kVector<T>, kVectors = kPerThread / kN;
  constexpr int kRows = kThreadsPerRow < 128 ? 128 / kThreadsPerRow : 1;
  __shared__ float shared[kThreadsPerRow > 32 ? kThreadsPerRow / 32 : 1];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreadsPerRow;
  if (row >= shape.rows()) return;  // whole warps: kThreadsPerRow is a multiple of 32
  const int lane = threadIdx.x % kThreadsPerRow;
  const T* source = from + row * shape.ld;
  Pack<T, kN> raw[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = (static_cast<int64_t>(v) * kThreadsPerRow + lane) * kN;
    if (column < shape.kv_len) raw[v].load(source + column);
  }
  float x[kPerThread];
  bool nan = false;
  float max = -CUDART_INF_F;
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int64_t column = (static_cast<int64_t>(k / kN) * kThreadsPerRow + lane) * kN + k % kN;
    x[k] = column < shape.kv_len ? to_float(raw[k / kN].values[k % kN]) : -CUDART_INF_F;
    max = fmaxf(max, x[k]);
    nan |= x[k] != x[k];
  }
  max = reduce<kThreadsPerRow>(max, Maximum{}, shared);
  const bool empty = max == -CUDART_INF_F;
  float sink = -CUDART_INF_F;
  if (extras.sinks) {
    sink = sink_of(extras, row / shape.q_len % shape.heads);
    max = fmaxf(max, sink);
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kPerThread; ++k) {
    const int64_t column = (static_cast<int64_t>(k / kN) * kThreadsPerRow + lane) * kN + k % kN;
    x[k] = exponential<T>(x[k] - max);
    if (column < shape.kv_len) sum += x[k];
  }
  sum = reduce<kThreadsPerRow>(sum, Sum{}, shared);
  if (extras.sinks) sum += exponential<T>(sink - max);
  if (extras.lse) {
    nan = reduce<kThreadsPerRow>(nan ? 1.0f : 0.0f, Maximum{}, shared) != 0.0f;
    if (lane == 0) write_lse(extras, shape, row, max, sum, nan, empty);
  }
  const float inverse = 1.0f / sum;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = (static_cast<int64_t>(v) * kThreadsPerRow + lane) * kN;
    if (column >= shape.kv_len) continue;
    Pack<T, kN> out;
#pragma unroll
    for (int k = 0; k < kN; ++k) out.values[k] = from_float<T>(x[v * kN + k] * inverse);
    out.store(to + row * shape.ld + column);
  }
}

// Rows longer than a block's registers hold: maximum, sum and write are three passes.
template <typename T>
__global__ void __launch_bounds__(512)
    softmax_long(const T* from, T* to, ScoreShape shape, SoftmaxExtras extras) {
  constexpr int kBlock = 512, kN = kVector<T>;
  __shared__ float shared[kBlock / 32];
  const int64_t row = blockIdx.x;
  const T* source = from + row * shape.ld;
  bool nan = false;
  float max = -CUDART_INF_F;
  for (int64_t column = threadIdx.x * kN; column < shape.kv_len; column += kBlock * kN) {
    Pack<T, kN> v;
    v.load(source + column);
    for (int k = 0; k < kN; ++k)
      if (column + k < shape.kv_len) {
        const float x = to_float(v.values[k]);
        max = fmaxf(max, x);
        nan |= x != x;
      }
  }
  max = reduce<kBlock>(max, Maximum{}, shared);
  const bool empty = max == -CUDART_INF_F;
  float sink = -CUDART_INF_F;
  if (extras.sinks) {
    sink = sink_of(extras, row / shape.q_len % shape.heads);
    max = fmaxf(max, sink);
  }
  float sum = 0;
  for (int64_t column = threadIdx.x * kN; column < shape.kv_len; column += kBlock * kN) {
    Pack<T, kN> v;
    v.load(source + column);
    for (int k = 0; k < kN; ++k)
      if (column + k < shape.kv_len) sum += exponential<T>(to_float(v.values[k]) - max);
  }
  sum = reduce<kBlock>(sum, Sum{}, shared);
  if (extras.sinks) sum += exponential<T>(sink - max);
  if (extras.lse) {
    nan = reduce<kBlock>(nan ? 1.0f : 0.0f, Maximum{}, shared) != 0.0f;
    if (threadIdx.x == 0) write_lse(extras, shape, row, max, sum, nan, empty);
  }
  const float inverse = 1.0f / sum;
  for (int64_t column = threadIdx.x * kN; column < shape.kv_len; column += kBlock * kN) {
    Pack<T, kN> v;
    v.load(source + column);
    for (int k = 0; k < kN; ++k)
      v.values[k] = from_float<T>(exponential<T>(to_float(v.values[k]) - max) * inverse);
    v.store(to + row * shape.ld + column);
  }
}

__global__ void __launch_bounds__(kThreads)
    is_minus_inf_kernel(const float* scores, uint2* removed, int64_t items) {
  constexpr int kN = 8;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= items) return;
  Pack<float, kN> in;
  in.load(scores + item * kN);
  union {
    uint2 word;
    uint8_t values[kN];
  } out;
#pragma unroll
  for (int k = 0; k < kN; ++k) out.values[k] = in.values[k] == -CUDART_INF_F;
  removed[item] = out.word;
}

// A warp per row; all() of 16 flags at a time as words.
__global__ void __launch_bounds__(kThreads)
    all_in_row_kernel(const uint8_t* removed, uint8_t* row_empty, ScoreShape shape) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= shape.rows()) return;
  const int lane = threadIdx.x % 32;
  bool all = true;
  for (int64_t column = lane * 16; column < shape.kv_len; column += 32 * 16) {
    Pack<uint8_t, 16> v;
    v.load(removed + row * shape.ld + column);
    if (column + 16 <= shape.kv_len) {
      const uint4 w = v.words[0];
      all &= (w.x & w.y & w.z & w.w) == 0x01010101u;
    } else {
      for (int k = 0; k < 16; ++k)
        if (column + k < shape.kv_len) all &= v.values[k] != 0;
    }
  }
  all = __all_sync(0xffffffffu, all);
  if (lane == 0) row_empty[row] = all;
}

__global__ void __launch_bounds__(kThreads)
    where_rows_kernel(const uint8_t* row_empty, const float* from, float* to, int64_t items, unsigned per_row,
                      const float* zero) {
  constexpr int kN = 4;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
  Pack<float, kN> values[kUnroll];
  uint8_t empty[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t item = first + u * kThreads;
    if (item >= items) break;
    values[u].load(from + item * kN);
    empty[u] = row_empty[items < (int64_t{1} << 31) ? static_cast<unsigned>(item) / per_row : item / per_row];
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t item = first + u * kThreads;
    if (item >= items) return;
    if (empty[u]) {
      const float z = *zero;
#pragma unroll
      for (int k = 0; k < kN; ++k) values[u].values[k] = z;
    }
    values[u].store(to + item * kN);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(T* weights, ScoreShape shape, DropoutParams params, float kept_scale, unsigned threshold) {
  constexpr int kN = 8;
  const uint64_t seed = params.seed_offset ? params.seed_offset[0] : params.seed;
  const uint64_t offset = params.seed_offset ? params.seed_offset[1] : params.offset;
  const int64_t per_row = shape.ld / kN;
  const int64_t items = shape.rows() * per_row;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= items) return;
  const int64_t row = item / per_row, column = (item - row * per_row) * kN;
  Pack<T, kN> w;
  w.load(weights + item * kN);
#pragma unroll
  for (int quad = 0; quad < kN / 4; ++quad) {
    const Philox4 words =
        dropout_words(seed, offset, static_cast<uint64_t>(row), static_cast<uint64_t>(column + quad * 4));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      T& value = w.values[quad * 4 + k];
      value = words.x[k] >= threshold ? from_float<T>(to_float(value) * kept_scale) : from_float<T>(0.0f);
    }
  }
  w.store(weights + item * kN);
}

template <typename T, int kThreadsPerRow>
void launch_registers(const void* from, void* to, const ScoreShape& shape, const SoftmaxExtras& extras,
                      cudaStream_t stream) {
  constexpr int kRows = kThreadsPerRow < 128 ? 128 / kThreadsPerRow : 1;
  constexpr int kBlock = kThreadsPerRow < 128 ? 128 : kThreadsPerRow;
  const auto blocks = static_cast<unsigned>((shape.rows() + kRows - 1) / kRows);
  softmax_registers<T, kThreadsPerRow>
      <<<blocks, kBlock, 0, stream>>>(static_cast<const T*>(from), static_cast<T*>(to), shape, extras);
}

}  // namespace

cudaError_t softmax(const void* from, void* to, DType dtype, const ScoreShape& shape,
                    const SoftmaxExtras& extras, cudaStream_t stream) {
  if (shape.rows() == 0) return cudaSuccess;
  return dispatch_float(dtype, [&](auto tag) {
    using T = decltype(tag);
    if (shape.kv_len <= 32 * kPerThread)
      launch_registers<T, 32>(from, to, shape, extras, stream);
    else if (shape.kv_len <= 128 * kPerThread)
      launch_registers<T, 128>(from, to, shape, extras, stream);
    else if (shape.kv_len <= 512 * kPerThread)
      launch_registers<T, 512>(from, to, shape, extras, stream);
    else
      softmax_long<T><<<static_cast<unsigned>(shape.rows()), 512, 0, stream>>>(
          static_cast<const T*>(from), static_cast<T*>(to), shape, extras);
    return cudaGetLastError();
  });
}

cudaError_t is_minus_inf(const float* scores, uint8_t* removed, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const int64_t items = n / 8;
  is_minus_inf_kernel<<<static_cast<unsigned>((items + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      scores, reinterpret_cast<uint2*>(removed), items);
  return cudaGetLastError();
}

cudaError_t all_in_row(const uint8_t* removed, uint8_t* row_empty, const ScoreShape& shape,
                       cudaStream_t stream) {
  if (shape.rows() == 0) return cudaSuccess;
  constexpr int kRows = kThreads / 32;
  all_in_row_kernel<<<static_cast<unsigned>((shape.rows() + kRows - 1) / kRows), kThreads, 0, stream>>>(
      removed, row_empty, shape);
  return cudaGetLastError();
}

cudaError_t where_rows(const uint8_t* row_empty, const float* from, float* to, const ScoreShape& shape,
                       const float* zero, cudaStream_t stream) {
  const int64_t items = shape.rows() * (shape.ld / 4);
  if (items == 0) return cudaSuccess;
  where_rows_kernel<<<blocks_for(items), kThreads, 0, stream>>>(row_empty, from, to, items,
                                                                static_cast<unsigned>(shape.ld / 4), zero);
  return cudaGetLastError();
}

cudaError_t dropout(void* weights, DType dtype, const ScoreShape& shape, const DropoutParams& params,
                    cudaStream_t stream) {
  const int64_t items = shape.rows() * (shape.ld / 8);
  if (items == 0 || params.p <= 0) return cudaSuccess;
  if (params.p >= 1.0)
    return cudaMemsetAsync(weights, 0, static_cast<size_t>(shape.rows() * shape.ld) * dtype_size(dtype),
                           stream);
  return dispatch_float(dtype, [&](auto tag) {
    using T = decltype(tag);
    dropout_kernel<T><<<static_cast<unsigned>((items + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
        static_cast<T*>(weights), shape, params, static_cast<float>(1.0 / (1.0 - params.p)),
        dropout_threshold(params.p));
    return cudaGetLastError();
  });
}

}  // namespace attnscope::cuda_unfused
