#pragma once
// Products of bf16 pairs (vdpbf16ps): twice the multiply-adds of f32 per instruction, accumulated in f32.
//
//   scores: k panels [panel][depth/2][kPanel][2], queries broadcast two elements at a time
//   values: v panels [panel][keys/2][kPanel][2], weights rounded to bf16 and broadcast two keys at a time
//
// The power of two in the scale is exact in bf16, so the queries lose nothing.

#include "backends/cpu_fused/kernel/pack.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

ATTNSCOPE_INLINE vf dot_pairs(vf acc, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}
ATTNSCOPE_INLINE __m512i load_bits(const void* p) {
  return _mm512_loadu_si512(p);
}
ATTNSCOPE_INLINE __m512i broadcast_pair(const uint16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return _mm512_set1_epi32(pair);
}

// 32 bf16 of a line from d on, zeros past its end; any element stride.
ATTNSCOPE_INLINE __m512i load_line_bf16(const char* line, int64_t stride, int64_t d, int64_t dim) {
  const int64_t n = min_of<int64_t>(32, dim - d);
  if (stride == 2) {
    const char* at = line + d * 2;
    return n == 32 ? load_bits(at) : _mm512_maskz_loadu_epi16((uint32_t{1} << n) - 1, at);
  }
  uint16_t lanes[32] = {};
  for (int64_t i = 0; i < n; ++i) __builtin_memcpy(lanes + i, line + (d + i) * stride, 2);
  return load_bits(lanes);
}

inline void pack_keys_bf16(const Frame& f, const Block& b, uint16_t* panels) {
  const int64_t pairs = f.layout.depth / 2, dim = f.p.head_dim, stride = f.p.k.stride[3];
  for (int64_t j = 0; j < round_up(b.n, kPanel); j += kW) {
    const char* line[kW];
    for (int i = 0; i < kW; ++i) line[i] = j + i < b.n ? b.k.row(b.key0 + j + i) : nullptr;
    float* dst = reinterpret_cast<float*>(panels) + j / kPanel * pairs * kPanel + j % kPanel;
    for (int64_t d = 0; d < dim; d += 2 * kW) {
      vf x[kW];  // a lane is a pair of bf16; only moved, never computed with
      for (int i = 0; i < kW; ++i)
        x[i] = line[i] ? _mm512_castsi512_ps(load_line_bf16(line[i], stride, d, dim)) : vset(0.0f);
      transpose(x);
      const int64_t count = min_of<int64_t>(kW, pairs - d / 2);
      for (int64_t i = 0; i < count; ++i) vstore(dst + (d / 2 + i) * kPanel, x[i]);
    }
    for (int64_t i = round_up(dim, 2 * kW) / 2; i < pairs; ++i) vstore(dst + i * kPanel, vset(0.0f));
  }
}

inline bool pack_values_bf16(const Frame& f, const Block& b, uint16_t* panels) {
  const int64_t dim = f.p.value_dim, stride = f.p.v.stride[3];
  const int64_t panel = static_cast<int64_t>(f.p.keys_per_block) * kPanel;
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  // Lane order of 0 … 15 (low) and 16 … 31 (high) of two lines interleaved.
  alignas(64) uint16_t order[2][32];
  for (int i = 0; i < 32; ++i)
    for (int h = 0; h < 2; ++h) order[h][i] = static_cast<uint16_t>(i / 2 + 16 * h + (i % 2 ? 32 : 0));
  const __m512i low = load_bits(order[0]), high = load_bits(order[1]);
  __mmask32 trouble = 0;
  for (int64_t j = 0; j < b.n; j += 2) {
    const char* line0 = b.v.row(b.key0 + j);
    const char* line1 = j + 1 < b.n ? b.v.row(b.key0 + j + 1) : nullptr;
    uint16_t* dst = panels + j * kPanel;
    for (int64_t d = 0; d < dim; d += kPanel) {
      const __m512i x = load_line_bf16(line0, stride, d, dim);
      const __m512i y = line1 ? load_line_bf16(line1, stride, d, dim) : _mm512_setzero_si512();
      trouble |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
      trouble |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(y, exponent), exponent);
      _mm512_storeu_si512(dst, _mm512_permutex2var_epi16(x, low, y));
      _mm512_storeu_si512(dst + 32, _mm512_permutex2var_epi16(x, high, y));
      dst += panel;
    }
  }
  return trouble == 0;
}

template <int R>
ATTNSCOPE_INLINE void score_tile_bf16(int64_t pairs, const uint16_t* q, const uint16_t* k, float* s,
                                      float* tile_max) {
  vf acc[R][2];
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = vset(0.0f);
  for (int64_t d = 0; d < pairs; ++d) {
    const __m512i k0 = load_bits(k), k1 = load_bits(k + 32);
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m512i x = broadcast_pair(q + 2 * r);
      acc[r][0] = dot_pairs(acc[r][0], x, k0);
      acc[r][1] = dot_pairs(acc[r][1], x, k1);
    }
    q += 2 * kRowTile;
    k += 64;
  }
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r) {
    vstore(s + r * kScoreStride, acc[r][0]);
    vstore(s + r * kScoreStride + kW, acc[r][1]);
    vstore(tile_max + r * kW, vmax(vmax(acc[r][0], acc[r][1]), vload(tile_max + r * kW)));
  }
}

template <int R, int NV>
ATTNSCOPE_INLINE void value_tile_bf16(int64_t pairs, const uint16_t* w, const uint16_t* v, float* o,
                                      int64_t stride, const float* alpha) {
  vf acc[R][NV];
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r) {
    const vf a = vset(alpha[r]);
    ATTNSCOPE_UNROLL
    for (int i = 0; i < NV; ++i) acc[r][i] = a * vload(o + r * stride + i * kW);
  }
  for (int64_t j = 0; j < pairs; ++j) {
    __m512i x[NV];
    ATTNSCOPE_UNROLL
    for (int i = 0; i < NV; ++i) x[i] = load_bits(v + i * 32);
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) {
      const __m512i y = broadcast_pair(w + r * kScoreStride);
      ATTNSCOPE_UNROLL
      for (int i = 0; i < NV; ++i) acc[r][i] = dot_pairs(acc[r][i], y, x[i]);
    }
    v += 64;
    w += 2;
  }
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r) ATTNSCOPE_UNROLL
  for (int i = 0; i < NV; ++i) vstore(o + r * stride + i * kW, acc[r][i]);
}

struct DotEngine {
  using Storage = BF16;
  static constexpr int kTile = kRowTile;
  static constexpr int kElementBytes = 2;
  static constexpr WeightForm kWeights = kPairs;

  static Layout layout(const Problem& p) { return layout_of(p, kRowTile, 2); }

  static void pack_queries(const Frame& f) {
    const int64_t pairs = f.layout.depth / 2;
    for (int64_t row0 = 0; row0 < f.t.rows; row0 += kRowTile) {
      const QueryTile tile(f, row0);
      float* dst = static_cast<float*>(f.s.q_panels) + row0 * pairs;  // a float holds a pair
      for (int64_t d = 0; d < pairs; d += kW) {
        vf x[kW];
        for (int r = 0; r < kRowTile; ++r) {
          const vf low = tile.load<BF16>(r, 2 * d), high = tile.load<BF16>(r, 2 * d + kW);
          x[r] = reinterpret_cast<vf>(_mm512_cvtne2ps_pbh(high, low));
        }
        store_columns(x, pairs - d, dst + d * kRowTile);
      }
    }
  }
  static void load_block(const Frame& f, Block* b) {
    pack_keys_bf16(f, *b, static_cast<uint16_t*>(f.s.k_panels));
    b->finite = pack_values_bf16(f, *b, static_cast<uint16_t*>(f.s.v_panels));
  }
  static bool values_finite(const Frame&, const Block& b) { return b.finite; }

  static void scores(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end) {
    if (rows > 8) return scores_of<12>(f, b, row0, begin, end);
    if (rows > 4) return scores_of<8>(f, b, row0, begin, end);
    scores_of<4>(f, b, row0, begin, end);
  }
  template <int R>
  [[gnu::noinline]] static void scores_of(const Frame& f, const Block& b, int64_t row0, int64_t begin,
                                          int64_t end) {
    const int64_t depth = f.layout.depth;
    const uint16_t* q = static_cast<const uint16_t*>(f.s.q_panels) + row0 * depth;
    const uint16_t* k = static_cast<const uint16_t*>(f.s.k_panels);
    const int64_t step = row0 / kTile * (f.p.keys_per_block / kPanel);
    for (int64_t j = begin; j < end; j += kPanel) {
      ask_ahead(b, step + j / kPanel);
      score_tile_bf16<R>(depth / 2, q, k + j * depth, f.s.scores + j, f.s.tile_max);
    }
  }

  static void accumulate(const Frame& f, const Block&, int64_t row0, int rows, int64_t begin, int64_t end,
                         const float* alpha) {
    if (rows > 8) return accumulate_of<12>(f, row0, begin, end, alpha);
    if (rows > 4) return accumulate_of<8>(f, row0, begin, end, alpha);
    accumulate_of<4>(f, row0, begin, end, alpha);
  }
  template <int R>
  [[gnu::noinline]] static void accumulate_of(const Frame& f, int64_t row0, int64_t begin, int64_t end,
                                              const float* alpha) {
    const int64_t width = f.layout.value_width, pairs = (end - begin + 1) / 2;
    float* o = f.s.values + row0 * width;
    const uint16_t* w = f.s.weights + begin;
    const uint16_t* v = static_cast<const uint16_t*>(f.s.v_panels) + begin * kPanel;
    for (int64_t d = 0; d < f.p.value_dim; d += kPanel) {
      if (f.p.value_dim - d > kW)
        value_tile_bf16<R, 2>(pairs, w, v, o + d, width, alpha);
      else
        value_tile_bf16<R, 1>(pairs, w, v, o + d, width, alpha);
      v += static_cast<int64_t>(f.p.keys_per_block) * kPanel;
    }
  }

  static float weight_at(const Frame& f, int r, int64_t j) {
    return to_float(BF16{f.s.weights[r * kScoreStride + j]});
  }
  static float value_at(const Frame& f, const Block&, int64_t j, int64_t d) {
    const BF16* v = static_cast<const BF16*>(f.s.v_panels);
    return to_float(v[(d / kPanel * f.p.keys_per_block + j / 2 * 2) * kPanel + d % kPanel * 2 + j % 2]);
  }
};

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
