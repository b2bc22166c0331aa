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

// ---- Bool masks: 64 bits a row

// Bit n: the row keeps key n of a tile.
template <int kKeys>
struct BitsOf {
  using Type = u32;
};
template <>
struct BitsOf<64> {
  using Type = u64;
};
template <class C>
using Bits = typename BitsOf<C::kKeys>::Type;
template <class C>
using RowBits = Bits<C>[C::kMTiles][2];

// A quad shares a row of a tile: each lane holds a quarter of its bytes.
template <class C>
struct BoolTile {
  static constexpr int kQuarter = C::kKeys / 4;
  u32 words[C::kMTiles][2][kQuarter / 4];

  ATTNSCOPE_D void load(const Params& p, const Rows<C>& rows, const char* base, int first, int t) {
    const int key = first + kQuarter * t;
    const bool whole = p.mask.vector_bytes >= kQuarter && key + kQuarter <= p.keys;
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const auto* row = reinterpret_cast<const tile::u8*>(base) + rows.row(i, h) * p.mask.row;
        u32(&w)[kQuarter / 4] = words[i][h];
        if (whole) {
          if constexpr (kQuarter == 16) {
            const uint4 x = *reinterpret_cast<const uint4*>(row + key);
            w[0] = x.x, w[1] = x.y, w[2] = x.z, w[3] = x.w;
          } else if constexpr (kQuarter == 8) {
            const uint2 x = *reinterpret_cast<const uint2*>(row + key);
            w[0] = x.x, w[1] = x.y;
          } else {
            w[0] = *reinterpret_cast<const u32*>(row + key);
          }
          continue;
        }
#pragma unroll
        for (int n = 0; n < kQuarter; ++n) {
          const u32 byte = key + n < p.keys ? row[(key + n) * p.mask.column] : 0;
          w[n / 4] = n % 4 == 0 ? byte : w[n / 4] | byte << (8 * (n % 4));
        }
      }
  }

  ATTNSCOPE_D void to_bits(RowBits<C>& bits, int t) const {
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Bits<C> mine = 0;
#pragma unroll
        for (int n = 0; n < kQuarter / 4; ++n) {
          const u32 x = words[i][h][n];
          const u32 set =
              (((x & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) | x) >> 7 & 0x01010101u;  // 1 in a byte that is not 0
          mine |= Bits<C>((set * 0x10204080u) >> 28) << (4 * n);
        }
        mine <<= kQuarter * t;
        mine |= __shfl_xor_sync(0xFFFFFFFFu, mine, 1);
        bits[i][h] = mine | __shfl_xor_sync(0xFFFFFFFFu, mine, 2);
      }
  }
};

// The keys of a tile that a row's interval holds.
ATTNSCOPE_D u64 interval_bits(const Interval& keys, int first) {
  const int begin = max(keys.begin - first, 0), end = min(keys.end - first, 64);
  if (begin >= end) return 0;
  return (~0ull << begin) & (~0ull >> (64 - end));
}

// ---- Biases

ATTNSCOPE_D int element_bytes(MaskType type) {
  return type == MaskType::kBool ? 1 : type == MaskType::kF32 ? 4 : type == MaskType::kF64 ? 8 : 2;
}

// Calls use(i, h, j, pair) for every pair of neighbouring keys of a tile with the bias's elements, read from
// where they are.
template <class C, MaskType kType, class Use>
ATTNSCOPE_D void for_global_pairs(const Params& p, const Rows<C>& rows, const char* base, int element,
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
        use(i, h, j, pair);
      }
    }
}

// The same from the block's tile in shared memory (`tile`: the warp's first row).
template <class C, MaskType kType, class Use>
ATTNSCOPE_D void for_shared_pairs(const char* tile, int element, int g, int t, Use use) {
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const char* row = tile + (16 * i + 8 * h + g) * (C::kKeys + C::kBiasPad) * element;
#pragma unroll
      for (int j = 0; j < C::kNTiles; ++j) use(i, h, j, mask_pair<kType>(row, 8 * j + 2 * t, 1, true, false));
    }
}

ATTNSCOPE_D bool has_bias(const Params& p) {
  return p.mask.type != MaskType::kNone && p.mask.type != MaskType::kBool;
}
// May a tile of the bias be copied in 16-byte pieces?
template <class C>
ATTNSCOPE_D bool bias_in_tiles(const Params& p) {
  return C::kBiasTile && has_bias(p) && p.mask.type != MaskType::kF64 && p.mask.vector_bytes == 16;
}

template <class C>
ATTNSCOPE_D void copy_bias(const Params& p, void* to, const char* base, int first_row, int first) {
  const int element = element_bytes(p.mask.type), pieces = C::kKeys * element / 16;
  const u32 shared = shared_address(to);
#pragma unroll 1
  for (int n = int(threadIdx.x); n < C::kRows * pieces; n += C::kThreads) {
    const int row = n / pieces, piece = n - row * pieces;
    const int key = first + piece * 16 / element;
    const char* from =
        base + (min(first_row + row, p.rows - 1) * p.mask.row + min(key, p.keys - 1)) * element;
    const int valid = min(max((p.keys - key) * element, 0), 16);
    copy16(shared + row * (C::kKeys + C::kBiasPad) * element + piece * 16, valid > 0 ? from : base, valid);
  }
}

// Adds the bias to natural scores; its −∞ masks whatever the score is.
template <class C>
ATTNSCOPE_D void add_bias(const Params& p, float (&s)[C::kMTiles][C::kNTiles][4], const Rows<C>& rows,
                          const char* base, const void* tile, int first, int g, int t) {
  const auto add = [&](int i, int h, int j, float2 pair) {
    float &x = s[i][j][2 * h], &y = s[i][j][2 * h + 1];
    x = pair.x == minus_infinity() ? pair.x : x + pair.x;
    y = pair.y == minus_infinity() ? pair.y : y + pair.y;
  };
  const bool tiles = bias_in_tiles<C>(p);
  const char* const shared = static_cast<const char*>(tile);
  switch (p.mask.type) {
    case MaskType::kF32:
      return tiles ? for_shared_pairs<C, MaskType::kF32>(shared, 4, g, t, add)
                   : for_global_pairs<C, MaskType::kF32>(p, rows, base, 4, first, t, add);
    case MaskType::kBf16:
      return tiles ? for_shared_pairs<C, MaskType::kBf16>(shared, 2, g, t, add)
                   : for_global_pairs<C, MaskType::kBf16>(p, rows, base, 2, first, t, add);
    case MaskType::kF16:
      return tiles ? for_shared_pairs<C, MaskType::kF16>(shared, 2, g, t, add)
                   : for_global_pairs<C, MaskType::kF16>(p, rows, base, 2, first, t, add);
    case MaskType::kF64: return for_global_pairs<C, MaskType::kF64>(p, rows, base, 8, first, t, add);
    default: return;
  }
}

}  // namespace attnscope::efficient_f32
