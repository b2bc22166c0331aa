#pragma once
// f32 and f16 products on AMX tiles. A 24-bit significand is cut into three bf16 pieces (an f16 one into two)
// without a remainder: x = x₁ + x₂ + x₃, each piece 2⁻⁸ of the one before. Of the nine products of two
// elements' pieces those down to 2⁻¹⁶ are formed, six in all, and summed in f32; what is left out is 2⁻²⁴ of
// the product, the size of f32's own rounding.
//
// The small products are summed over the whole depth before the large one is added, so that the result is
// rounded no more often than one f32 product after the other would be.
//
// Pieces are stored as words of two elements 16 apart ((d, d + 16) of a depth step, (j, j + 16) of 32 keys):
// that takes one shift and one merge per piece, and the order inside a sum is free.
//
//   q [piece][row][depth]   k [panel][piece][depth/2][kPanel][2]   v [panel][piece][keys/2][kPanel][2]
//
// Tiles flush subnormals, and infinity − infinity has no pieces: a block with an element of 2⁶⁴ or more (or
// NaN) takes a plain loop instead. Below that bound what is flushed is less than 2⁻⁶² of anything.

#include "backends/cpu_fused/kernel/engine_amx.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

// Lanes of x that are 2⁶⁴ or more in size, infinite or NaN.
ATTNSCOPE_INLINE __mmask16 irregular(vf x) {
  const __m512i size = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
  return _mm512_cmpge_epu32_mask(size, _mm512_set1_epi32(0x5f800000));
}

// Elements d … d+31 of a line as two vectors; zeros past the end, or without a line.
template <typename T>
ATTNSCOPE_INLINE void load_two(const char* line, int64_t stride, int64_t d, int64_t dim, vf* a, vf* b) {
  const int n = line ? lanes_left(dim, d) : 0, m = line ? lanes_left(dim, d + kW) : 0;
  *a = n > 0 ? load_line<T>(line, stride, d, n) : vset(0.0f);
  *b = m > 0 ? load_line<T>(line, stride, d + kW, m) : vset(0.0f);
}

// K rows of the block → panels. Returns whether every element is regular.
template <typename T, int P>
bool split_keys(const Frame& f, const Block& block, uint16_t* panels) {
  const int64_t depth = f.layout.depth, dim = f.p.head_dim, stride = f.p.k.stride[3];
  __mmask16 trouble = 0;
  for (int64_t j = 0; j < round_up(block.n, kPanel); j += kW) {
    const char* line[kW];
    for (int i = 0; i < kW; ++i) line[i] = j + i < block.n ? block.k.row(block.key0 + j + i) : nullptr;
    uint16_t* dst = panels + j / kPanel * P * depth * kPanel + j % kPanel * 2;
    for (int64_t d = 0; d < depth; d += kDepthStep) {
      vf a[kW], b[kW];
      for (int i = 0; i < kW; ++i) {
        load_two<T>(line[i], stride, d, dim, &a[i], &b[i]);
        trouble |= irregular(a[i]) | irregular(b[i]);
      }
      for (int p = 0; p < P; ++p) {
        vf x[kW];  // a lane is a pair of bf16; only moved, never computed with
        for (int i = 0; i < kW; ++i) x[i] = _mm512_castsi512_ps(cut_piece(&a[i], &b[i]));
        transpose(x);
        uint16_t* at = dst + (p * depth + d) * kPanel;
        for (int i = 0; i < kW; ++i) vstore(reinterpret_cast<float*>(at + i * 2 * kPanel), x[i]);
      }
    }
  }
  return trouble == 0;
}

template <typename T, int P>
bool split_values(const Frame& f, const Block& block, uint16_t* panels) {
  const int64_t dim = f.p.value_dim, stride = f.p.v.stride[3], lines = f.p.keys_per_block / 2;
  __mmask16 trouble = 0;
  for (int64_t j = 0; j < block.n; j += kPanel)
    for (int64_t i = 0; i < kW; ++i) {
      const char* line0 = j + i < block.n ? block.v.row(block.key0 + j + i) : nullptr;
      const char* line1 = j + i + kW < block.n ? block.v.row(block.key0 + j + i + kW) : nullptr;
      for (int64_t d = 0; d < dim; d += kW) {
        const int n = lanes_left(dim, d);
        vf a = line0 ? load_line<T>(line0, stride, d, n) : vset(0.0f);
        vf b = line1 ? load_line<T>(line1, stride, d, n) : vset(0.0f);
        trouble |= irregular(a) | irregular(b);
        uint16_t* dst = panels + (d / kPanel * P * lines + j / 2 + i) * 2 * kPanel + d % kPanel * 2;
        for (int p = 0; p < P; ++p) _mm512_storeu_si512(dst + p * lines * 2 * kPanel, cut_piece(&a, &b));
      }
    }
  return trouble == 0;
}

// accumulators += Σ over `steps` depth steps of the products of pieces of a and b. kAll: with the smallest
// product of two-piece elements.
template <int P, bool kTall, bool kAll>
ATTNSCOPE_INLINE void multiply_pieces(int64_t steps, const uint16_t* a, int64_t a_stride, int64_t a_piece,
                                      const uint16_t* b, int64_t b_piece) {
  constexpr int64_t kStepB = 16 * 2 * kPanel;
  for (int64_t i = 0; i < steps; ++i) {  // each product shares one operand with the one before
    const uint16_t *x = a + i * kDepthStep, *y = b + i * kStepB;
    if constexpr (P == 3) {
      load_a<kTall>(x + 2 * a_piece, a_stride);
      load_b(y);
      multiply<kTall>();
    }
    load_a<kTall>(x + a_piece, a_stride);
    if constexpr (P == 2) load_b(y);
    multiply<kTall>();
    load_b(y + b_piece);
    if constexpr (kAll) multiply<kTall>();
    load_a<kTall>(x, a_stride);
    multiply<kTall>();
    if constexpr (P == 3) {
      load_b(y + 2 * b_piece);
      multiply<kTall>();
    }
  }
  for (int64_t i = 0; i < steps; ++i) {
    load_a<kTall>(a + i * kDepthStep, a_stride);
    load_b(b + i * kStepB);
    multiply<kTall>();
  }
}

template <typename T, int P>
struct SplitEngine {
  using Storage = T;
  static constexpr int kTile = kAmxRows;
  static constexpr int kElementBytes = 2 * P;
  static constexpr WeightForm kWeights = P == 3 ? kThreePieces : kTwoPieces;
  static constexpr int64_t kWeightPiece = kAmxRows * kScoreStride;

  static Layout layout(const Problem& p) { return layout_of(p, kAmxRows, kDepthStep, P); }

  static void pack_queries(const Frame& f) {
    const PowerOfTwo power = power_of_two(f.p.q_exponent);
    const vf first = vset(power.first * f.p.q_sign), second = vset(power.second);
    const int64_t depth = f.layout.depth, piece = f.layout.rows * depth;
    for (int64_t r = 0; r < f.layout.rows; ++r) {
      const char* line = r < f.t.rows ? query_line(f, r) : nullptr;
      uint16_t* dst = static_cast<uint16_t*>(f.s.q_panels) + r * depth;
      __mmask16 trouble = 0;
      for (int64_t d = 0; d < depth; d += kDepthStep) {
        vf a, b;
        load_two<T>(line, f.p.q.stride[3], d, f.p.head_dim, &a, &b);
        a = a * first * second;
        b = b * first * second;
        trouble |= irregular(a) | irregular(b);
        for (int p = 0; p < P; ++p) _mm512_storeu_si512(dst + p * piece + d, cut_piece(&a, &b));
      }
      f.s.odd_rows[r] = trouble != 0;
    }
  }
  static void load_block(const Frame& f, Block* b) {
    b->keys_regular = split_keys<T, P>(f, *b, static_cast<uint16_t*>(f.s.k_panels));
    b->finite = split_values<T, P>(f, *b, static_cast<uint16_t*>(f.s.v_panels));
  }
  static bool values_finite(const Frame&, const Block& b) { return b.finite; }

  static void scores(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end) {
    bool regular = b.keys_regular;
    for (int r = 0; r < rows; ++r) regular = regular && !f.s.odd_rows[row0 + r];
    if (!regular)
      scores_one_by_one(f, b, row0, rows, begin, end);
    else if (rows > 16)
      scores_of<true>(f, b, row0, begin, end);
    else
      scores_of<false>(f, b, row0, begin, end);
    note_maxima(f, rows, begin, end);
  }
  template <bool kTall>
  [[gnu::noinline]] static void scores_of(const Frame& f, const Block& b, int64_t row0, int64_t begin,
                                          int64_t end) {
    const int64_t depth = f.layout.depth;
    const uint16_t* q = static_cast<const uint16_t*>(f.s.q_panels) + row0 * depth;
    const uint16_t* k = static_cast<const uint16_t*>(f.s.k_panels);
    const int64_t step = row0 / kTile * (f.p.keys_per_block / kPanel);
    for (int64_t j = begin; j < end; j += kPanel) {
      ask_ahead(b, step + j / kPanel);
      clear_accumulators();
      multiply_pieces<P, kTall, true>(depth / kDepthStep, q, depth * 2, f.layout.rows * depth,
                                      k + j * P * depth, depth * kPanel);
      store_accumulators<kTall>(f.s.scores + j, kScoreStride);
    }
  }
  [[gnu::noinline]] static void scores_one_by_one(const Frame& f, const Block& b, int64_t row0, int rows,
                                                  int64_t begin, int64_t end) {
    const PowerOfTwo power = power_of_two(f.p.q_exponent);
    const vf first = vset(power.first * f.p.q_sign), second = vset(power.second);
    for (int r = 0; r < rows; ++r)
      for (int64_t j = begin; j < end; ++j) {
        vf sum = vset(0.0f);
        if (j < b.n)
          for (int64_t d = 0; d < f.p.head_dim; d += kW) {
            const int n = lanes_left(f.p.head_dim, d);
            const vf x = load_line<T>(query_line(f, row0 + r), f.p.q.stride[3], d, n) * first * second;
            sum = vfma(x, load_line<T>(b.k.row(b.key0 + j), f.p.k.stride[3], d, n), sum);
          }
        f.s.scores[r * kScoreStride + j] = hsum(sum);
      }
  }

  static void accumulate(const Frame& f, const Block&, int64_t row0, int rows, int64_t begin, int64_t end,
                         const float* alpha) {
    if (rows > 16)
      accumulate_of<true>(f, row0, rows, begin, end, alpha);
    else
      accumulate_of<false>(f, row0, rows, begin, end, alpha);
  }
  // Weights past `end` are 0 up to the end of their panel.
  template <bool kTall>
  [[gnu::noinline]] static void accumulate_of(const Frame& f, int64_t row0, int rows, int64_t begin,
                                              int64_t end, const float* alpha) {
    const int64_t width = f.layout.value_width, steps = (end - begin + kDepthStep - 1) / kDepthStep;
    const int64_t piece = static_cast<int64_t>(f.p.keys_per_block) * kPanel;
    const uint16_t* v = static_cast<const uint16_t*>(f.s.v_panels) + begin * kPanel;
    for (int64_t d = 0; d < f.p.value_dim; d += kPanel) {
      clear_accumulators();
      multiply_pieces<P, kTall, P == 3>(steps, f.s.weights + begin, kScoreStride * 2, kWeightPiece,
                                        v + d / kPanel * P * piece, piece);
      store_accumulators<kTall>(f.s.product, kPanel);
      float* o = f.s.values + row0 * width + d;
      for (int r = 0; r < rows; ++r)
        for (int i = 0; i < kPanel; i += kW)
          vstore(o + r * width + i,
                 vfma(vset(alpha[r]), vload(o + r * width + i), vload(f.s.product + r * kPanel + i)));
    }
  }

  static float weight_at(const Frame& f, int r, int64_t j) {
    const uint16_t* w = f.s.weights + r * kScoreStride + j / kPanel * kPanel + j % kW * 2 + j % kPanel / kW;
    float sum = 0.0f;
    for (int p = P - 1; p >= 0; --p) sum += to_float(BF16{w[p * kWeightPiece]});
    return sum;
  }
  static float value_at(const Frame& f, const Block& b, int64_t j, int64_t d) {
    return to_float(*reinterpret_cast<const T*>(b.v.row(b.key0 + j) + d * f.p.v.stride[3]));
  }
};

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
