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
  static void load_block(const Frame& f, Block* b) { list_block(f, *b); }
  static bool values_finite(const Frame& f, const Block& b) {
    return StreamEngine<BF16>::values_finite(f, b);
  }

  static void scores(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end) {
    scores_of_rows<DotStreamEngine>(f, b, row0, rows, begin, end);
  }
  static void accumulate(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end,
                         const float* alpha) {
    accumulate_rows<DotStreamEngine>(f, b, row0, rows, begin, end, alpha);
  }
  static float weight_at(const Frame& f, int r, int64_t j) { return DotEngine::weight_at(f, r, j); }
  static float value_at(const Frame& f, const Block& b, int64_t j, int64_t d) {
    return StreamEngine<BF16>::value_at(f, b, j, d);
  }

  // See StreamEngine. N groups of 32 columns at a time.
  template <int R, class Rows>
  [[gnu::noinline]] static void pass(const Frame& f, const Rows& v, int64_t row0, int row, int64_t begin,
                                     int64_t end, const float* alpha, Ask ask) {
    constexpr int kGroups = 4;
    const int64_t dim = f.p.value_dim;
    int64_t d = 0;
    for (; d + 32 * kGroups <= dim; d += 32 * kGroups, ask.each = 0)
      columns<R, kGroups>(f, v, row0, row, begin, end, alpha, d, ask,
                          [](const char* at) { return load_bits(at); });
    for (; d < dim; d += 32, ask.each = 0) {
      const __mmask32 mask = dim - d >= 32 ? ~uint32_t{0} : (uint32_t{1} << (dim - d)) - 1;
      columns<R, 1>(f, v, row0, row, begin, end, alpha, d, ask,
                    [=](const char* at) { return _mm512_maskz_loadu_epi16(mask, at); });
    }
  }

  template <int R, class Rows>
  static void scores_of(const Frame& f, const Block& b, const Rows& k, int64_t row0, int64_t begin,
                        int64_t end) {
    if (f.p.head_dim == 128) return scores_at<R, 4>(f, b, k, row0, begin, end);
    if (f.p.head_dim == 64) return scores_at<R, 2>(f, b, k, row0, begin, end);
    scores_at<R, 0>(f, b, k, row0, begin, end);
  }

 private:
  // kWords: head_dim / 32 when the queries fit registers, else 0. Key by key, so that lines are touched in
  // the order of their addresses; the accumulators of two keys are added across at once, to free their
  // registers.
  template <int R, int kWords, class Rows>
  [[gnu::noinline]] static void scores_at(const Frame& f, const Block& b, const Rows& k, int64_t row0,
                                          int64_t begin, int64_t end) {
    constexpr int kKeys = kW / R;
    const int64_t depth = f.layout.depth, dim = f.p.head_dim, whole = dim / 32 * 32;
    const int64_t key_bytes = b.key_bytes, ahead = rows_ahead(key_bytes);
    const __mmask32 tail = (uint32_t{1} << (dim - whole)) - 1;
    const uint16_t* q = static_cast<const uint16_t*>(f.s.q_panels) + row0 * depth;
    [[maybe_unused]] __m512i held[R][kWords > 0 ? kWords : 1];
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) ATTNSCOPE_UNROLL
    for (int d = 0; d < kWords; ++d) held[r][d] = load_bits(q + r * depth + 32 * d);

    const auto dots = [&](const char* key, vf acc[R]) __attribute__((always_inline)) {
      ATTNSCOPE_UNROLL
      for (int r = 0; r < R; ++r) acc[r] = vset(0.0f);
      const auto step = [&](__m512i x, auto query) __attribute__((always_inline)) {
        ATTNSCOPE_UNROLL
        for (int r = 0; r < R; ++r) acc[r] = dot_pairs(acc[r], query(r), x);
      };
      if constexpr (kWords > 0) {
        ATTNSCOPE_UNROLL
        for (int d = 0; d < kWords; ++d) step(load_bits(key + 64 * d), [&](int r) { return held[r][d]; });
      } else {
        for (int64_t d = 0; d < whole; d += 32)
          step(load_bits(key + 2 * d), [&](int r) { return load_bits(q + r * depth + d); });
        if (whole < dim)
          step(_mm512_maskz_loadu_epi16(tail, key + 2 * whole),
               [&](int r) { return load_bits(q + r * depth + whole); });
      }
    };
    for (int64_t j = begin; j < end; j += kKeys) {
      vf sums[kW / 2];
      ATTNSCOPE_UNROLL
      for (int i = 0; i < kKeys; i += 2) {
        vf first[R], second[R];
        prefetch_line(k.ahead(j + i + ahead), kWords > 0 ? 64 * kWords : key_bytes);
        dots(k.row(j + i), first);
        prefetch_line(k.ahead(j + i + 1 + ahead), kWords > 0 ? 64 * kWords : key_bytes);
        dots(k.row(j + i + 1), second);
        ATTNSCOPE_UNROLL
        for (int r = 0; r < R; ++r) sums[(r * kKeys + i) / 2] = add_across<1>(first[r], second[r]);
      }
      put_scores<R>(f.s.scores + j, reduce_from<2>(sums));
    }
    put_maxima(f, R, begin, end);
  }

  template <int R, int N, class Rows, typename Load>
  ATTNSCOPE_INLINE static void columns(const Frame& f, const Rows& v, int64_t row0, int row, int64_t begin,
                                       int64_t end, const float* alpha, int64_t d, Ask ask, Load load_value) {
    const int64_t width = f.layout.value_width;
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
    for (int64_t j = begin; j < end; j += 2) {
      ask_for(v, &ask);
      const char *even = v.row(j) + 2 * d, *odd = v.row(j + 1) + 2 * d;
      __m512i weights[R];
      ATTNSCOPE_UNROLL
      for (int r = 0; r < R; ++r) weights[r] = broadcast_pair(w + r * kScoreStride + j);
      ATTNSCOPE_UNROLL
      for (int i = 0; i < N; ++i) {
        const __m512i x = load_value(even + 64 * i), y = load_value(odd + 64 * i);
        const __m512i low = _mm512_unpacklo_epi16(x, y), high = _mm512_unpackhi_epi16(x, y);
        ATTNSCOPE_UNROLL
        for (int r = 0; r < R; ++r) {
          acc[r][i].low = dot_pairs(acc[r][i].low, weights[r], low);
          acc[r][i].high = dot_pairs(acc[r][i].high, weights[r], high);
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
