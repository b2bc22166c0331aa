#pragma once
// What rows see in the f32 kernel: bool masks, biases and the intervals of causal modes, windows and lengths.

#include "backends/cuda_efficient/f32_products.cuh"
#include "backends/cuda_mma/geometry.cuh"

namespace attnscope::efficient_f32 {

using mma::Interval;
using mma::Place;


// Two neighbouring elements of a row of the mask as floats (bool: 1 or 0); `one`: the second does not exist.
template <MaskType kType>
ATTNSCOPE_D float2 mask_pair(const void* row, i64 at, i64 stride, bool paired, bool one) {
  if constexpr (kType == MaskType::kBool) {
    const auto* x = static_cast<const tile::u8*>(row);
    if (paired && !one) {
      const u32 both = *reinterpret_cast<const tile::u16*>(x + at);
      return {(both & 0xFF) != 0 ? 1.0f : 0.0f, both >= 0x100 ? 1.0f : 0.0f};
    }
    return {x[at * stride] != 0 ? 1.0f : 0.0f, one ? 0.0f : x[(at + 1) * stride] != 0 ? 1.0f : 0.0f};
  } else if constexpr (kType == MaskType::kF32) {
    const auto* x = static_cast<const float*>(row);
    if (paired && !one) return *reinterpret_cast<const float2*>(x + at);
    return {x[at * stride], one ? 0.0f : x[(at + 1) * stride]};
  } else if constexpr (kType == MaskType::kF64) {
    const auto* x = static_cast<const double*>(row);
    // A finite value past f32 stays finite: only −∞ masks.
    const auto narrow = [](double d) {
      return isinf(d) ? float(d) : float(fmin(fmax(d, -3.4028234663852886e38), 3.4028234663852886e38));
    };
    return {narrow(x[at * stride]), one ? 0.0f : narrow(x[(at + 1) * stride])};
  } else {
    const auto* x = static_cast<const tile::u16*>(row);
    const auto widen = [](u32 bits) {
      if constexpr (kType == MaskType::kBf16) return __uint_as_float(bits << 16);
      float y;
      asm("{ .reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(y) : "h"(static_cast<tile::u16>(bits)));
      return y;
    };
    if (paired && !one) {
      const u32 both = *reinterpret_cast<const u32*>(x + at);
      return {widen(both & 0xFFFF), widen(both >> 16)};
    }
    return {widen(x[at * stride]), one ? 0.0f : widen(x[(at + 1) * stride])};
  }
}

// What a warp knows of its rows; the rows' own intervals wait in shared memory, for the few tiles that need
// them.
template <class C>
struct Rows {
  const Interval* intervals;  // of the warp's rows
  const int* diagonals;
  int first, end;          // row 16i + 8h + g of the warp is row first + 16i + 8h of the head (those past the
                           // end repeat the last one)
  int seen_from, seen_to;  // keys that some row of the warp sees
  int all_from, all_to;    // keys that all of them see

  ATTNSCOPE_D int row(int i, int h) const { return min(first + 16 * i + 8 * h, end - 1); }
};

// Calls use(i, h, j, pair, key) for every pair of neighbouring keys of a tile, with the mask's elements.
template <class C, MaskType kType, class Use>
ATTNSCOPE_D void for_mask_pairs(const Params& p, const Rows<C>& rows, const char* base, int element,
                                int first, int t, Use use) {
  const bool paired = p.mask.vector_bytes >= 2 * element;
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const char* row = base + rows.row(i, h) * p.mask.row * element;
#pragma unroll
      for (int j = 0; j < C::kNTiles; ++j) {
        const int key = first + 8 * j + 2 * t;
        float2 pair{0, 0};
        if (key < p.keys) pair = mask_pair<kType>(row, key, p.mask.column, paired, key + 1 >= p.keys);
        use(i, h, j, pair, key);
      }
    }
}

ATTNSCOPE_D int element_bytes(MaskType type) {
  return type == MaskType::kBool ? 1 : type == MaskType::kF32 ? 4 : type == MaskType::kF64 ? 8 : 2;
}

template <class C, class Use>
ATTNSCOPE_D void for_bias_pairs(const Params& p, const Rows<C>& rows, const char* base, int first, int t,
                                Use use) {
  switch (p.mask.type) {
    case MaskType::kF32: return for_mask_pairs<C, MaskType::kF32>(p, rows, base, 4, first, t, use);
    case MaskType::kBf16: return for_mask_pairs<C, MaskType::kBf16>(p, rows, base, 2, first, t, use);
    case MaskType::kF16: return for_mask_pairs<C, MaskType::kF16>(p, rows, base, 2, first, t, use);
    case MaskType::kF64: return for_mask_pairs<C, MaskType::kF64>(p, rows, base, 8, first, t, use);
    default: return;
  }
}

// Which elements of a tile a row keeps, one bit each: bit 16h + 2j + n of word i.
template <class C>
ATTNSCOPE_D void kept_bits(const Params& p, const Rows<C>& rows, const char* base, int first, int t,
                           u32 (&bits)[C::kMTiles]) {
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i) bits[i] = p.mask.type == MaskType::kNone ? 0xFFFFFFFFu : 0;
  if (p.mask.type == MaskType::kNone) return;
  const float drops = p.mask.type == MaskType::kBool ? 0.0f : minus_infinity();
  const auto note = [&](int i, int h, int j, float2 pair, int) {
    if (pair.x != drops) bits[i] |= 1u << (16 * h + 2 * j);
    if (pair.y != drops) bits[i] |= 2u << (16 * h + 2 * j);
  };
  if (p.mask.type == MaskType::kBool)
    for_mask_pairs<C, MaskType::kBool>(p, rows, base, 1, first, t, note);
  else
    for_bias_pairs<C>(p, rows, base, first, t, note);
}

// The bits of keys inside the rows' intervals.
template <class C>
ATTNSCOPE_D u32 interval_bits(const Rows<C>& rows, int i, int first, int g, int t) {
  u32 bits = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Interval keys = rows.intervals[16 * i + 8 * h + g];
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int key = first + 8 * j + 2 * t + n;
        if (key >= keys.begin && key < keys.end) bits |= 1u << (16 * h + 2 * j + n);
      }
  }
  return bits;
}

}  // namespace attnscope::efficient_f32
