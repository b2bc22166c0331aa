#pragma once
// The f32 kernel's configuration, its copies into shared memory and its products, with the exact ways that
// non-finite operands take.

#include "backends/cuda_efficient/f32_tile.cuh"
#include "backends/cuda_mma/geometry.cuh"
#include "backends/cuda_mma/params.h"
#include "cuda/kernels_tile/math.cuh"

namespace attnscope::efficient_f32 {

using mma::MaskType;
using mma::Params;
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
  // A tile of the bias is copied ahead where shared memory has room for it on every GPU (99 KB). Rows are 8
  // elements longer than the tile, which keeps the fragments' reads free of bank conflicts.
  static constexpr bool kBiasTile = kFeatured && kE <= 128;
  static constexpr int kBiasPad = 8;
  static_assert(kE % 32 == 0, "the swizzle permutes eight chunks");
  static_assert(kKeys % 16 == 0 && kKeys <= 64, "a row's mask bits of a tile fit half a word");
  static_assert(kKeys <= kE, "the weights of a warp fit where its rows of Q lie");
};

template <class C>
struct SharedStorage {
  float q[C::kRows * C::kE];
  float k[C::kKeys * C::kE];
  float v[C::kKeys * C::kE];
  u32 bias[C::kBiasTile ? C::kRows * (C::kKeys + C::kBiasPad) : 1];  // of any type of up to 4 bytes
  mma::Interval intervals[C::kRows];
  int diagonals[C::kRows];
  int first, last;  // keys that some row of the block sees
};

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

ATTNSCOPE_D float minus_infinity() {
  return -tile::infinity();
}

// ---- Copies into shared memory

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

// A tile of K or V: rows first … first + kKeys − 1 of `base`; those from `end` on, which no row of the block
// sees, become zeros: a block table holds anything there.
template <class C, bool kIsV>
ATTNSCOPE_D void copy_keys(const Params& p, float* to, const float* base, int batch, int first, int end) {
  const Strided& s = kIsV ? p.v : p.k;
  const int columns = kIsV ? p.value_columns : p.columns;
  const bool aligned = !C::kFeatured || (kIsV ? p.v_aligned : p.k_aligned);
  const u32 shared = shared_address(to);
#pragma unroll(C::kFeatured ? 1 : 4)
  for (int n = int(threadIdx.x); n < C::kKeys * C::kChunks; n += C::kThreads) {
    const int row = n / C::kChunks, chunk = n % C::kChunks;
    const int key = first + row;
    const bool valid = key < end;
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
#pragma unroll(C::kFeatured ? 1 : 4)
  for (int n = int(threadIdx.x) % 32; n < kWarpRows * C::kChunks; n += 32) {
    const int row = warp * kWarpRows + n / C::kChunks, chunk = n % C::kChunks;
    const bool valid = first_row + row < p.rows;
    const float* from = base + (valid ? (first_row + row) * p.q.row : 0);
    copy_chunk(shared + (row * C::kChunks + (chunk ^ swizzle_qk(row))) * 16, from, p.q.column, chunk,
               p.columns, aligned, valid);
  }
}

// ---- Products

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

// S = Q Kᵀ for the warp's rows (q: its first row). The two small products of an element add up apart, so that
// the truncation of sums strikes a third as often; sums of 64 columns are added by ordinary additions.
// Products of one kind stand together: one that waits for its sum finds others before it.
template <class C>
ATTNSCOPE_D void score_products(Scores<C>& s, const float4* q, const float4* k, int g, int t) {
  constexpr int kWanted = C::kMTiles == 1 ? 8 : 2;  // what registers hold
  constexpr int kGroup = kWanted < C::kNTiles ? kWanted : C::kNTiles;
  constexpr int kSteps = C::kE < 64 ? C::kE / 16 : 4;
  static_assert(C::kNTiles % kGroup == 0);
  zero<C>(s);
#pragma unroll
  for (int first = 0; first < C::kNTiles; first += kGroup) {
    float low[C::kMTiles][kGroup][4] = {};
#pragma unroll 1
    for (int block = 0; block < C::kE / 16; block += kSteps) {
      float high[C::kMTiles][kGroup][4] = {};
#pragma unroll(C::kMTiles == 1 && C::kE <= 128 ? 2 : 1)
      for (int step = 0; step < kSteps; ++step) {
        const int chunk = chunk_qk(block + step, g, t);
        float4 x[C::kMTiles][2], y[kGroup];
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h) x[i][h] = q[(16 * i + 8 * h + g) * C::kChunks + chunk];
#pragma unroll
        for (int j = 0; j < kGroup; ++j) y[j] = k[(8 * (first + j) + g) * C::kChunks + chunk];
#pragma unroll
        for (int product = 0; product < 2; ++product) {
          SplitA a[C::kMTiles];
          Split b[kGroup][2];
#pragma unroll
          for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              a[i].set(h, product == 0 ? x[i][h].x : x[i][h].z);
              a[i].set(2 + h, product == 0 ? x[i][h].y : x[i][h].w);
            }
#pragma unroll
          for (int j = 0; j < kGroup; ++j) {
            b[j][0] = split(product == 0 ? y[j].x : y[j].z);
            b[j][1] = split(product == 0 ? y[j].y : y[j].w);
          }
#pragma unroll
          for (int j = 0; j < kGroup; ++j)
#pragma unroll
            for (int i = 0; i < C::kMTiles; ++i) mma_tf32(low[i][j], a[i].small, b[j][0].big, b[j][1].big);
#pragma unroll
          for (int j = 0; j < kGroup; ++j)
#pragma unroll
            for (int i = 0; i < C::kMTiles; ++i) mma_tf32(high[i][j], a[i].big, b[j][0].big, b[j][1].big);
#pragma unroll
          for (int j = 0; j < kGroup; ++j)
#pragma unroll
            for (int i = 0; i < C::kMTiles; ++i) mma_tf32(low[i][j], a[i].big, b[j][0].small, b[j][1].small);
        }
      }
#pragma unroll
      for (int j = 0; j < kGroup; ++j)
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
          for (int c = 0; c < 4; ++c) s[i][first + j][c] += high[i][j][c];
    }
#pragma unroll
    for (int j = 0; j < kGroup; ++j)
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c) s[i][first + j][c] += low[i][j][c];
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

// P·V for columns 32w … 32w+31; acc[i][m][c]: row 16i + 8(c/2) + g, column 32w + 8t + 4(c%2) + m. Small
// products add up apart where a tile has many keys.
template <class C>
ATTNSCOPE_D void value_products(float (&acc)[C::kMTiles][4][4], const Scores<C>& s, const float4* v, int w,
                                int g, int t) {
  constexpr bool kApart = C::kKeys > 16;
  constexpr int kGroup = C::kMTiles == 1 ? 4 : 2;  // of m, as registers allow
  const int place = chunk_v(w, g, t);
#pragma unroll
  for (int first = 0; first < 4; first += kGroup) {
    float high[C::kMTiles][kGroup][4] = {}, apart[C::kMTiles][kGroup][4] = {};
    auto& low = kApart ? apart : high;
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
      const float x[4] = {even.x, even.y, even.z, even.w}, y[4] = {odd.x, odd.y, odd.z, odd.w};
      Split b[kGroup][2];
#pragma unroll
      for (int m = 0; m < kGroup; ++m) b[m][0] = split(x[first + m]), b[m][1] = split(y[first + m]);
#pragma unroll
      for (int m = 0; m < kGroup; ++m)
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i) mma_tf32(low[i][m], a[i].small, b[m][0].big, b[m][1].big);
#pragma unroll
      for (int m = 0; m < kGroup; ++m)
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i) mma_tf32(high[i][m], a[i].big, b[m][0].big, b[m][1].big);
#pragma unroll
      for (int m = 0; m < kGroup; ++m)
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i) mma_tf32(low[i][m], a[i].big, b[m][0].small, b[m][1].small);
    }
#pragma unroll
    for (int m = 0; m < kGroup; ++m)
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          acc[i][first + m][c] = kApart ? high[i][m][c] + apart[i][m][c] : high[i][m][c];
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

}  // namespace attnscope::efficient_f32
