#pragma once
// Attention in f32 at f32 accuracy, one kernel for every GPU since sm_80.
//
//   O = dropout(softmax(mask(softcap(scale · Q Kᵀ) + bias − slope·|d − j|))) V, online over tiles of keys
//
// A block takes kRows query rows of one head; each warp owns 16·kMTiles of them and needs no other warp for
// its softmax. Products run on tensor cores in three tf32 products an element (f32_tile.cuh): Q, K and V stay
// f32 in shared memory, and a warp splits what it reads. The unit adds with truncation; so that its error
// does not grow with the number of keys, every tile's P·V starts at zero and is added to O by an ordinary
// FMA, which the rescaling of O needs anyway.
//
//   shared memory   Q [rows × E] · K [keys × E] · V [keys × E]
//   a step          wait K · S = Q Kᵀ · look for the next tile with something to see, copy its K · softmax ·
//                   wait V · O = α·O + P V · copy the next V
//
// Bound: the tensor cores, at a third of their tf32 rate. Measurements: docs/kernels/efficient_f32.md.

#include "attention/dropout_bits.h"
#include "backends/cuda_efficient/f32_tile.cuh"
#include "backends/cuda_mma/geometry.cuh"
#include "backends/cuda_mma/params.h"
#include "cuda/kernels_tile/math.cuh"

namespace attnscope::efficient_f32 {

using mma::Interval;
using mma::MaskType;
using mma::Params;
using mma::Place;
using mma::Strided;

template <int kE_, int kMTiles_, int kKeys_, int kWarps_, bool kFeatured_>
struct Config {
  static constexpr int kE = kE_;            // columns of Q, K and V; smaller ones are filled with zeros
  static constexpr int kMTiles = kMTiles_;  // of 16 rows a warp
  static constexpr int kKeys = kKeys_;      // a step
  static constexpr int kWarps = kWarps_;
  static constexpr bool kFeatured =
      kFeatured_;  // masks, bias, softcap, slopes, dropout, pages, any alignment
  static constexpr int kRows = 16 * kMTiles * kWarps;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kChunks = kE / 4;  // of 16 bytes a row
  static constexpr int kNTiles = kKeys / 8;
  static_assert(kE % 32 == 0, "the swizzle permutes eight chunks");
  static_assert(kKeys % 16 == 0 && kKeys <= 64, "a row's mask bits of a tile fit half a word");
  static_assert(kKeys <= kE, "the weights of a warp fit where its rows of Q lie");
};

template <class C>
struct SharedStorage {
  float q[C::kRows * C::kE];
  float k[C::kKeys * C::kE];
  float v[C::kKeys * C::kE];
  int first, last;  // keys that some row of the block sees
};

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

ATTNSCOPE_D float minus_infinity() {
  return -tile::infinity();
}

// ---- Copies into shared memory
// ------------------------------------------------------------------------------

ATTNSCOPE_D const float* floats(const Strided& s, i64 batch, i64 head) {
  return static_cast<const float*>(s.data) + batch * s.batch + head * s.head;
}

// One row's chunk: columns 4·chunk … +3, zeros past the end.
ATTNSCOPE_D void copy_chunk(u32 to, const float* row, i64 stride, int chunk, int columns, bool aligned,
                            bool valid) {
  const int left = valid ? columns - 4 * chunk : 0;
  if (aligned) {
    copy16(to, left > 0 ? row + 4 * chunk : row, left > 0 ? 16 : 0);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    copy4(to + 4 * i, i < left ? row + (4 * chunk + i) * stride : row, i < left ? 4 : 0);
}

// A tile of K or V: rows first … first + kKeys − 1 of `base`; those past `end` become zeros.
template <class C, bool kIsV>
ATTNSCOPE_D void copy_keys(const Params& p, float* to, const float* base, int batch, int first) {
  const Strided& s = kIsV ? p.v : p.k;
  const int columns = kIsV ? p.value_columns : p.columns;
  const bool aligned = !C::kFeatured || (kIsV ? p.v_aligned : p.k_aligned);
  const u32 shared = shared_address(to);
#pragma unroll 4
  for (int n = int(threadIdx.x); n < C::kKeys * C::kChunks; n += C::kThreads) {
    const int row = n / C::kChunks, chunk = n % C::kChunks;
    const int key = first + row;
    const bool valid = key < p.keys;
    const float* from = base;
    if (C::kFeatured && p.paging.table != nullptr) {
      if (valid) {
        const int page = key / p.paging.page_size;
        from += p.paging.table[batch * p.paging.table_batch + page * p.paging.table_page] * s.batch +
                (key - page * p.paging.page_size) * s.row;
      }
    } else if (valid) {
      from += key * s.row;
    }
    const int place = chunk ^ (kIsV ? swizzle_v(row) : swizzle_qk(row));
    copy_chunk(shared + (row * C::kChunks + place) * 16, from, s.column, chunk, columns, aligned, valid);
  }
}

// This warp's rows of Q.
template <class C>
ATTNSCOPE_D void copy_queries(const Params& p, float* to, const float* base, int first_row, int warp) {
  constexpr int kWarpRows = 16 * C::kMTiles;
  const bool aligned = !C::kFeatured || p.q_aligned;
  const u32 shared = shared_address(to);
#pragma unroll 4
  for (int n = int(threadIdx.x) % 32; n < kWarpRows * C::kChunks; n += 32) {
    const int row = warp * kWarpRows + n / C::kChunks, chunk = n % C::kChunks;
    const bool valid = first_row + row < p.rows;
    const float* from = base + (valid ? (first_row + row) * p.q.row : 0);
    copy_chunk(shared + (row * C::kChunks + (chunk ^ swizzle_qk(row))) * 16, from, p.q.column, chunk,
               p.columns, aligned, valid);
  }
}

// ---- Products
// -----------------------------------------------------------------------------------------------

template <class C>
using Scores = float[C::kMTiles][C::kNTiles][4];

template <class C>
ATTNSCOPE_D void zero(Scores<C>& s) {
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) s[i][j][c] = 0;
}

// S = Q Kᵀ for the warp's rows (q: its first row).
template <class C>
ATTNSCOPE_D void score_products(Scores<C>& s, const float4* q, const float4* k, int g, int t) {
  zero<C>(s);
#pragma unroll 2
  for (int step = 0; step < C::kE / 16; ++step) {
    const int chunk = chunk_qk(step, g, t);
    SplitA a[C::kMTiles][2];
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float4 x = q[(16 * i + 8 * h + g) * C::kChunks + chunk];
        a[i][0].set(h, x.x), a[i][0].set(2 + h, x.y);
        a[i][1].set(h, x.z), a[i][1].set(2 + h, x.w);
      }
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j) {
      const float4 y = k[(8 * j + g) * C::kChunks + chunk];
      const Split b0 = split(y.x), b1 = split(y.y), b2 = split(y.z), b3 = split(y.w);
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i) mma_f32(s[i][j], a[i][0], b0, b1);
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i) mma_f32(s[i][j], a[i][1], b2, b3);
    }
  }
}

// The same by FMA, already scaled: for a tile whose products are not all finite, because an operand is not or
// because a sum overflowed. Multiplying both sides by √|scale| keeps what fits after scaling finite.
template <class C>
ATTNSCOPE_D void score_products_exactly(Scores<C>& s, const float4* q4, const float4* k4, int g, int t,
                                        float scale) {
  const float* q = reinterpret_cast<const float*>(q4);
  const float* k = reinterpret_cast<const float*>(k4);
  const float root = sqrtf(fabsf(scale)), signed_root = scale < 0 ? -root : root;
  zero<C>(s);
#pragma unroll 1
  for (int e = 0; e < C::kE; ++e) {
    const auto at = [&](int row) { return (row * C::kChunks + ((e / 4) ^ swizzle_qk(row))) * 4 + e % 4; };
    float x[C::kMTiles][2];
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) x[i][h] = q[at(16 * i + 8 * h + g)] * signed_root;
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float y = k[at(8 * j + 2 * t + n)] * root;
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h) s[i][j][2 * h + n] = fmaf(x[i][h], y, s[i][j][2 * h + n]);
      }
  }
}

// P·V for columns 32w … 32w+31; acc[i][m][c]: row 16i + 8(c/2) + g, column 32w + 8t + 4(c%2) + m.
template <class C>
ATTNSCOPE_D void value_products(float (&acc)[C::kMTiles][4][4], const Scores<C>& s, const float4* v, int w,
                                int g, int t) {
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int c = 0; c < 4; ++c) acc[i][m][c] = 0;
  const int place = chunk_v(w, g, t);
#pragma unroll
  for (int n = 0; n < C::kNTiles; ++n) {
    SplitA a[C::kMTiles];
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i) {
      a[i].set(0, s[i][n][0]), a[i].set(1, s[i][n][2]);
      a[i].set(2, s[i][n][1]), a[i].set(3, s[i][n][3]);
    }
    const float4 even = v[(8 * n + 2 * t) * C::kChunks + place],
                 odd = v[(8 * n + 2 * t + 1) * C::kChunks + place];
    const float b0[4] = {even.x, even.y, even.z, even.w}, b1[4] = {odd.x, odd.y, odd.z, odd.w};
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      const Split x = split(b0[m]), y = split(b1[m]);
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i) mma_f32(acc[i][m], a[i], x, y);
    }
  }
}

// The same by FMA from weights that lie in shared memory, [row][key]. A masked key's weight is −0: what its
// value holds is not looked at.
template <class C>
ATTNSCOPE_D void value_products_exactly(float (&acc)[C::kMTiles][4][4], const float* weights,
                                        const float4* v4, int w, int g, int t) {
  const float* v = reinterpret_cast<const float*>(v4);
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int m = 0; m < 4; ++m)
#pragma unroll
      for (int c = 0; c < 4; ++c) acc[i][m][c] = 0;
#pragma unroll 1
  for (int key = 0; key < C::kKeys; ++key)
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float weight = weights[(16 * i + 8 * h + g) * C::kKeys + key];
        if (__float_as_uint(weight) == 0x80000000u) continue;
#pragma unroll
        for (int c = 0; c < 2; ++c)
#pragma unroll
          for (int m = 0; m < 4; ++m) {
            const int chunk = 8 * w + 2 * t + c;
            const float value = v[(key * C::kChunks + (chunk ^ swizzle_v(key))) * 4 + m];
            acc[i][m][2 * h + c] = fmaf(weight, value, acc[i][m][2 * h + c]);
          }
      }
}

template <int kA, int kB>
ATTNSCOPE_D bool all_finite(const float (&x)[kA][kB][4]) {
  float zero_or_nan = 0;
#pragma unroll
  for (int i = 0; i < kA; ++i)
#pragma unroll
    for (int j = 0; j < kB; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) zero_or_nan = fmaf(x[i][j][c], 0.0f, zero_or_nan);
  return __all_sync(0xFFFFFFFFu, zero_or_nan == 0.0f);
}

// ---- Masks
// --------------------------------------------------------------------------------------------------

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

// One thread's view of the block's rows: 2 rows in each of the warp's 16-row tiles.
template <class C>
struct Rows {
  int begin[C::kMTiles][2], end[C::kMTiles][2];  // keys that the row sees
  int diagonal[C::kMTiles][2];
  int row[C::kMTiles][2];          // in the head; rows past the end repeat the last one
  int warp_first, warp_last;       // keys that some row of the warp sees
  int warp_all_from, warp_all_to;  // keys that all see
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
      const char* row = base + rows.row[i][h] * p.mask.row * element;
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
ATTNSCOPE_D u32 interval_bits(const Rows<C>& rows, int i, int first, int t) {
  u32 bits = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int key = first + 8 * j + 2 * t + n;
        if (key >= rows.begin[i][h] && key < rows.end[i][h]) bits |= 1u << (16 * h + 2 * j + n);
      }
  return bits;
}

// ---- The kernel
// -----------------------------------------------------------------------------------------------

template <class C>
ATTNSCOPE_D Rows<C> rows_of(const Params& p, const Place& place, int warp, int g) {
  Rows<C> r;
  int first = mma::kFar, last = 0, from = 0, to = mma::kFar;
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = place.row_block * C::kRows + (warp * C::kMTiles + i) * 16 + 8 * h + g;
      r.row[i][h] = row < p.rows ? row : p.rows - 1;
      const Interval keys = mma::visible(p, place.batch, r.row[i][h], r.diagonal[i][h]);
      r.begin[i][h] = keys.begin, r.end[i][h] = keys.end;
      if (keys.begin < keys.end) first = min(first, keys.begin), last = max(last, keys.end);
      from = max(from, keys.begin), to = min(to, keys.end);
    }
  r.warp_first = __reduce_min_sync(0xFFFFFFFFu, first), r.warp_last = __reduce_max_sync(0xFFFFFFFFu, last);
  r.warp_all_from = __reduce_max_sync(0xFFFFFFFFu, from), r.warp_all_to = __reduce_min_sync(0xFFFFFFFFu, to);
  return r;
}

// Scores to weights, in place: natural scores minus their maximum, exponentiated; sums before dropout.
template <class C>
struct Softmax {
  float max[C::kMTiles][2], sum[C::kMTiles][2], rescale[C::kMTiles][2];

  ATTNSCOPE_D void start() {
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) max[i][h] = minus_infinity(), sum[i][h] = 0;
  }

  ATTNSCOPE_D void step(Scores<C>& s) {
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = minus_infinity();
#pragma unroll
        for (int j = 0; j < C::kNTiles; ++j) top = fmaxf(top, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
        top = fmaxf(max[i][h], tile::quad_max(top));
        const float base = top == minus_infinity() ? 0.0f : top;
        rescale[i][h] = tile::exp2_unit((max[i][h] - base) * kLog2E);
        max[i][h] = top;
        float added = 0;
#pragma unroll
        for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            float& x = s[i][j][2 * h + n];
            x = tile::exp2_unit((x - base) * kLog2E);
            added += x;
          }
        sum[i][h] = fmaf(sum[i][h], rescale[i][h], added);
      }
  }
};

// Weights that dropout removes become 0. Two lanes share the four random words of four neighbouring keys:
// each draws them for one of two rows, and they swap halves.
template <class C>
ATTNSCOPE_D void drop(const Params& p, Scores<C>& s, const Rows<C>& rows, u64 seed, u64 offset, i64 head_row,
                      int first, int t) {
  const bool odd = t & 1;
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j) {
      const u64 row = u64(head_row + rows.row[i][odd ? 1 : 0]);
      const Philox4 words = dropout_words(seed, offset, row, u64(first + 8 * j + (t / 2) * 4));
      const u32 got0 = __shfl_xor_sync(0xFFFFFFFFu, odd ? words.x[0] : words.x[2], 1);
      const u32 got1 = __shfl_xor_sync(0xFFFFFFFFu, odd ? words.x[1] : words.x[3], 1);
      const u32 mine[4] = {odd ? got0 : words.x[0], odd ? got1 : words.x[1], odd ? words.x[2] : got0,
                           odd ? words.x[3] : got1};
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (mine[c] < p.dropout.threshold) s[i][j][c] = 0;
    }
}

ATTNSCOPE_D float vector_value(const mma::Vector& v, i64 at) {
  switch (v.type) {
    case MaskType::kF32: return static_cast<const float*>(v.data)[at];
    case MaskType::kF64: return float(static_cast<const double*>(v.data)[at]);
    case MaskType::kBf16: return mask_pair<MaskType::kBf16>(v.data, at, 1, false, true).x;
    case MaskType::kF16: return mask_pair<MaskType::kF16>(v.data, at, 1, false, true).x;
    default: return minus_infinity();
  }
}

// Scores as the products left them to masked natural scores. `full`: every row sees the whole tile.
template <class C>
ATTNSCOPE_D void finish_scores(const Params& p, Scores<C>& s, const Rows<C>& rows, const char* mask,
                               float factor, float slope, bool full, const u32 (&kept)[C::kMTiles], int first,
                               int t) {
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) s[i][j][c] *= factor;
  if constexpr (C::kFeatured) {
    if (p.softcap > 0) {
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
        for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c) s[i][j][c] = p.softcap * tanhf(s[i][j][c] / p.softcap);
    }
    if (p.mask.type != MaskType::kNone && p.mask.type != MaskType::kBool)
      for_bias_pairs<C>(p, rows, mask, first, t, [&](int i, int h, int j, float2 pair, int) {
        s[i][j][2 * h] += pair.x, s[i][j][2 * h + 1] += pair.y;
      });
    if (p.slopes.data != nullptr) {
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
        for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c)
            s[i][j][c] = fmaf(-slope, fabsf(float(rows.diagonal[i][c / 2] - (first + 8 * j + 2 * t + c % 2))),
                              s[i][j][c]);
    }
  }
  if (full && !(C::kFeatured && p.mask.type != MaskType::kNone)) return;
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i) {
    u32 bits = full ? 0xFFFFFFFFu : interval_bits<C>(rows, i, first, t);
    if constexpr (C::kFeatured) bits &= kept[i];
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if ((bits >> (16 * (c / 2) + 2 * j + c % 2) & 1) == 0) s[i][j][c] = minus_infinity();
  }
}

template <class C>
using Output = float[C::kE / 32][C::kMTiles][4][4];

// O = α·O + P V. Values that are not finite are taken through the exact way; P then lies where the warp's
// rows of Q were, which are copied again.
template <class C>
ATTNSCOPE_D void accumulate(const Params& p, Output<C>& o, Scores<C>& s, const Softmax<C>& softmax, float4* q,
                            const float4* v, int g, int t, bool& q_lost) {
#pragma unroll
  for (int w = 0; w < C::kE / 32; ++w) {
    if (32 * w >= p.value_columns) break;
    float acc[C::kMTiles][4][4];
    value_products<C>(acc, s, v, w, g, t);
    if (!all_finite(acc)) {
      float* weights = reinterpret_cast<float*>(q);
      if (!q_lost) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
          for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c)
              weights[(16 * i + 8 * (c / 2) + g) * C::kKeys + 8 * j + 2 * t + c % 2] = s[i][j][c];
        __syncwarp();
        q_lost = true;
      }
      value_products_exactly<C>(acc, weights, v, w, g, t);
    }
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          o[w][i][m][c] = fmaf(o[w][i][m][c], softmax.rescale[i][c / 2], acc[i][m][c]);
  }
}

template <class C>
ATTNSCOPE_D void write_rows(const Params& p, const Place& place, const Output<C>& o, Softmax<C>& softmax,
                            const Rows<C>& rows, int warp, int g, int t) {
  const bool has_sinks = p.sinks.data != nullptr;
  const float sink = has_sinks ? vector_value(p.sinks, place.head * p.sinks.head) : minus_infinity();
  float* const out = static_cast<float*>(p.out) + place.batch * p.out_batch + place.head * p.out_head;
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = tile::quad_sum(softmax.sum[i][h]), max = softmax.max[i][h], scale = 1;
      const bool empty = sum == 0.0f;  // a NaN is not
      if (has_sinks && !empty) {
        const float top = fmaxf(max, sink);
        scale = tile::exp2_unit((max - top) * kLog2E);
        sum = fmaf(sum, scale, tile::exp2_unit((sink - top) * kLog2E));
        max = top;
      }
      const int row = place.row_block * C::kRows + (warp * C::kMTiles + i) * 16 + 8 * h + g;
      if (row >= p.rows) continue;
      if (p.lse != nullptr && t == 0)
        p.lse[place.batch * p.lse_batch + place.head * p.lse_head + row * p.lse_row] =
            empty ? minus_infinity() : max + logf(sum);
      scale = empty || p.dropout.drop_all ? 0.0f : scale / sum;
      if (C::kFeatured) scale *= p.dropout.threshold != 0 ? p.dropout.keep_scale : 1.0f;
      const bool nothing = empty || (C::kFeatured && p.dropout.drop_all);
      float* const to = out + row * p.out_row;
#pragma unroll
      for (int w = 0; w < C::kE / 32; ++w)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int column = 32 * w + 8 * t + 4 * c;
          if (column >= p.value_columns) continue;
          float x[4];
#pragma unroll
          for (int m = 0; m < 4; ++m) x[m] = nothing ? 0.0f : o[w][i][m][2 * h + c] * scale;
          if (p.out_aligned) {
            *reinterpret_cast<float4*>(to + column) = make_float4(x[0], x[1], x[2], x[3]);
          } else {
#pragma unroll
            for (int m = 0; m < 4; ++m)
              if (column + m < p.value_columns) to[(column + m) * p.out_column] = x[m];
          }
        }
    }
}

template <class C>
ATTNSCOPE_D void attention(const Params& p, SharedStorage<C>& shared) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const Place place = mma::place_of(p, int(blockIdx.x));
  const Rows<C> rows = rows_of<C>(p, place, warp, g);
  if (threadIdx.x == 0) shared.first = mma::kFar, shared.last = 0;
  __syncthreads();
  if (lane == 0) {
    atomicMin(&shared.first, rows.warp_first);
    atomicMax(&shared.last, rows.warp_last);
  }
  const i64 kv_batch = C::kFeatured && p.paging.table != nullptr ? 0 : place.batch;
  const float* const q = floats(p.q, place.batch, place.head);
  const float* const k = floats(p.k, kv_batch, place.head / p.k_group);
  const float* const v = floats(p.v, kv_batch, place.head / p.v_group);
  const int first_row = place.row_block * C::kRows;
  copy_queries<C>(p, shared.q, q, first_row, warp);
  __syncthreads();
  const int end = shared.last;
  int tile = shared.first / C::kKeys * C::kKeys;

  const char* mask = nullptr;
  float slope = 0;
  u64 seed = p.dropout.seed, offset = p.dropout.offset;
  u32 kept[C::kMTiles], next_kept[C::kMTiles];
  if constexpr (C::kFeatured) {
    mask = static_cast<const char*>(p.mask.data) +
           (place.batch * p.mask.batch + place.head * p.mask.head) * element_bytes(p.mask.type);
    if (p.slopes.data != nullptr)
      slope = vector_value(p.slopes, place.batch * p.slopes.batch + place.head * p.slopes.head);
    if (p.dropout.seed_offset != nullptr) seed = p.dropout.seed_offset[0], offset = p.dropout.seed_offset[1];
  }
  // The first tile at or after `from` of which some row keeps something; its bits.
  const auto find_tile = [&](int from) {
    if constexpr (C::kFeatured) {
      for (; from < end; from += C::kKeys) {
        kept_bits<C>(p, rows, mask, from, t, next_kept);
        if (p.mask.type == MaskType::kNone) break;
        u32 any = 0;
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i) any |= next_kept[i] & interval_bits<C>(rows, i, from, t);
        if (__syncthreads_or(any != 0)) break;
      }
    }
    return from;
  };

  float4* const warp_q = reinterpret_cast<float4*>(shared.q) + warp * 16 * C::kMTiles * C::kChunks;
  const float4* const shared_k = reinterpret_cast<const float4*>(shared.k);
  const float4* const shared_v = reinterpret_cast<const float4*>(shared.v);
  Output<C> o;
#pragma unroll
  for (int w = 0; w < C::kE / 32; ++w)
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
      for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int c = 0; c < 4; ++c) o[w][i][m][c] = 0;
  Softmax<C> softmax;
  softmax.start();

  tile = find_tile(tile);
  if (tile < end) copy_keys<C, false>(p, shared.k, k, place.batch, tile);
  commit_copies();
  if (tile < end) copy_keys<C, true>(p, shared.v, v, place.batch, tile);
  commit_copies();
  while (tile < end) {
    // Warps whose rows see nothing of the tile only copy and wait.
    const bool working = tile < rows.warp_last && tile + C::kKeys > rows.warp_first;
    const bool full = tile >= rows.warp_all_from && tile + C::kKeys <= rows.warp_all_to;
#pragma unroll
    for (int i = 0; i < C::kMTiles; ++i) kept[i] = next_kept[i];
    Scores<C> s;
    float factor = p.scale;
    wait_copies<1>();
    __syncthreads();
    if (working) {
      score_products<C>(s, warp_q, shared_k, g, t);
      if (!all_finite(s)) {
        score_products_exactly<C>(s, warp_q, shared_k, g, t, p.scale);
        factor = 1;
      }
    }
    __syncthreads();
    const int next = find_tile(tile + C::kKeys);
    if (next < end) copy_keys<C, false>(p, shared.k, k, place.batch, next);
    commit_copies();
    if (working) {
      finish_scores<C>(p, s, rows, mask, factor, slope, full, kept, tile, t);
      const bool masked = !full || (C::kFeatured && p.mask.type != MaskType::kNone);
      u32 holes[C::kMTiles];
      if (masked) {  // remembered: a masked weight becomes −0
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i) {
          holes[i] = 0;
#pragma unroll
          for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c)
              if (s[i][j][c] == minus_infinity()) holes[i] |= 1u << (16 * (c / 2) + 2 * j + c % 2);
        }
      }
      softmax.step(s);
      if constexpr (C::kFeatured)
        if (p.dropout.threshold != 0)
          drop<C>(p, s, rows, seed, offset, (i64(place.batch) * p.heads + place.head) * p.rows, tile, t);
      if (masked) {
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
          for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
            for (int c = 0; c < 4; ++c)
              if (holes[i] >> (16 * (c / 2) + 2 * j + c % 2) & 1) s[i][j][c] = -0.0f;
      }
    }
    wait_copies<1>();
    __syncthreads();
    if (working) {
      bool q_lost = false;
      accumulate<C>(p, o, s, softmax, warp_q, shared_v, g, t, q_lost);
      if (q_lost) {
        __syncwarp();
        copy_queries<C>(p, shared.q, q, first_row, warp);
        commit_copies();
        wait_copies<0>();
        __syncwarp();
      }
    }
    __syncthreads();
    if (next < end) copy_keys<C, true>(p, shared.v, v, place.batch, next);
    commit_copies();
    tile = next;
  }
  wait_copies<0>();
  write_rows<C>(p, place, o, softmax, rows, warp, g, t);
}

}  // namespace attnscope::efficient_f32
