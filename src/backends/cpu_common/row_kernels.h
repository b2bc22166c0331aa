#pragma once
// Vectorised loops over one row, compiled once per instruction set and chosen at run time. T is the type that
// is computed in: float, or double for f64 tensors.

#include "attnscope/dtype.h"

#include <cstdint>

namespace attnscope::cpu {

template <typename T>
struct RowKernels {
  const char* isa;
  // dst[i] = src[i·stride] widened (or narrowed from f64, finite numbers to finite ones) to T; bool gives 0
  // or 1.
  void (*load)(const void* src, DType dtype, int64_t stride, int64_t n, T* dst);
  // dst[i·stride] = src[i], rounded to nearest even.
  void (*store)(const T* src, int64_t n, void* dst, DType dtype, int64_t stride);
  void (*scale)(const T* src, T factor, int64_t n, T* dst);
  // x += bias, but a bias of −inf gives −inf whatever x is: a mask selects, it does not compute.
  void (*add_select)(const T* bias, int64_t n, T* x);
  // x = −inf where keep is 0.
  void (*keep_or_neg_inf)(const uint8_t* keep, int64_t n, T* x);
  void (*softcap)(T cap, int64_t n, T* x);
  T (*max)(const T* x, int64_t n);  // NaN is passed over; −inf when empty
  // dst = exp(src − max) and its sum; NaN propagates to both. Below exp(−87) (−708 for double) dst is 0.
  double (*exp_sum)(const T* src, T max, int64_t n, T* dst);
  bool (*all_finite)(const T* x, int64_t n);
  void (*is_neg_inf)(const T* x, int64_t n, uint8_t* dst);
  // Weights of score row `row`, keys 0 … n−1: times 0 where dropped (NaN stays NaN), else times `keep_scale`
  // (p in (0, 1)).
  void (*dropout)(uint64_t seed, uint64_t offset, uint64_t row, uint32_t threshold, T keep_scale, int64_t n,
                  T* x);

  // Register tile of the matrix product: kTileRows × tile_cols of C += A·B over k, A row-major with row
  // stride lda (a multiple of tile_rows rows readable), B packed [k][tile_cols], C row-major with row stride
  // ldc.
  int tile_rows;
  int tile_cols;
  void (*tile)(int64_t k, const T* a, int64_t lda, const T* b, T* c, int64_t ldc);
  // B packed from columns that are contiguous along k: dst[k][tile_cols] of `cols` rows of src.
  void (*transpose)(const T* src, int64_t src_stride, int64_t cols, int64_t k, T* dst);
};

// The best table for this machine or the lesser one that was asked for (cpu_common/isa.h).
template <typename T>
const RowKernels<T>& row_kernels();
template <>
const RowKernels<float>& row_kernels<float>();
template <>
const RowKernels<double>& row_kernels<double>();

}  // namespace attnscope::cpu
