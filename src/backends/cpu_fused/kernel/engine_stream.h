#pragma once
// Few query rows against many keys (decoding): every K and V element is used once or a handful of times, so
// memory is the limit and packing would only add to it. K and V are read in place, row by row, widened to f32
// in registers. Rows are asked for a little ahead of their use, at an even pace and in the order of their
// addresses: that is what keeps memory busy from end to end.
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

inline constexpr int64_t kAheadBytes = 6144;  // Zen 4: a third more or less costs up to a tenth
inline constexpr int64_t kPassBytes = 8192;   // of V at a time, for all query rows and columns: stays in L1

// How many rows ahead of its use a row is asked for.
ATTNSCOPE_INLINE int64_t rows_ahead(int64_t row_bytes) {
  return max_of<int64_t>(1, min_of<int64_t>(kMostAhead, kAheadBytes / max_of<int64_t>(row_bytes, 1)));
}

// Keys whose V rows go through all passes together.
ATTNSCOPE_INLINE int64_t keys_a_pass(int64_t row_bytes) {
  int64_t keys = kMostAhead / 2;  // those asked for are up to as many further on
  while (keys > 8 && keys * row_bytes > kPassBytes) keys /= 2;
  return keys;
}

// The rows of a block and those after it: at equal distances, or listed.
struct DenseRows {
  const char* base;
  int64_t stride, last;  // the last row of the task, counted from the block's first
  ATTNSCOPE_INLINE const char* row(int64_t j) const { return base + j * stride; }
  ATTNSCOPE_INLINE const char* ahead(int64_t j) const { return base + min_of(j, last) * stride; }
};
struct ListedRows {
  const char* const* lines;
  ATTNSCOPE_INLINE const char* row(int64_t j) const { return lines[j]; }
  ATTNSCOPE_INLINE const char* ahead(int64_t j) const { return lines[j]; }
};

// Listing takes time in which memory rests: only for pages, and where scores are formed past the last key.
ATTNSCOPE_INLINE bool dense(const Block& b) {
  return b.k.table == nullptr && b.n % kPanel == 0;
}
ATTNSCOPE_INLINE DenseRows dense_rows(const Frame& f, const Block& b, const KeyRows& rows) {
  return {rows.base + b.key0 * rows.row_stride, rows.row_stride, f.t.key_end - 1 - b.key0};
}

// Where n rows from key on lie, and the kMostAhead after them; past the last the last again.
inline void list_rows(const KeyRows& rows, int64_t key, int64_t key_end, int64_t n, const char** lines) {
  n += kMostAhead;
  const int64_t present = min_of(n, key_end - key);
  int64_t i = 0;
  while (i < present) {
    const char* at = rows.row(key + i);
    int64_t run = present - i;
    if (rows.table != nullptr) run = min_of(run, rows.page_size - (key + i) % rows.page_size);
    for (const int64_t stop = i + run; i < stop; ++i, at += rows.row_stride) lines[i] = at;
  }
  for (; i < n; ++i) lines[i] = lines[present - 1];
}
inline void list_block(const Frame& f, const Block& b) {
  if (dense(b)) return;
  const int64_t n = round_up(b.n, kPanel);
  list_rows(b.k, b.key0, f.t.key_end, n, f.s.k_lines);
  list_rows(b.v, b.key0, f.t.key_end, n, f.s.v_lines);
}

// The scores of R rows and kW / R keys.
template <int R>
ATTNSCOPE_INLINE void put_scores(float* scores, vf sums) {
  constexpr int kKeys = kW / R;
  float lanes[kW];
  vstore(lanes, sums);
  ATTNSCOPE_UNROLL
  for (int r = 0; r < R; ++r)
    __builtin_memcpy(scores + r * kScoreStride, lanes + r * kKeys, kKeys * sizeof(float));
}
inline void put_maxima(const Frame& f, int rows, int64_t begin, int64_t end) {
  for (int r = 0; r < rows; ++r) {
    vf m = vset(-kInfinity);
    for (int64_t j = begin; j < end; j += kW) m = vmax(vload(f.s.scores + r * kScoreStride + j), m);
    vstore(f.s.tile_max + r * kW, m);
  }
}

// Rows of V that a pass asks for: from `next` on, `each` with every two keys it works on.
struct Ask {
  int64_t next, each, bytes;
};
template <class Rows>
ATTNSCOPE_INLINE void ask_for(const Rows& v, Ask* ask) {
  for (int64_t i = 0; i < ask->each; ++i) prefetch_line(v.ahead(ask->next++), ask->bytes);
}

// values = α · values + weights · v, two rows at a time. V is read in passes over few keys, each over whole
// rows of V, the first from memory, the others from L1. Between them they ask for the rows of as many keys
// more, in order and at an even pace.
template <class E, class Rows>
void accumulate_from(const Frame& f, const Block& b, const Rows& v, int64_t row0, int rows, int64_t begin,
                     int64_t end, const float* alpha) {
  const float one[kStreamRows] = {1.0f, 1.0f, 1.0f, 1.0f};
  const int64_t keys = keys_a_pass(b.value_bytes), each = rows > 2 ? 1 : 2;
  for (int64_t j = begin; j < end; j += keys) {
    const int64_t stop = min_of(end, j + keys);
    const float* factor = j == begin ? alpha : one;
    for (int row = 0; row < rows; row += 2) {
      const Ask ask{j + keys + row * keys / 4, each, b.value_bytes};
      if (rows - row > 1)
        E::template pass<2>(f, v, row0, row, j, stop, factor + row, ask);
      else
        E::template pass<1>(f, v, row0, row, j, stop, factor + row, ask);
    }
  }
}
template <class E>
ATTNSCOPE_INLINE void accumulate_rows(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin,
                                      int64_t end, const float* alpha) {
  if (dense(b))
    accumulate_from<E>(f, b, dense_rows(f, b, b.v), row0, rows, begin, end, alpha);
  else
    accumulate_from<E>(f, b, ListedRows{f.s.v_lines}, row0, rows, begin, end, alpha);
}

template <class E, class Rows>
ATTNSCOPE_INLINE void scores_from(const Frame& f, const Block& b, const Rows& k, int64_t row0, int rows,
                                  int64_t begin, int64_t end) {
  if (rows > 2) return E::template scores_of<4>(f, b, k, row0, begin, end);
  if (rows > 1) return E::template scores_of<2>(f, b, k, row0, begin, end);
  E::template scores_of<1>(f, b, k, row0, begin, end);
}
template <class E>
ATTNSCOPE_INLINE void scores_of_rows(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin,
                                     int64_t end) {
  if (dense(b))
    scores_from<E>(f, b, dense_rows(f, b, b.k), row0, rows, begin, end);
  else
    scores_from<E>(f, b, ListedRows{f.s.k_lines}, row0, rows, begin, end);
}

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
  static void load_block(const Frame& f, Block* b) { list_block(f, *b); }

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
    scores_of_rows<StreamEngine<T>>(f, b, row0, rows, begin, end);
  }

  static void accumulate(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end,
                         const float* alpha) {
    accumulate_rows<StreamEngine<T>>(f, b, row0, rows, begin, end, alpha);
  }
  static float weight_at(const Frame& f, int r, int64_t j) { return f.s.scores[r * kScoreStride + j]; }
  static float value_at(const Frame&, const Block& b, int64_t j, int64_t d) {
    return to_float(reinterpret_cast<const T*>(b.v.row(b.key0 + j))[d]);
  }

  // All columns of the tile's rows row … row+R−1, added up over keys begin … end−1. begin is even; past an
  // odd end the weight is 0, and the row there is one of the block: finite, or its product would not be
  // formed here.
  template <int R, class Rows>
  [[gnu::noinline]] static void pass(const Frame& f, const Rows& v, int64_t row0, int row, int64_t begin,
                                     int64_t end, const float* alpha, Ask ask) {
    constexpr int kVectors = kStreamAccumulators / R > 8 ? 8 : kStreamAccumulators / R;
    const int64_t dim = f.p.value_dim;
    int64_t d = 0;
    for (; d + kVectors * kW <= dim; d += kVectors * kW, ask.each = 0)
      columns<R, kVectors>(f, v, row0, row, begin, end, alpha, d, ask, [](const T* at) { return load(at); });
    for (; d < dim; d += kW, ask.each = 0) {
      const int n = lanes_left(dim, d);
      columns<R, 1>(f, v, row0, row, begin, end, alpha, d, ask, [n](const T* at) { return load_n(at, n); });
    }
  }

  // R rows × kW / R keys at a time: one accumulator per pair, all kW of them summed across together.
  template <int R, class Rows>
  [[gnu::noinline]] static void scores_of(const Frame& f, const Block& b, const Rows& k, int64_t row0,
                                          int64_t begin, int64_t end) {
    constexpr int kKeys = kW / R;
    const int64_t depth = f.layout.depth, dim = f.p.head_dim, whole = dim / kW * kW;
    const int64_t key_bytes = b.key_bytes, ahead = rows_ahead(key_bytes);
    const float* q = queries(f) + row0 * depth;
    for (int64_t j = begin; j < end; j += kKeys) {
      const T* keys[kKeys];
      for (int i = 0; i < kKeys; ++i) {
        keys[i] = reinterpret_cast<const T*>(k.row(j + i));
        prefetch_line(k.ahead(j + i + ahead), key_bytes);
      }
      vf acc[kW];
      ATTNSCOPE_UNROLL
      for (int i = 0; i < kW; ++i) acc[i] = vset(0.0f);
      const auto step = [&](int64_t d, auto load_key) __attribute__((always_inline)) {
        ATTNSCOPE_UNROLL
        for (int i = 0; i < kKeys; ++i) {
          const vf x = load_key(keys[i] + d);
          ATTNSCOPE_UNROLL
          for (int r = 0; r < R; ++r)
            acc[r * kKeys + i] = vfma(vload(q + r * depth + d), x, acc[r * kKeys + i]);
        }
      };
      for (int64_t d = 0; d < whole; d += kW) step(d, [](const T* at) { return load(at); });
      if (whole < dim) step(whole, [&](const T* at) { return load_n(at, static_cast<int>(dim - whole)); });
      put_scores<R>(f.s.scores + j, reduce_each(acc));
    }
    put_maxima(f, R, begin, end);
  }

 private:
  static float* queries(const Frame& f) { return static_cast<float*>(f.s.q_panels); }

  template <int R, int N, class Rows, typename Load>
  ATTNSCOPE_INLINE static void columns(const Frame& f, const Rows& rows, int64_t row0, int row, int64_t begin,
                                       int64_t end, const float* alpha, int64_t d, Ask ask, Load load_value) {
    const int64_t width = f.layout.value_width;
    float* o = f.s.values + (row0 + row) * width + d;
    const float* w = f.s.scores + row * kScoreStride;
    vf acc[R][N];
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) ATTNSCOPE_UNROLL
    for (int i = 0; i < N; ++i) acc[r][i] = vset(alpha[r]) * vload(o + r * width + i * kW);
    for (int64_t j = begin; j < end; j += 2) {
      ask_for(rows, &ask);
      ATTNSCOPE_UNROLL
      for (int n = 0; n < 2; ++n) {
        const T* v = reinterpret_cast<const T*>(rows.row(j + n)) + d;
        vf weights[R];
        ATTNSCOPE_UNROLL
        for (int r = 0; r < R; ++r) weights[r] = vset(w[r * kScoreStride + j + n]);
        ATTNSCOPE_UNROLL
        for (int i = 0; i < N; ++i) {
          const vf x = load_value(v + i * kW);
          ATTNSCOPE_UNROLL
          for (int r = 0; r < R; ++r) acc[r][i] = vfma(weights[r], x, acc[r][i]);
        }
      }
    }
    ATTNSCOPE_UNROLL
    for (int r = 0; r < R; ++r) ATTNSCOPE_UNROLL
    for (int i = 0; i < N; ++i) vstore(o + r * width + i * kW, acc[r][i]);
  }
};

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
