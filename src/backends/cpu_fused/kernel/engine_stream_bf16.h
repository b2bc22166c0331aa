#pragma once
// Streaming with bf16 dot products: engine_stream.h's order of reading, half its arithmetic. Two V rows are
// interleaved in registers, within 128-bit lanes, so the accumulators hold the columns in that order.

#include "backends/cpu_fused/kernel/engine_bf16.h"
#include "backends/cpu_fused/kernel/engine_stream.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

// 32 value columns of one row as they come out of interleaving: low has 0–3, 8–11, 16–19, 24–27, high the
// rest.
struct ColumnPair {
  vf low, high;
};
ATTNSCOPE_INLINE ColumnPair to_interleaved(vf first, vf second) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  return {_mm512_permutex2var_ps(first, low, second),
          _mm512_permutex2var_ps(first, _mm512_add_epi32(low, _mm512_set1_epi32(4)), second)};
}
ATTNSCOPE_INLINE ColumnPair from_interleaved(ColumnPair x) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  return {_mm512_permutex2var_ps(x.low, first, x.high),
          _mm512_permutex2var_ps(x.low, _mm512_add_epi32(first, _mm512_set1_epi32(8)), x.high)};
}

struct DotStreamEngine {
  using Storage = BF16;
  static constexpr int kTile = kStreamRows;
  static constexpr int kElementBytes = 2;
  static constexpr WeightForm kWeights = kPairs;

  static Layout layout(const Problem& p) { return layout_of(p, kStreamRows, 32); }

  static void pack_queries(const Frame& f) {
    const PowerOfTwo power = power_of_two(f.p.q_exponent);
    const vf first = vset(power.first * f.p.q_sign), second = vset(power.second);
    const int64_t depth = f.layout.depth, dim = f.p.head_dim;
    for (int64_t r = 0; r < f.layout.rows; ++r) {
      const char* line = r < f.t.rows ? query_line(f, r) : nullptr;
      BF16* dst = static_cast<BF16*>(f.s.q_panels) + r * depth;
      for (int64_t d = 0; d < depth; d += kW) {
        const int n = line ? lanes_left(dim, d) : 0;
        store_n(dst + d, n > 0 ? load_line<BF16>(line, f.p.q.stride[3], d, n) * first * second : vset(0.0f),
                kW);
      }
    }
  }
  static void load_block(const Frame&, Block*) {}
  static bool values_finite(const Frame& f, const Block& b) {
    return StreamEngine<BF16>::values_finite(f, b);
  }

  static void scores(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end) {
    if (rows > 2) return scores_of<4>(f, b, row0, begin, end);
    if (rows > 1) return scores_of<2>(f, b, row0, begin, end);
    scores_of<1>(f, b, row0, begin, end);
  }
  static void accumulate(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end,
                         const float* alpha) {
    // A few keys at a time for all pairs of rows: whole V rows are read in order, and again from L1.
    constexpr int64_t kKeysAtOnce = 64;
    const float one[kStreamRows] = {1.0f, 1.0f, 1.0f, 1.0f};
    for (int64_t j = begin; j < end; j += kKeysAtOnce) {
      const int64_t stop = min_of(end, j + kKeysAtOnce);
      for (int r = 0; r < rows; r += 2) {
        const float* factor = j == begin ? alpha + r : one;
        if (rows - r > 1)
          accumulate_of<2, 4>(f, b, row0, r, j, stop, factor);
        else
          accumulate_of<1, 4>(f, b, row0, r, j, stop, factor);
      }
    }
  }
  static float weight_at(const Frame& f, int r, int64_t j) { return DotEngine::weight_at(f, r, j); }
  static float value_at(const Frame& f, const Block& b, int64_t j, int64_t d) {
    return StreamEngine<BF16>::value_at(f, b, j, d);
  }

 private:
  template <int R>
  [[gnu::noinline]] static void scores_of(const Frame& f, const Block& b, int64_t row0, int64_t begin,
                                          int64_t end) {
    constexpr int kKeys = kW / R;
    const int64_t depth = f.layout.depth, dim = f.p.head_dim, whole = dim / 32 * 32;
    const int64_t last_key = f.t.key_end - 1, ahead = max_of<int64_t>(kKeys, kAheadBytes / (2 * dim + 1));
    const __mmask32 tail = (uint32_t{1} << (dim - whole)) - 1;
    const uint16_t* q = static_cast<const uint16_t*>(f.s.q_panels) + row0 * depth;
    for (int64_t j = begin; j < end; j += kKeys) {
      const char* k[kKeys];
      for (int i = 0; i < kKeys; ++i) {
        k[i] = b.k.row(b.key0 + min_of(j + i, b.n - 1));  // past the end: any row, its score is not used
        prefetch_line(b.k.row(min_of(b.key0 + j + i + ahead, last_key)), 2 * dim);
      }
      vf acc[kW];
      ATTNSCOPE_UNROLL
      for (int i = 0; i < kW; ++i) acc[i] = vset(0.0f);
      ATTNSCOPE_UNROLL
      for (int i = 0; i < kKeys; ++i) {  // key by key: lines are touched in address order
        for (int64_t d = 0; d < whole; d += 32) {
          const __m512i x = load_bits(k[i] + 2 * d);
          ATTNSCOPE_UNROLL
          for (int r = 0; r < R; ++r)
            acc[r * kKeys + i] = dot_pairs(acc[r * kKeys + i], load_bits(q + r * depth + d), x);
        }
        if (whole < dim) {
          const __m512i x = _mm512_maskz_loadu_epi16(tail, k[i] + 2 * whole);
          ATTNSCOPE_UNROLL
          for (int r = 0; r < R; ++r)
            acc[r * kKeys + i] = dot_pairs(acc[r * kKeys + i], load_bits(q + r * depth + whole), x);
        }
      }
      float sums[kW];
      vstore(sums, reduce_each(acc));
      ATTNSCOPE_UNROLL
      for (int r = 0; r < R; ++r)
        __builtin_memcpy(f.s.scores + r * kScoreStride + j, sums + r * kKeys, kKeys * sizeof(float));
    }
    for (int r = 0; r < R; ++r) {
      vf m = vset(-kInfinity);
      for (int64_t j = begin; j < end; j += kW) m = vmax(vload(f.s.scores + r * kScoreStride + j), m);
      vstore(f.s.tile_max + r * kW, m);
    }
  }

  // N groups of 32 columns at a time.
  template <int R, int N>
  [[gnu::noinline]] static void accumulate_of(const Frame& f, const Block& b, int64_t row0, int row,
                                              int64_t begin, int64_t end, const float* alpha) {
    const int64_t dim = f.p.value_dim;
    int64_t d = 0;
    for (; d + 32 * N <= dim; d += 32 * N)
      value_columns<R, N>(f, b, row0, row, begin, end, alpha, d,
                          [](const char* at) { return load_bits(at); });
    for (; d < dim; d += 32) {
      const __mmask32 mask = dim - d >= 32 ? ~uint32_t{0} : (uint32_t{1} << (dim - d)) - 1;
      value_columns<R, 1>(f, b, row0, row, begin, end, alpha, d,
                          [=](const char* at) { return _mm512_maskz_loadu_epi16(mask, at); });
    }
  }
  template <int R, int N, typename Load>
  ATTNSCOPE_INLINE static void value_columns(const Frame& f, const Block& b, int64_t row0, int row,
                                             int64_t begin, int64_t end, const float* alpha, int64_t d,
                                             Load load_value) {
    const int64_t width = f.layout.value_width, value_bytes = 2 * f.p.value_dim;
    const int64_t last_key = f.t.key_end - 1, ahead = kAheadBytes / (value_bytes + 1) + 1;
    float* o = f.s.values + (row0 + row) * width + d;
    const uint16_t* w = f.s.weights + row * kScoreStride;
    ColumnPair acc[R][N];
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) {
      ATTNSCOPE_UNROLL
      for (int i = 0; i < N; ++i) {
        const float* at = o + r * width + i * 32;
        acc[r][i] = to_interleaved(vset(alpha[r]) * vload(at), vset(alpha[r]) * vload(at + kW));
      }
    }
    for (int64_t j = begin; j < end; j += 2) {  // begin is even; the weight past an odd end is 0
      const char* line0 = b.v.row(b.key0 + j) + 2 * d;
      const char* line1 = j + 1 < end ? b.v.row(b.key0 + j + 1) + 2 * d : nullptr;
      if (d == 0 && row == 0) {
        prefetch_line(b.v.row(min_of(b.key0 + j + ahead, last_key)), value_bytes);
        prefetch_line(b.v.row(min_of(b.key0 + j + 1 + ahead, last_key)), value_bytes);
      }
      ATTNSCOPE_UNROLL
      for (int i = 0; i < N; ++i) {
        const __m512i x = load_value(line0 + 64 * i);
        const __m512i y = line1 ? load_value(line1 + 64 * i) : _mm512_setzero_si512();
        const __m512i low = _mm512_unpacklo_epi16(x, y), high = _mm512_unpackhi_epi16(x, y);
        ATTNSCOPE_UNROLL
        for (int r = 0; r < R; ++r) {
          const __m512i weights = broadcast_pair(w + r * kScoreStride + j);
          acc[r][i].low = dot_pairs(acc[r][i].low, weights, low);
          acc[r][i].high = dot_pairs(acc[r][i].high, weights, high);
        }
      }
    }
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) {
      ATTNSCOPE_UNROLL
      for (int i = 0; i < N; ++i) {
        const ColumnPair columns = from_interleaved(acc[r][i]);
        vstore(o + r * width + i * 32, columns.low);
        vstore(o + r * width + i * 32 + kW, columns.high);
      }
    }
  }
};

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
