#pragma once
// Few query rows against many keys (decoding): every K and V element is used once or a handful of times, so
// memory is the limit and packing would only add to it. K and V are read in place, row by row, widened to f32
// in registers. While K rows are multiplied the V rows of the same block are already asked for, and while V
// is summed the K rows of the next block.
//
// Needs elements of a row next to each other (see Tiling::stream).

#include "backends/cpu_fused/kernel/pack.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

inline constexpr int kStreamRows = 4;
#if defined(__AVX512F__)
inline constexpr int kStreamAccumulators = 16;
#else
inline constexpr int kStreamAccumulators = 8;
#endif

inline constexpr int64_t kAheadBytes = 16384;

template <typename T>
struct StreamEngine {
  using Storage = T;
  static constexpr int kTile = kStreamRows;
  static constexpr int kElementBytes = 4;
  static constexpr WeightForm kWeights = kInPlace;

  static Layout layout(const Problem& p) { return layout_of(p, kStreamRows, kW); }

  static void pack_queries(const Frame& f) {
    const PowerOfTwo power = power_of_two(f.p.q_exponent);
    const vf first = vset(power.first * f.p.q_sign), second = vset(power.second);
    const int64_t depth = f.layout.depth, dim = f.p.head_dim;
    for (int64_t r = 0; r < f.layout.rows; ++r) {
      const char* line = r < f.t.rows ? query_line(f, r) : nullptr;
      float* dst = queries(f) + r * depth;
      for (int64_t d = 0; d < depth; d += kW) {
        const int n = line ? lanes_left(dim, d) : 0;
        vstore(dst + d, n > 0 ? load_line<T>(line, f.p.q.stride[3], d, n) * first * second : vset(0.0f));
      }
    }
  }
  static void load_block(const Frame&, Block*) {}

  static bool values_finite(const Frame& f, const Block& b) {
    vf trouble = vset(0.0f);
    for (int64_t j = 0; j < b.n; ++j) {
      const T* v = reinterpret_cast<const T*>(b.v.row(b.key0 + j));
      for (int64_t d = 0; d < f.p.value_dim; d += kW)
        trouble = vfma(load_n(v + d, lanes_left(f.p.value_dim, d)), vset(0.0f), trouble);
    }
    return hsum(trouble) == 0.0f;
  }

  static void scores(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end) {
    if (rows > 2) return scores_of<4>(f, b, row0, begin, end);
    if (rows > 1) return scores_of<2>(f, b, row0, begin, end);
    scores_of<1>(f, b, row0, begin, end);
  }

  static void accumulate(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end,
                         const float* alpha) {
    if (rows > 2) return accumulate_of<4>(f, b, row0, begin, end, alpha);
    if (rows > 1) return accumulate_of<2>(f, b, row0, begin, end, alpha);
    accumulate_of<1>(f, b, row0, begin, end, alpha);
  }

  static float weight_at(const Frame& f, int r, int64_t j) { return f.s.scores[r * kScoreStride + j]; }
  static float value_at(const Frame&, const Block& b, int64_t j, int64_t d) {
    return to_float(reinterpret_cast<const T*>(b.v.row(b.key0 + j))[d]);
  }

 private:
  static float* queries(const Frame& f) { return static_cast<float*>(f.s.q_panels); }

  // R rows × kW / R keys at a time: one accumulator per pair, all kW of them summed across together.
  template <int R>
  [[gnu::noinline]] static void scores_of(const Frame& f, const Block& b, int64_t row0, int64_t begin,
                                          int64_t end) {
    constexpr int kKeys = kW / R;
    const int64_t depth = f.layout.depth, dim = f.p.head_dim, whole = dim / kW * kW;
    const int64_t key_bytes = dim * static_cast<int64_t>(sizeof(T)), last_key = f.t.key_end - 1;
    const int64_t ahead = max_of<int64_t>(kKeys, kAheadBytes / max_of<int64_t>(key_bytes, 1));
    const float* q = queries(f) + row0 * depth;
    for (int64_t j = begin; j < end; j += kKeys) {
      const T* k[kKeys];
      for (int i = 0; i < kKeys; ++i) {
        const int64_t key = b.key0 + min_of(j + i, b.n - 1);  // past the end: any row, its score is not used
        k[i] = reinterpret_cast<const T*>(b.k.row(key));
        prefetch_line(b.k.row(min_of(b.key0 + j + i + ahead, last_key)), key_bytes);
      }
      vf acc[kW];
      ATTNSCOPE_UNROLL
      for (int i = 0; i < kW; ++i) acc[i] = vset(0.0f);
      const auto step = [&](int64_t d, auto load_key) __attribute__((always_inline)) {
        ATTNSCOPE_UNROLL
        for (int i = 0; i < kKeys; ++i) {
          const vf x = load_key(k[i] + d);
          ATTNSCOPE_UNROLL
          for (int r = 0; r < R; ++r)
            acc[r * kKeys + i] = vfma(vload(q + r * depth + d), x, acc[r * kKeys + i]);
        }
      };
      for (int64_t d = 0; d < whole; d += kW) step(d, [](const T* at) { return load(at); });
      if (whole < dim) step(whole, [&](const T* at) { return load_n(at, static_cast<int>(dim - whole)); });
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

  template <int R>
  [[gnu::noinline]] static void accumulate_of(const Frame& f, const Block& b, int64_t row0, int64_t begin,
                                              int64_t end, const float* alpha) {
    constexpr int kVectors = kStreamAccumulators / R > 8 ? 8 : kStreamAccumulators / R;
    const int64_t dim = f.p.value_dim;
    int64_t d = 0;
    for (; d + kVectors * kW <= dim; d += kVectors * kW) {
      value_columns<R, kVectors>(f, b, row0, begin, end, alpha, d, d == 0,
                                 [](const T* at) { return load(at); });
    }
    for (; d < dim; d += kW) {
      const int n = lanes_left(dim, d);
      value_columns<R, 1>(f, b, row0, begin, end, alpha, d, d == 0,
                          [n](const T* at) { return load_n(at, n); });
    }
  }
  template <int R, int NV, typename Load>
  ATTNSCOPE_INLINE static void value_columns(const Frame& f, const Block& b, int64_t row0, int64_t begin,
                                             int64_t end, const float* alpha, int64_t d, bool first,
                                             Load load_value) {
    const int64_t width = f.layout.value_width, last_key = f.t.key_end - 1;
    const int64_t value_bytes = f.p.value_dim * static_cast<int64_t>(sizeof(T));
    const int64_t ahead = max_of<int64_t>(1, kAheadBytes / max_of<int64_t>(value_bytes, 1));
    float* o = f.s.values + row0 * width + d;
    const float* w = f.s.scores;
    vf acc[R][NV];
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) ATTNSCOPE_UNROLL
    for (int i = 0; i < NV; ++i) acc[r][i] = vset(alpha[r]) * vload(o + r * width + i * kW);
    for (int64_t j = begin; j < end; ++j) {
      const T* v = reinterpret_cast<const T*>(b.v.row(b.key0 + j)) + d;
      if (first) prefetch_line(b.v.row(min_of(b.key0 + j + ahead, last_key)), value_bytes);
      ATTNSCOPE_UNROLL
      for (int i = 0; i < NV; ++i) {
        const vf x = load_value(v + i * kW);
        ATTNSCOPE_UNROLL
        for (int r = 0; r < R; ++r) acc[r][i] = vfma(vset(w[r * kScoreStride + j]), x, acc[r][i]);
      }
    }
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) ATTNSCOPE_UNROLL
    for (int i = 0; i < NV; ++i) vstore(o + r * width + i * kW, acc[r][i]);
  }
};

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
