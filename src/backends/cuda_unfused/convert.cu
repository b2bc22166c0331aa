// Element-wise steps: convert and copy between strided layouts, scale, soft cap, cast.
#include "backends/cuda_unfused/device.cuh"

namespace attnscope::cuda_unfused {
namespace {

// A 4-D view as the kernels see it; sizes are shared by both sides.
struct Strides {
  int64_t b, h, l, e;
};
struct Sizes {
  int64_t b, h, l, e;
  __host__ __device__ int64_t rows() const { return b * h * l; }
};

__device__ __forceinline__ int64_t row_offset(int64_t row, const Sizes& n, const Strides& s) {
  const int64_t l = row % n.l, rest = row / n.l;
  return (rest / n.h) * s.b + (rest % n.h) * s.h + l * s.l;
}

__device__ __forceinline__ float clean(float x, int* flag) {
  if (flag && !isfinite(x)) {
    *flag = 1;
    return 0.0f;
  }
  return x;
}

__device__ __forceinline__ bool past_length(const ConvertExtras& extras, int64_t row, const Sizes& n) {
  if (!extras.kv_lengths) return false;
  const int64_t b = row / n.l / n.h;
  return row % n.l >= read_index(extras.kv_lengths, extras.wide_lengths, b * extras.kv_stride);
}

// N elements per vector; work items are vectors of rows.
template <typename From, typename To, int N>
__global__ void __launch_bounds__(kThreads)
    convert_vectors(const From* from, To* to, Sizes n, Strides from_strides, Strides to_strides,
                    ConvertExtras extras) {
  if (extras.reset_flag && blockIdx.x == 0 && threadIdx.x == 0) *extras.reset_flag = 0;
  const int64_t per_row = n.e / N;
  const int64_t items = n.rows() * per_row;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
  Pack<From, N> in[kUnroll];
  int64_t target[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t item = first + u * kThreads;
    if (item >= items) break;
    const int64_t row = per_row == items ? 0 : item / per_row;
    const int64_t e = (item - row * per_row) * N;
    in[u].load(from + row_offset(row, n, from_strides) + e);
    target[u] = row_offset(row, n, to_strides) + e;
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t item = first + u * kThreads;
    if (item >= items) break;
    const bool zero = past_length(extras, per_row == items ? 0 : item / per_row, n);
    Pack<To, N> out;
#pragma unroll
    for (int v = 0; v < N; ++v) {
      const float x = clean(to_float(in[u].values[v]), zero ? nullptr : extras.nonfinite_flag);
      out.values[v] = from_float<To>(zero ? 0.0f : x * extras.factor);
    }
    out.store(to + target[u]);
  }
}

template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    convert_elements(const From* from, To* to, Sizes n, Strides from_strides, Strides to_strides,
                     ConvertExtras extras) {
  if (extras.reset_flag && blockIdx.x == 0 && threadIdx.x == 0) *extras.reset_flag = 0;
  const int64_t items = n.rows() * n.e;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; item < items;
       item += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t row = item / n.e, e = item % n.e;
    const bool zero = past_length(extras, row, n);
    const float x = clean(to_float(from[row_offset(row, n, from_strides) + e * from_strides.e]),
                          zero ? nullptr : extras.nonfinite_flag);
    to[row_offset(row, n, to_strides) + e * to_strides.e] = from_float<To>(zero ? 0.0f : x * extras.factor);
  }
}

// Strides with those of size-1 dimensions set to 0, so that they count for nothing.
Strides strides_of(const TensorView& v) {
  auto s = [&](int d) { return v.size(d) == 1 ? int64_t{0} : v.stride(d); };
  return {s(0), s(1), s(2), v.size(3) == 1 ? int64_t{1} : v.stride(3)};
}

bool dense(const TensorView& v) {
  int64_t expected = 1;
  for (int d = 3; d >= 0; --d) {
    if (v.size(d) != 1 && v.stride(d) != expected) return false;
    expected *= v.size(d);
  }
  return true;
}

bool aligned(const void* data, const Strides& s, int64_t elements, size_t element_bytes) {
  return reinterpret_cast<uintptr_t>(data) %
                 (16 < elements * static_cast<int64_t>(element_bytes) ? 16 : elements * element_bytes) ==
             0 &&
         s.e == 1 && s.b % elements == 0 && s.h % elements == 0 && s.l % elements == 0;
}

template <typename From, typename To>
cudaError_t convert_typed(const TensorView& from, const TensorView& to, const ConvertExtras& extras,
                          cudaStream_t stream) {
  constexpr int kN = sizeof(From) < sizeof(To) ? kVector<From> : kVector<To>;
  Sizes n{from.size(0), from.size(1), from.size(2), from.size(3)};
  if (n.rows() * n.e == 0) return cudaSuccess;
  Strides fs = strides_of(from), ts = strides_of(to);
  // Two dense tensors are one long row; lengths need the rows.
  if (!extras.kv_lengths && dense(from) && dense(to)) {
    n = {1, 1, 1, from.numel()};
    fs = ts = {0, 0, 0, 1};
  }
  const auto* source = static_cast<const From*>(from.data);
  auto* target = static_cast<To*>(to.data);
  const bool vectors =
      n.e % kN == 0 && aligned(source, fs, kN, sizeof(From)) && aligned(target, ts, kN, sizeof(To));
  if (vectors) {
    convert_vectors<From, To, kN>
        <<<blocks_for(n.rows() * (n.e / kN)), kThreads, 0, stream>>>(source, target, n, fs, ts, extras);
  } else {
    const int64_t blocks = (n.rows() * n.e + kThreads - 1) / kThreads;
    convert_elements<From, To>
        <<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(source, target, n,
                                                                                          fs, ts, extras);
  }
  return cudaGetLastError();
}

// ---- the output of `math` ----

template <typename To>
__global__ void __launch_bounds__(kThreads)
    convert_out_vectors(const float* from, To* to, Sizes n, Strides to_strides, NonFiniteFix fix,
                        Strides v_strides) {
  constexpr int kN = kVector<To>;
  const bool repair = *fix.flag != 0;
  const int64_t per_row = n.e / kN;
  const int64_t items = n.rows() * per_row;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
#pragma unroll 1
  for (int u = 0; u < kUnroll; ++u) {
    const int64_t item = first + u * kThreads;
    if (item >= items) return;
    const int64_t row = item / per_row, e = (item - row * per_row) * kN;
    Pack<float, kN> in;
    in.load(from + row * n.e + e);
    if (repair) {
      const int64_t head = row / n.l % n.h, batch = row / n.l / n.h;
      const int64_t v_head = head / (n.h / fix.v.size(1));
      const To* v = static_cast<const To*>(fix.v.data) + batch * v_strides.b + v_head * v_strides.h;
      for (int64_t j = 0; j < fix.shape.kv_len; ++j) {
        if (fix.removed[row * fix.shape.ld + j]) continue;
        const float weight = fix.weights[row * fix.shape.ld + j];
#pragma unroll
        for (int k = 0; k < kN; ++k) {
          const float x = to_float(v[j * v_strides.l + (e + k) * v_strides.e]);
          if (!isfinite(x)) in.values[k] += weight * x;
        }
      }
    }
    Pack<To, kN> out;
#pragma unroll
    for (int k = 0; k < kN; ++k) out.values[k] = from_float<To>(in.values[k]);
    out.store(to + row_offset(row, n, to_strides) + e);
  }
}

template <typename To>
__global__ void __launch_bounds__(kThreads)
    convert_out_elements(const float* from, To* to, Sizes n, Strides to_strides, NonFiniteFix fix,
                         Strides v_strides) {
  const bool repair = *fix.flag != 0;
  const int64_t items = n.rows() * n.e;
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; item < items;
       item += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t row = item / n.e, e = item % n.e;
    float sum = from[item];
    if (repair) {
      const int64_t head = row / n.l % n.h, batch = row / n.l / n.h;
      const int64_t v_head = head / (n.h / fix.v.size(1));
      const To* v =
          static_cast<const To*>(fix.v.data) + batch * v_strides.b + v_head * v_strides.h + e * v_strides.e;
      for (int64_t j = 0; j < fix.shape.kv_len; ++j) {
        const float x = to_float(v[j * v_strides.l]);
        if (!isfinite(x) && !fix.removed[row * fix.shape.ld + j])
          sum += fix.weights[row * fix.shape.ld + j] * x;
      }
    }
    to[row_offset(row, n, to_strides) + e * to_strides.e] = from_float<To>(sum);
  }
}

// ---- flat element-wise ----

template <typename T, typename Op>
__global__ void __launch_bounds__(kThreads) map_vectors(const T* from, T* to, int64_t items, Op op) {
  constexpr int kN = kVector<T>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
  Pack<T, kN> values[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (first + u * kThreads < items) values[u].load(from + (first + u * kThreads) * kN);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads >= items) return;
#pragma unroll
    for (int k = 0; k < kN; ++k) values[u].values[k] = from_float<T>(op(to_float(values[u].values[k])));
    values[u].store(to + (first + u * kThreads) * kN);
  }
}

struct Multiply {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
struct Cap {
  float cap;
  __device__ float operator()(float x) const { return cap * tanhf(x / cap); }
};

template <typename Op>
cudaError_t map(const void* from, void* to, DType dtype, int64_t n, Op op, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return dispatch_float(dtype, [&](auto tag) {
    using T = decltype(tag);
    const int64_t items = n / kVector<T>;
    map_vectors<T, Op><<<blocks_for(items), kThreads, 0, stream>>>(static_cast<const T*>(from),
                                                                   static_cast<T*>(to), items, op);
    return cudaGetLastError();
  });
}

}  // namespace

cudaError_t convert(const TensorView& from, const TensorView& to, const ConvertExtras& extras,
                    cudaStream_t stream) {
  return dispatch_float(from.dtype, [&](auto from_tag) {
    using From = decltype(from_tag);
    if (to.dtype == from.dtype) return convert_typed<From, From>(from, to, extras, stream);
    if (to.dtype == DType::kF32) return convert_typed<From, float>(from, to, extras, stream);
    return cudaErrorInvalidValue;
  });
}

cudaError_t convert_out(const TensorView& from, const TensorView& to, const NonFiniteFix& fix,
                        cudaStream_t stream) {
  if (to.numel() == 0) return cudaSuccess;
  return dispatch_float(to.dtype, [&](auto tag) {
    using To = decltype(tag);
    const Sizes n{to.size(0), to.size(1), to.size(2), to.size(3)};
    const Strides ts = strides_of(to), vs = strides_of(fix.v);
    const auto* source = static_cast<const float*>(from.data);
    auto* target = static_cast<To*>(to.data);
    constexpr int kN = kVector<To>;
    if (n.e % kN == 0 && aligned(target, ts, kN, sizeof(To))) {
      convert_out_vectors<To>
          <<<blocks_for(n.rows() * (n.e / kN)), kThreads, 0, stream>>>(source, target, n, ts, fix, vs);
    } else {
      const int64_t blocks = (n.rows() * n.e + kThreads - 1) / kThreads;
      convert_out_elements<To>
          <<<static_cast<unsigned>(blocks < 65536 ? blocks : 65536), kThreads, 0, stream>>>(source, target, n,
                                                                                            ts, fix, vs);
    }
    return cudaGetLastError();
  });
}

cudaError_t scale(const void* from, void* to, DType dtype, int64_t n, float factor, cudaStream_t stream) {
  return map(from, to, dtype, n, Multiply{factor}, stream);
}

cudaError_t softcap(void* x, DType dtype, int64_t n, float cap, cudaStream_t stream) {
  return map(x, x, dtype, n, Cap{cap}, stream);
}

cudaError_t cast_rows(const float* from, void* to, DType dtype, int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  const Sizes sizes{1, 1, 1, n};
  const Strides flat{0, 0, 0, 1};
  const ConvertExtras none;
  return dispatch_float(dtype, [&](auto tag) {
    using To = decltype(tag);
    constexpr int kN = kVector<To>;
    convert_vectors<float, To, kN>
        <<<blocks_for(n / kN), kThreads, 0, stream>>>(from, static_cast<To*>(to), sizes, flat, flat, none);
    return cudaGetLastError();
  });
}

}  // namespace attnscope::cuda_unfused
