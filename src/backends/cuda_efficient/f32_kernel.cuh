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
#include "backends/cuda_efficient/f32_masks.cuh"
#include "backends/cuda_efficient/f32_products.cuh"
#include "backends/cuda_mma/geometry.cuh"
#include "backends/cuda_mma/params.h"
#include "cuda/kernels_tile/math.cuh"

namespace attnscope::efficient_f32 {

template <class C>
ATTNSCOPE_D Rows<C> rows_of(const Params& p, const Place& place, SharedStorage<C>& shared, int warp, int g,
                            int t) {
  Rows<C> r;
  r.intervals = shared.intervals + warp * 16 * C::kMTiles;
  r.diagonals = shared.diagonals + warp * 16 * C::kMTiles;
  r.first = place.row_block * C::kRows + warp * 16 * C::kMTiles + g;
  r.end = p.rows;
  int seen_from = mma::kFar, seen_to = 0, all_from = 0, all_to = mma::kFar;
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      int diagonal;
      const Interval keys = mma::visible(p, place.batch, r.row(i, h), diagonal);
      const int local = warp * 16 * C::kMTiles + 16 * i + 8 * h + g;
      if (t == 0) shared.intervals[local] = keys, shared.diagonals[local] = diagonal;
      if (keys.begin < keys.end) seen_from = min(seen_from, keys.begin), seen_to = max(seen_to, keys.end);
      all_from = max(all_from, keys.begin), all_to = min(all_to, keys.end);
    }
  r.seen_from = __reduce_min_sync(0xFFFFFFFFu, seen_from),
  r.seen_to = __reduce_max_sync(0xFFFFFFFFu, seen_to);
  r.all_from = __reduce_max_sync(0xFFFFFFFFu, all_from), r.all_to = __reduce_min_sync(0xFFFFFFFFu, all_to);
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

  // `kMasked`: a masked weight becomes −0, so that the exact products know it.
  template <bool kMasked>
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
            const bool hole = kMasked && x == minus_infinity();
            x = hole ? -0.0f : tile::exp2_unit((x - base) * kLog2E);
            added += x;
          }
        sum[i][h] = fmaf(sum[i][h], rescale[i][h], added);
      }
  }
};

// Weights that dropout removes become 0. Two lanes share the four random words of four neighbouring keys:
// each draws them for one of two rows, and they swap halves.
template <class C>
ATTNSCOPE_D void drop(const Params& p, Scores<C>& s, const Rows<C>& rows, i64 head_row, int first, int t) {
  const u64* const given = p.dropout.seed_offset;
  const u64 seed = given != nullptr ? given[0] : p.dropout.seed,
            offset = given != nullptr ? given[1] : p.dropout.offset;
  const bool odd = t & 1;
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j) {
      const u64 row = u64(head_row + rows.row(i, odd ? 1 : 0));
      const Philox4 words = dropout_words(seed, offset, row, u64(first + 8 * j + (t / 2) * 4));
      const u32 got0 = __shfl_xor_sync(0xFFFFFFFFu, odd ? words.x[0] : words.x[2], 1);
      const u32 got1 = __shfl_xor_sync(0xFFFFFFFFu, odd ? words.x[1] : words.x[3], 1);
      const u32 mine[4] = {odd ? got0 : words.x[0], odd ? got1 : words.x[1], odd ? words.x[2] : got0,
                           odd ? words.x[3] : got1};
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (mine[c] < p.dropout.threshold) s[i][j][c] *= 0.0f;  // −0 stays −0
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
                               const void* bias_tile, float factor, float slope, bool full,
                               const RowBits<C>& kept, int first, int g, int t) {
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
    if (has_bias(p)) add_bias<C>(p, s, rows, mask, bias_tile, first, g, t);
    if (p.slopes.data != nullptr) {
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
        for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c)
            s[i][j][c] =
                fmaf(-slope,
                     fabsf(float(rows.diagonals[16 * i + 8 * (c / 2) + g] - (first + 8 * j + 2 * t + c % 2))),
                     s[i][j][c]);
    }
  }
  const bool bits_matter = C::kFeatured && p.mask.type == MaskType::kBool;
  if (full && !bits_matter) return;
#pragma unroll
  for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Bits<C> bits = full ? ~Bits<C>(0) : Bits<C>(interval_bits(rows.intervals[16 * i + 8 * h + g], first));
      if (bits_matter) bits &= kept[i][h];
      bits >>= 2 * t;
#pragma unroll
      for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
        for (int n = 0; n < 2; ++n)
          if ((bits >> (8 * j + n) & 1) == 0) s[i][j][2 * h + n] = minus_infinity();
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
  const Rows<C> rows = rows_of<C>(p, place, shared, warp, g, t);
  if (threadIdx.x == 0) shared.first = mma::kFar, shared.last = 0;
  __syncthreads();
  if (lane == 0) {
    atomicMin(&shared.first, rows.seen_from);
    atomicMax(&shared.last, rows.seen_to);
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
  RowBits<C> kept, next_kept;
  BoolTile<C> ahead;  // of the tile after the one being worked on
  if constexpr (C::kFeatured) {
    mask = static_cast<const char*>(p.mask.data) +
           (place.batch * p.mask.batch + place.head * p.mask.head) * element_bytes(p.mask.type);
    if (p.slopes.data != nullptr)
      slope = vector_value(p.slopes, place.batch * p.slopes.batch + place.head * p.slopes.head);
  }
  const bool bool_mask = C::kFeatured && p.mask.type == MaskType::kBool;
  // The first tile at or after `from` of which some row keeps something, with its bits. Bytes for `from`
  // itself are in `ahead`.
  const auto find_tile = [&](int from) {
    if constexpr (C::kFeatured) {
      while (bool_mask && from < end) {
        ahead.to_bits(next_kept, t);
        Bits<C> any = 0;
#pragma unroll
        for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            any |= next_kept[i][h] & Bits<C>(interval_bits(rows.intervals[16 * i + 8 * h + g], from));
        if (__syncthreads_or(any != 0)) break;
        from += C::kKeys;
        if (from < end) ahead.load(p, rows, mask, from, t);
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

  if (bool_mask && tile < end) ahead.load(p, rows, mask, tile, t);
  tile = find_tile(tile);
  const bool tiled_bias = bias_in_tiles<C>(p);
  const char* const warp_bias = reinterpret_cast<const char*>(shared.bias) + warp * 16 * C::kMTiles *
                                                                                 (C::kKeys + C::kBiasPad) *
                                                                                 element_bytes(p.mask.type);
  if (tile < end) {
    copy_keys<C, false>(p, shared.k, k, place.batch, tile, end);
    if (tiled_bias) copy_bias<C>(p, shared.bias, mask, first_row, tile);
  }
  commit_copies();
  if (tile < end) copy_keys<C, true>(p, shared.v, v, place.batch, tile, end);
  commit_copies();
  while (tile < end) {
    // Warps whose rows see nothing of the tile only copy and wait.
    const bool working = tile < rows.seen_to && tile + C::kKeys > rows.seen_from;
    const bool full = tile >= rows.all_from && tile + C::kKeys <= rows.all_to;
    if (bool_mask) {
#pragma unroll
      for (int i = 0; i < C::kMTiles; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) kept[i][h] = next_kept[i][h];
      if (tile + C::kKeys < end) ahead.load(p, rows, mask, tile + C::kKeys, t);
    }
    Scores<C> s;
    float factor = p.scale;
    wait_copies<1>();  // K, and the bias
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
    if (next < end) copy_keys<C, false>(p, shared.k, k, place.batch, next, end);
    commit_copies();
    if (working) {
      finish_scores<C>(p, s, rows, mask, warp_bias, factor, slope, full, kept, tile, g, t);
      if (full && !(C::kFeatured && p.mask.type != MaskType::kNone))
        softmax.template step<false>(s);
      else
        softmax.template step<true>(s);
      if constexpr (C::kFeatured)
        if (p.dropout.threshold != 0)
          drop<C>(p, s, rows, (i64(place.batch) * p.heads + place.head) * p.rows, tile, t);
    }
    wait_copies<1>();  // V
    __syncthreads();
    if (tiled_bias) {
      if (next < end) copy_bias<C>(p, shared.bias, mask, first_row, next);
      commit_copies();
    }
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
    if (next < end) copy_keys<C, true>(p, shared.v, v, place.batch, next, end);
    commit_copies();
    tile = next;
  }
  wait_copies<0>();
  write_rows<C>(p, place, o, softmax, rows, warp, g, t);
}

}  // namespace attnscope::efficient_f32
