#pragma once
// Products in f32: every element type is widened while it is packed.
//
//   scores[r][j] = Σ_d q[r][d] · k[j][d]        register tile kRowTile × kPanel, Σ over d
//   values[r][d] = α_r · values[r][d] + Σ_j w[r][j] · v[j][d]
//
// Per step of Σ: two panel vectors are loaded, each row's factor is broadcast from memory, 2·rows fused
// multiply-adds follow. With 12 rows (AVX-512) that is 24 multiply-adds for 14 loads: the multipliers limit.

#include "backends/cpu_fused/kernel/pack.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

template <int R>
ATTNSCOPE_INLINE void score_tile_f32(int64_t depth, const float* q, const float* k, float* s,
                                     float* tile_max) {
  vf acc[R][2];
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = vset(0.0f);
  for (int64_t d = 0; d < depth; ++d) {
    const vf k0 = vload(k), k1 = vload(k + kW);
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) {
      const vf x = vset(q[r]);
      acc[r][0] = vfma(x, k0, acc[r][0]);
      acc[r][1] = vfma(x, k1, acc[r][1]);
    }
    q += kRowTile;
    k += kPanel;
  }
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r) {
    vstore(s + r * kScoreStride, acc[r][0]);
    vstore(s + r * kScoreStride + kW, acc[r][1]);
    vstore(tile_max + r * kW, vmax(vmax(acc[r][0], acc[r][1]), vload(tile_max + r * kW)));
  }
}

template <int R, int NV>
ATTNSCOPE_INLINE void value_tile_f32(int64_t n, const float* w, const float* v, float* o, int64_t stride,
                                     const float* alpha) {
  vf acc[R][NV];
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r) {
    const vf a = vset(alpha[r]);
    ATTNSCOPE_UNROLL
    for (int i = 0; i < NV; ++i) acc[r][i] = a * vload(o + r * stride + i * kW);
  }
  for (int64_t j = 0; j < n; ++j) {
    vf x[NV];
    ATTNSCOPE_UNROLL
    for (int i = 0; i < NV; ++i) x[i] = vload(v + i * kW);
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) {
      const vf y = vset(w[r * kScoreStride]);
      ATTNSCOPE_UNROLL
      for (int i = 0; i < NV; ++i) acc[r][i] = vfma(y, x[i], acc[r][i]);
    }
    v += kPanel;
    ++w;
  }
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r) ATTNSCOPE_UNROLL
  for (int i = 0; i < NV; ++i) vstore(o + r * stride + i * kW, acc[r][i]);
}

// The engine for storage type T.
template <typename T>
struct WidenEngine {
  using Storage = T;
  static constexpr int kTile = kRowTile;
  static constexpr int kElementBytes = 4;
  static constexpr WeightForm kWeights = kInPlace;

  static Layout layout(const Problem& p) { return layout_of(p, kRowTile, 1); }

  static void pack_queries(const Frame& f) {
    const int64_t depth = f.layout.depth;
    for (int64_t row0 = 0; row0 < f.t.rows; row0 += kRowTile) {
      const QueryTile tile(f, row0);
      float* dst = static_cast<float*>(f.s.q_panels) + row0 * depth;
      for (int64_t d = 0; d < depth; d += kW) {
        vf x[kW];
        for (int r = 0; r < kRowTile; ++r) x[r] = tile.template load<T>(r, d);
        store_columns(x, depth - d, dst + d * kRowTile);
      }
    }
  }
  static void load_block(const Frame& f, Block* b) {
    pack_keys_f32<T>(f, b->k, b->key0, b->n, static_cast<float*>(f.s.k_panels));
    b->finite = pack_values_f32<T>(f, b->v, b->key0, b->n, static_cast<float*>(f.s.v_panels));
  }
  static bool values_finite(const Frame&, const Block& b) { return b.finite; }

  // Scores of `rows` rows from tile row `row0` on, keys begin … end of the block (begin on a panel).
  static void scores(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end) {
    if (rows > kRowTile * 2 / 3) return scores_of<kRowTile>(f, b, row0, begin, end);
    if (rows > kRowTile / 3) return scores_of<kRowTile * 2 / 3>(f, b, row0, begin, end);
    scores_of<kRowTile / 3>(f, b, row0, begin, end);
  }
  template <int R>
  [[gnu::noinline]] static void scores_of(const Frame& f, const Block& b, int64_t row0, int64_t begin,
                                          int64_t end) {
    const int64_t depth = f.layout.depth;
    const float* q = static_cast<const float*>(f.s.q_panels) + row0 * depth;
    const float* k = static_cast<const float*>(f.s.k_panels);
    const int64_t step = row0 / kTile * (f.p.keys_per_block / kPanel);
    for (int64_t j = begin; j < end; j += kPanel) {
      ask_ahead(b, step + j / kPanel);
      score_tile_f32<R>(depth, q, k + j * depth, f.s.scores + j, f.s.tile_max);
    }
  }

  static void accumulate(const Frame& f, const Block&, int64_t row0, int rows, int64_t begin, int64_t end,
                         const float* alpha) {
    if (rows > kRowTile * 2 / 3) return accumulate_of<kRowTile>(f, row0, begin, end, alpha);
    if (rows > kRowTile / 3) return accumulate_of<kRowTile * 2 / 3>(f, row0, begin, end, alpha);
    accumulate_of<kRowTile / 3>(f, row0, begin, end, alpha);
  }
  template <int R>
  [[gnu::noinline]] static void accumulate_of(const Frame& f, int64_t row0, int64_t begin, int64_t end,
                                              const float* alpha) {
    const int64_t width = f.layout.value_width;
    float* o = f.s.values + row0 * width;
    const float* v = static_cast<const float*>(f.s.v_panels) + begin * kPanel;
    for (int64_t d = 0; d < f.p.value_dim; d += kPanel) {
      if (f.p.value_dim - d > kW)
        value_tile_f32<R, 2>(end - begin, f.s.scores + begin, v, o + d, width, alpha);
      else
        value_tile_f32<R, 1>(end - begin, f.s.scores + begin, v, o + d, width, alpha);
      v += static_cast<int64_t>(f.p.keys_per_block) * kPanel;
    }
  }

  static float weight_at(const Frame& f, int r, int64_t j) { return f.s.scores[r * kScoreStride + j]; }
  static float value_at(const Frame& f, const Block&, int64_t j, int64_t d) {
    return static_cast<const float*>(
        f.s.v_panels)[(d / kPanel * f.p.keys_per_block + j) * kPanel + d % kPanel];
  }
};

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
