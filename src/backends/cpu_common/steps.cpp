#include "backends/cpu_common/steps.h"

#include "attention/dropout_bits.h"
#include "backends/cpu_common/row_kernels.h"
#include "backends/cpu_common/threads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace attnscope::cpu {
namespace {

constexpr int64_t kChunk = 2048;              // elements widened at a time: two chunks stay in the L1 cache
constexpr int64_t kElementsPerThread = 8192;  // less is not worth waking a thread for

std::byte* address(const TensorView& v, int64_t offset) {
  return static_cast<std::byte*>(v.data) + offset * static_cast<int64_t>(dtype_size(v.dtype));
}

// fn(b, h, i, thread) for every row of v [B, H, N, D]; thread < threads.
template <typename Fn>
void for_rows_on_threads(const TensorView& v, int threads, Fn&& fn) {
  const int64_t heads = v.size(1), rows = v.size(2);
  const int64_t grain = std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(v.size(3), 1));
  parallel_for(threads, v.size(0) * heads * rows, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t n = begin; n < end; ++n) fn(n / rows / heads, n / rows % heads, n % rows, thread);
  });
}
template <typename Fn>
void for_rows(const TensorView& v, int threads, Fn&& fn) {
  for_rows_on_threads(v, threads, [&](int64_t b, int64_t h, int64_t i, int) { fn(b, h, i); });
}

int64_t row_offset(const TensorView& v, int64_t b, int64_t h, int64_t i) {
  return b * v.stride(0) + h * v.stride(1) + i * v.stride(2);
}

// One row of a tensor as T, written back when done. No copy when it is dense T already.
template <typename T>
constexpr DType kTypeOf = sizeof(T) == 4 ? DType::kF32 : DType::kF64;
template <typename T>
bool direct(const TensorView& v) {
  return v.dtype == kTypeOf<T> && (v.stride(3) == 1 || v.size(3) <= 1);
}

// fn(T* x, count, first) over a row in chunks, in place.
template <typename T, typename Fn>
void update_row(const TensorView& v, int64_t offset, Fn&& fn) {
  const RowKernels<T>& k = row_kernels<T>();
  if (direct<T>(v)) {
    fn(v.as<T>() + offset, v.size(3), int64_t{0});
    return;
  }
  T chunk[kChunk];
  for (int64_t j = 0; j < v.size(3); j += kChunk) {
    const int64_t n = std::min(kChunk, v.size(3) - j);
    std::byte* at = address(v, offset + j * v.stride(3));
    k.load(at, v.dtype, v.stride(3), n, chunk);
    fn(chunk, n, j);
    k.store(chunk, n, at, v.dtype, v.stride(3));
  }
}

// Fills [first, last) of a row of any dtype with a value that every dtype represents.
void fill_row(const TensorView& v, int64_t offset, int64_t first, int64_t last, double value) {
  if (last <= first) return;
  const auto fill = [&](auto* data, auto x) {
    if (v.stride(3) == 1) {
      std::fill(data + offset + first, data + offset + last, x);
    } else {
      for (int64_t j = first; j < last; ++j) data[offset + j * v.stride(3)] = x;
    }
  };
  const auto half = [&](uint16_t neg_inf) { fill(v.as<uint16_t>(), value == 0.0 ? uint16_t{0} : neg_inf); };
  switch (v.dtype) {
    case DType::kF64: fill(v.as<double>(), value); return;
    case DType::kF32: fill(v.as<float>(), static_cast<float>(value)); return;
    case DType::kF16: half(0xfc00); return;
    case DType::kBF16: half(0xff80); return;
    case DType::kBool: fill(v.as<uint8_t>(), static_cast<uint8_t>(value)); return;
    case DType::kI32:
    case DType::kI64: return;
  }
}

const void* mask_address(const MaskAccess& m, int64_t offset) {
  return static_cast<const std::byte*>(m.data) + offset * static_cast<int64_t>(dtype_size(m.dtype));
}

// keep[0..n) as dense bytes; points into the mask when it is dense already.
const uint8_t* keep_bytes(const MaskAccess& m, int64_t offset, int64_t n, uint8_t* chunk) {
  const auto* data = static_cast<const uint8_t*>(m.data) + offset;
  if (m.stride_j == 1) return data;
  for (int64_t j = 0; j < n; ++j) chunk[j] = data[j * m.stride_j];
  return chunk;
}

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

}  // namespace

template <typename T>
void scale_step(const TensorView& src, T factor, const TensorView& dst, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  for_rows(src, threads, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t from = row_offset(src, b, h, i), to = row_offset(dst, b, h, i);
    if (direct<T>(src) && direct<T>(dst)) {
      k.scale(src.as<T>() + from, factor, src.size(3), dst.as<T>() + to);
      return;
    }
    T chunk[kChunk];
    for (int64_t j = 0; j < src.size(3); j += kChunk) {
      const int64_t n = std::min(kChunk, src.size(3) - j);
      T* x = direct<T>(dst) ? dst.as<T>() + to + j : chunk;
      k.load(address(src, from + j * src.stride(3)), src.dtype, src.stride(3), n, x);
      if (factor != T{1}) k.scale(x, factor, n, x);
      if (x == chunk) k.store(chunk, n, address(dst, to + j * dst.stride(3)), dst.dtype, dst.stride(3));
    }
  });
}

void copy_step(const TensorView& src, const TensorView& dst, int threads) {
  const int64_t bytes = src.size(3) * static_cast<int64_t>(dtype_size(src.dtype));
  for_rows(src, threads, [&](int64_t b, int64_t h, int64_t i) {
    std::memcpy(address(dst, row_offset(dst, b, h, i)), address(src, row_offset(src, b, h, i)),
                static_cast<size_t>(bytes));
  });
}

template <typename T>
void mask_step(const TensorView& scores, const Geometry& geometry, const MaskAccess* keep, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  for_rows(scores, threads, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t row = row_offset(scores, b, h, i);
    const KeyRange range = geometry.visible(b, i);
    const int64_t begin = range.empty() ? 0 : range.begin, end = range.empty() ? 0 : range.end;
    fill_row(scores, row, 0, begin, kNegInf);
    fill_row(scores, row, end, scores.size(3), kNegInf);
    if (keep == nullptr || end <= begin) return;
    TensorView inside = scores;
    inside.sizes[3] = end - begin;
    uint8_t bytes[kChunk];
    const int64_t mask_row = keep->row_offset(b, h, i) + begin * keep->stride_j;
    update_row<T>(inside, row + begin * scores.stride(3), [&](T* x, int64_t n, int64_t first) {
      for (int64_t j = 0; j < n; j += kChunk) {
        const int64_t count = std::min(kChunk, n - j);
        k.keep_or_neg_inf(keep_bytes(*keep, mask_row + (first + j) * keep->stride_j, count, bytes), count,
                          x + j);
      }
    });
  });
}

template <typename T>
void bias_step(const TensorView& src, const MaskAccess& bias, const TensorView& dst, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  for_rows(src, threads, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t from = row_offset(src, b, h, i), to = row_offset(dst, b, h, i),
                  at = bias.row_offset(b, h, i);
    T chunk[kChunk], addend[kChunk];
    for (int64_t j = 0; j < src.size(3); j += kChunk) {
      const int64_t n = std::min(kChunk, src.size(3) - j);
      T* x = direct<T>(dst) ? dst.as<T>() + to + j : chunk;
      const std::byte* source = address(src, from + j * src.stride(3));
      if (static_cast<const void*>(source) != static_cast<const void*>(x))
        k.load(source, src.dtype, src.stride(3), n, x);
      const T* y = addend;
      if (bias.dtype == kTypeOf<T> && bias.stride_j == 1) {
        y = static_cast<const T*>(mask_address(bias, at + j));
      } else {
        k.load(mask_address(bias, at + j * bias.stride_j), bias.dtype, bias.stride_j, n, addend);
      }
      k.add_select(y, n, x);
      if (x == chunk) k.store(chunk, n, address(dst, to + j * dst.stride(3)), dst.dtype, dst.stride(3));
    }
  });
}

template <typename T>
void softcap_step(const TensorView& scores, T cap, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  for_rows(scores, threads, [&](int64_t b, int64_t h, int64_t i) {
    update_row<T>(scores, row_offset(scores, b, h, i),
                  [&](T* x, int64_t n, int64_t) { k.softcap(cap, n, x); });
  });
}

template <typename T>
void softmax_step(const TensorView& src, const TensorView& dst, const TensorView& lse, T* rows, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  const int64_t n = src.size(3);
  for_rows_on_threads(src, threads, [&](int64_t b, int64_t h, int64_t i, int thread) {
    const int64_t from = row_offset(src, b, h, i), to = row_offset(dst, b, h, i);
    T* work = direct<T>(dst) ? dst.as<T>() + to : rows + thread * n;
    const T* x = src.as<T>() + from;
    if (!direct<T>(src)) {
      k.load(address(src, from), src.dtype, src.stride(3), n, work);
      x = work;
    }
    const T max = k.max(x, n);
    const double sum = k.exp_sum(x, max, n, work);
    k.scale(work, static_cast<T>(1.0 / sum), n, work);
    if (!direct<T>(dst)) k.store(work, n, address(dst, to), dst.dtype, dst.stride(3));
    if (lse.data == nullptr) return;
    // A row of −inf only has max −inf and sum NaN: its LSE is −inf. Any NaN score leaves NaN in the sum.
    double value = static_cast<double>(max) + std::log(sum);
    if (max == static_cast<T>(kNegInf)) {
      value = kNegInf;
      for (int64_t j = 0; j < n; ++j)
        if (std::isnan(static_cast<double>(direct<T>(src) ? x[j] : T{0}))) value = std::nan("");
    }
    lse.as<float>()[b * lse.stride(0) + h * lse.stride(1) + i * lse.stride(2)] = static_cast<float>(value);
  });
}

template <typename T>
void dropout_step(const TensorView& weights, double p, uint64_t seed, uint64_t offset, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  const auto heads = static_cast<uint64_t>(weights.size(1)), rows = static_cast<uint64_t>(weights.size(2));
  for_rows(weights, threads, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t at = row_offset(weights, b, h, i);
    if (p >= 1.0) {
      k.scale(weights.as<T>() + at, T{0}, weights.size(3), weights.as<T>() + at);
      return;
    }
    const uint64_t row =
        (static_cast<uint64_t>(b) * heads + static_cast<uint64_t>(h)) * rows + static_cast<uint64_t>(i);

    k.dropout(seed, offset, row, dropout_threshold(p), static_cast<T>(1.0 / (1.0 - p)), weights.size(3),
              weights.as<T>() + at);
  });
}

template <typename T>
void drop_all_step(const TensorView& weights, const TensorView& out, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  for_rows(out, threads, [&](int64_t b, int64_t h, int64_t i) {
    const bool finite = k.all_finite(weights.as<T>() + row_offset(weights, b, h, i), weights.size(3));
    T chunk[kChunk];
    std::fill_n(chunk, std::min(kChunk, out.size(3)), finite ? T{0} : std::numeric_limits<T>::quiet_NaN());
    for (int64_t j = 0; j < out.size(3); j += kChunk)
      k.store(chunk, std::min(kChunk, out.size(3) - j),
              address(out, row_offset(out, b, h, i) + j * out.stride(3)), out.dtype, out.stride(3));
  });
}

template <typename T>
void is_neg_inf_step(const TensorView& scores, const TensorView& flags, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  for_rows(scores, threads, [&](int64_t b, int64_t h, int64_t i) {
    k.is_neg_inf(scores.as<T>() + row_offset(scores, b, h, i), scores.size(3),
                 flags.as<uint8_t>() + row_offset(flags, b, h, i));
  });
}

void all_step(const TensorView& flags, const TensorView& row_flags, int threads) {
  for_rows(flags, threads, [&](int64_t b, int64_t h, int64_t i) {
    const uint8_t* row = flags.as<uint8_t>() + row_offset(flags, b, h, i);
    const bool all = flags.size(3) == 0 || std::memchr(row, 0, static_cast<size_t>(flags.size(3))) == nullptr;
    row_flags.as<uint8_t>()[row_offset(row_flags, b, h, i)] = all ? 1 : 0;
  });
}

void zero_rows_step(const TensorView& row_flags, double zero, const TensorView& weights, int threads) {
  for_rows(weights, threads, [&](int64_t b, int64_t h, int64_t i) {
    if (row_flags.as<uint8_t>()[row_offset(row_flags, b, h, i)] != 0)
      fill_row(weights, row_offset(weights, b, h, i), 0, weights.size(3), zero);
  });
}

void ones_step(const TensorView& keep, int threads) {
  for_rows(keep, threads, [&](int64_t b, int64_t h, int64_t i) {
    fill_row(keep, row_offset(keep, b, h, i), 0, keep.size(3), 1.0);
  });
}

void interval_step(const Geometry& geometry, const TensorView& keep, int threads) {
  for_rows(keep, threads, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t row = row_offset(keep, b, h, i);
    const KeyRange range = geometry.visible(b, i);
    const int64_t begin = range.empty() ? 0 : range.begin, end = range.empty() ? 0 : range.end;
    fill_row(keep, row, 0, begin, 0.0);
    fill_row(keep, row, end, keep.size(3), 0.0);
  });
}

void and_step(const MaskAccess& mask, const TensorView& keep, int threads) {
  for_rows(keep, threads, [&](int64_t b, int64_t h, int64_t i) {
    uint8_t* row = keep.as<uint8_t>() + row_offset(keep, b, h, i);
    const uint8_t* other = static_cast<const uint8_t*>(mask.data) + mask.row_offset(b, h, i);
    if (mask.stride_j == 1) {
      for (int64_t j = 0; j < keep.size(3); ++j)
        row[j] = static_cast<uint8_t>((row[j] != 0) & (other[j] != 0));
    } else {
      for (int64_t j = 0; j < keep.size(3); ++j)
        row[j] = static_cast<uint8_t>((row[j] != 0) & (other[j * mask.stride_j] != 0));
    }
  });
}

template <typename T>
void where_step(const MaskAccess& keep, T neg_inf, T zero, const TensorView& bias, int threads) {
  for_rows(bias, threads, [&](int64_t b, int64_t h, int64_t i) {
    T* row = bias.as<T>() + row_offset(bias, b, h, i);
    const uint8_t* flags = static_cast<const uint8_t*>(keep.data) + keep.row_offset(b, h, i);
    if (keep.stride_j == 1) {
      for (int64_t j = 0; j < bias.size(3); ++j) row[j] = flags[j] != 0 ? zero : neg_inf;
    } else {
      for (int64_t j = 0; j < bias.size(3); ++j) row[j] = flags[j * keep.stride_j] != 0 ? zero : neg_inf;
    }
  });
}

template <typename T>
bool finite_step(const TensorView& v, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  bool finite = true;
  for_rows(v, threads, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t at = row_offset(v, b, h, i);
    T chunk[kChunk];
    for (int64_t j = 0; j < v.size(3); j += kChunk) {
      const int64_t n = std::min(kChunk, v.size(3) - j);
      k.load(address(v, at + j * v.stride(3)), v.dtype, v.stride(3), n, chunk);
      if (!k.all_finite(chunk, n)) __atomic_store_n(&finite, false, __ATOMIC_RELAXED);
    }
  });
  return finite;
}

template <typename T>
void select_matmul_step(const TensorView& weights, const TensorView& scores, const TensorView& v,
                        const TensorView& out, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  const int64_t keys = weights.size(3), width = out.size(3),
                group = weights.size(1) / std::max<int64_t>(v.size(1), 1);
  for_rows(out, threads, [&](int64_t b, int64_t h, int64_t i) {
    const int64_t weight_row = row_offset(weights, b, h, i), score_row = row_offset(scores, b, h, i);
    T sum[kChunk], value[kChunk], weight[kChunk], score[kChunk];
    for (int64_t e0 = 0; e0 < width; e0 += kChunk) {
      const int64_t columns = std::min(kChunk, width - e0);
      std::fill_n(sum, columns, T{0});
      for (int64_t j = 0; j < keys; ++j) {
        const int64_t at = j % kChunk, here = std::min(kChunk, keys - j);
        if (at == 0) {
          k.load(address(weights, weight_row + j * weights.stride(3)), weights.dtype, weights.stride(3), here,
                 weight);
          k.load(address(scores, score_row + j * scores.stride(3)), scores.dtype, scores.stride(3), here,
                 score);
        }
        if (score[at] == static_cast<T>(kNegInf)) {
          if (std::isnan(static_cast<double>(weight[at]))) std::fill_n(sum, columns, weight[at]);
          continue;
        }
        k.load(address(v, row_offset(v, b, h / group, j) + e0 * v.stride(3)), v.dtype, v.stride(3), columns,
               value);
        for (int64_t e = 0; e < columns; ++e) sum[e] += weight[at] * value[e];
      }
      k.store(sum, columns, address(out, row_offset(out, b, h, i) + e0 * out.stride(3)), out.dtype,
              out.stride(3));
    }
  });
}

#define ATTNSCOPE_INSTANTIATE(T)                                                                   \
  template void scale_step<T>(const TensorView&, T, const TensorView&, int);                       \
  template void mask_step<T>(const TensorView&, const Geometry&, const MaskAccess*, int);          \
  template void bias_step<T>(const TensorView&, const MaskAccess&, const TensorView&, int);        \
  template void softcap_step<T>(const TensorView&, T, int);                                        \
  template void softmax_step<T>(const TensorView&, const TensorView&, const TensorView&, T*, int); \
  template void dropout_step<T>(const TensorView&, double, uint64_t, uint64_t, int);               \
  template void drop_all_step<T>(const TensorView&, const TensorView&, int);                       \
  template void is_neg_inf_step<T>(const TensorView&, const TensorView&, int);                     \
  template void where_step<T>(const MaskAccess&, T, T, const TensorView&, int);                    \
  template bool finite_step<T>(const TensorView&, int);                                            \
  template void select_matmul_step<T>(const TensorView&, const TensorView&, const TensorView&,     \
                                      const TensorView&, int)
ATTNSCOPE_INSTANTIATE(float);
ATTNSCOPE_INSTANTIATE(double);
#undef ATTNSCOPE_INSTANTIATE

}  // namespace attnscope::cpu
