#pragma once
// One task: a block of query rows of one head group against its range of keys.
//
//   for each block of keys:        K and V packed once, for all rows of the task
//     for each tile of rows:       the tile's scores stay in L1 from the first product to the second
//       scores → mask → maximum → weights → values
//
// Running maximum m, sum l and unnormalised values of every row carry over from block to block (online
// softmax). A row without keys keeps l = 0; a NaN score makes l NaN whatever the maximum says, so no sentinel
// value is needed anywhere.

#include "backends/cpu_fused/kernel/softmax.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

ATTNSCOPE_INLINE float exp2_scalar(float x) {
  float lane[kW];
  vstore(lane, vexp2(vset(x)));
  return lane[0];
}

// The second product where the values hold a non-finite element and some keys are masked: 0 · NaN must not
// happen, so masked keys are passed over.
template <class E>
[[gnu::noinline]] void accumulate_kept(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin,
                                       int64_t end, const float* alpha) {
  for (int r = 0; r < rows; ++r) {
    float* o = f.s.values + (row0 + r) * f.layout.value_width;
    const uint8_t* kept = f.s.kept + r * kMaxBlockKeys;
    for (int64_t d = 0; d < f.p.value_dim; ++d) {
      float sum = o[d] * alpha[r];
      for (int64_t j = begin; j < end; ++j)
        if (kept[j]) sum += E::weight_at(f, r, j) * E::value_at(f, b, j, d);
      o[d] = sum;
    }
  }
}

inline void note_kept(const Frame& f, int rows, int64_t begin, int64_t end) {
  for (int r = 0; r < rows; ++r)
    for (int64_t j = begin; j < end; ++j)
      f.s.kept[r * kMaxBlockKeys + j] = f.s.scores[r * kScoreStride + j] != -kInfinity;
}

// New maxima, and the factor that brings the old sums to them. With no key so far the maximum is −inf; then 0
// stands in for it, so that −inf − m stays −inf.
ATTNSCOPE_INLINE void update_maxima(const Frame& f, int64_t row0, int rows, float* base, float* alpha) {
  for (int r = 0; r < rows; ++r) {
    float* maximum = f.s.maximum + row0 + r;
    const float here = hmax(vload(f.s.tile_max + r * kW));
    const float old = *maximum, now = old > here ? old : here;
    *maximum = now;
    base[r] = now == -kInfinity ? 0.0f : now;
    alpha[r] = (old - base[r]) * f.exponent_scale;
  }
  for (int r = 0; r < rows; r += kW) vstore(alpha + r, vexp2(vload(alpha + r)));
}

template <class E>
void attend_tile(const Frame& f, const Block& b, int64_t row0) {
  const int rows = static_cast<int>(min_of<int64_t>(E::kTile, f.t.rows - row0));
  const KeyRange first = visible_keys(f.p, f.u, f.position(row0));
  const KeyRange last = visible_keys(f.p, f.u, f.position(row0 + rows - 1));
  const int64_t begin = max_of<int64_t>(0, first.begin - b.key0) / kPanel * kPanel;
  const int64_t end = min_of(b.n, last.end - b.key0);
  if (end <= begin) return;
  const int64_t panel_end = round_up(end, kPanel);

  for (int r = 0; r < E::kTile; ++r) vstore(f.s.tile_max + r * kW, vset(-kInfinity));
  E::scores(f, b, row0, rows, begin, panel_end);

  const bool whole = !f.natural && f.p.mask.data == nullptr && panel_end == end &&
                     last.begin - b.key0 <= begin && first.end - b.key0 >= end;
  const auto range_of = [&](int r) {
    const KeyRange seen = visible_keys(f.p, f.u, f.position(row0 + r));
    const int64_t lo = min_of(max_of(begin, seen.begin - b.key0), panel_end);
    return KeyRange{lo, max_of(lo, min_of(b.n, seen.end - b.key0))};
  };
  if (!whole)
    for (int r = 0; r < rows; ++r) {
      const KeyRange seen = range_of(r);
      finish_scores(f, row0 + r, r, b.key0, begin, panel_end, seen.begin, seen.end);
    }

  float base[kRowMax], alpha[kRowMax] = {};
  update_maxima(f, row0, rows, base, alpha);
  constexpr bool kCut = E::kWeights >= kTwoPieces;  // pieces of infinity are of no use: never multiplied
  const bool select = (!whole || kCut) && !E::values_finite(f, b);
  if (select) note_kept(f, rows, begin, end);
  for (int r = 0; r < rows; ++r) {
    float* s = f.s.scores + r * kScoreStride;
    uint16_t* w = f.s.weights + r * kScoreStride;
    float* sums = f.s.sums + (row0 + r) * kW;
    const int64_t piece = f.layout.row_tile * kScoreStride;
    if (!f.p.dropout) {
      exponentials<E::kWeights>(s, w, piece, begin, panel_end, base[r], f.exponent_scale, alpha[r], sums);
      continue;
    }
    exponentials<kInPlace>(s, w, piece, begin, panel_end, base[r], f.exponent_scale, alpha[r], sums);
    const KeyRange seen = range_of(r);
    drop_weights(f, row0 + r, b.key0, seen.begin, seen.end, s);
    for (int64_t j = begin; j < panel_end; j += kPanel)
      put_weights<E::kWeights>(s + j, w + j, piece, vload(s + j), vload(s + j + kW));
  }
  if (select)
    accumulate_kept<E>(f, b, row0, rows, begin, end, alpha);
  else
    E::accumulate(f, b, row0, rows, begin, end, alpha);
}

// Writes row r of the outputs from its final state.
template <typename T>
void write_row(const Frame& f, int64_t r, const float* values, float maximum, float sum) {
  const Strided &out = f.p.out, &lse = f.p.lse;
  const int64_t head = f.head(r), position = f.u.q_begin + f.position(r);
  char* line = out.data + f.u.batch * out.stride[0] + head * out.stride[1] + position * out.stride[2];
  const bool empty = sum == 0.0f;
  const bool zero = empty || (f.p.drop_all && sum == sum);
  const vf factor = vset(f.p.keep_scale / sum);
  for (int64_t d = 0; d < f.p.value_dim; d += kW) {
    const int n = static_cast<int>(min_of<int64_t>(kW, f.p.value_dim - d));
    const vf x = zero ? vset(0.0f) : vload(values + d) * factor;
    if (out.stride[3] == static_cast<int64_t>(sizeof(T))) {
      store_n(reinterpret_cast<T*>(line) + d, x, n);
    } else {
      float lanes[kW];
      vstore(lanes, x);
      for (int i = 0; i < n; ++i) from_float(lanes[i], reinterpret_cast<T*>(line + (d + i) * out.stride[3]));
    }
  }
  if (lse.data != nullptr) {
    const double unit = f.natural ? 1.0 : f.p.lse_multiplier;
    const float value = empty ? -kInfinity : static_cast<float>(maximum * unit + __builtin_log(sum));
    *reinterpret_cast<float*>(lse.data + f.u.batch * lse.stride[0] + head * lse.stride[1] +
                              position * lse.stride[2]) = value;
  }
}

template <class E>
size_t scratch_bytes(const Problem& p) {
  return reinterpret_cast<size_t>(carve(p, E::layout(p), E::kElementBytes, nullptr).end);
}

template <class E>
void run_task(const Problem& p, const Task& t, void* scratch) {
  const Frame f = make_frame(p, t, E::layout(p), E::kElementBytes, scratch);
  const int64_t width = f.layout.value_width;
  E::pack_queries(f);
  __builtin_memset(f.s.values, 0, static_cast<size_t>(f.layout.rows * width) * sizeof(float));
  __builtin_memset(f.s.sums, 0, static_cast<size_t>(f.layout.rows * kW) * sizeof(float));
  for (int64_t r = 0; r < f.layout.rows; ++r) f.s.maximum[r] = -kInfinity;

  Block b{};
  b.k = key_rows(p, f.u, p.k, t.head0 / p.k_ratio);
  b.v = key_rows(p, f.u, p.v, t.head0 / p.v_ratio);
  b.key_bytes = p.head_dim * static_cast<int64_t>(sizeof(typename E::Storage));
  b.value_bytes = p.value_dim * static_cast<int64_t>(sizeof(typename E::Storage));
  const int64_t steps = round_up(t.rows, E::kTile) / E::kTile * (p.keys_per_block / kPanel);
  for (b.key0 = t.key_begin; b.key0 < t.key_end; b.key0 += p.keys_per_block) {
    b.n = min_of<int64_t>(p.keys_per_block, t.key_end - b.key0);
    b.next = b.key0 + b.n;
    b.next_end = min_of<int64_t>(b.next + p.keys_per_block, t.key_end);
    b.rows_ahead = static_cast<float>(b.next_end - b.next) / static_cast<float>(max_of<int64_t>(steps, 1));
    E::load_block(f, &b);
    for (int64_t row0 = 0; row0 < t.rows; row0 += E::kTile) attend_tile<E>(f, b, row0);
  }

  for (int64_t r = 0; r < t.rows; ++r) {
    const float sum = hsum(vload(f.s.sums + r * kW));
    if (t.splits == 1) {
      write_row<typename E::Storage>(f, r, f.s.values + r * width, f.s.maximum[r], sum);
    } else {
      __builtin_memcpy(t.partial.values + r * width, f.s.values + r * width,
                       static_cast<size_t>(width) * sizeof(float));
      t.partial.maximum[r] = f.s.maximum[r];
      t.partial.sum[r] = sum;
    }
  }
}

// Adds up the parts of one row block in their order, whoever finished first: the result is reproducible.
template <class E>
void merge(const Problem& p, const Task* parts, void* scratch) {
  const Frame f = make_frame(p, parts[0], E::layout(p), E::kElementBytes, scratch);
  const int64_t width = f.layout.value_width;
  for (int64_t r = 0; r < parts[0].rows; ++r) {
    float maximum = -kInfinity, sum = 0.0f;
    for (int i = 0; i < parts[0].splits; ++i) maximum = max_of(maximum, parts[i].partial.maximum[r]);
    const float base = maximum == -kInfinity ? 0.0f : maximum;
    float* total = f.s.values;
    __builtin_memset(total, 0, static_cast<size_t>(width) * sizeof(float));
    for (int i = 0; i < parts[0].splits; ++i) {
      const Partial& part = parts[i].partial;
      if (part.sum[r] == 0.0f) continue;  // no keys: nothing to add, and its values are not looked at
      const float weight = exp2_scalar((part.maximum[r] - base) * f.exponent_scale);
      sum += part.sum[r] * weight;
      for (int64_t d = 0; d < width; d += kW)
        vstore(total + d, vfma(vset(weight), vload(part.values + r * width + d), vload(total + d)));
    }
    write_row<typename E::Storage>(f, r, total, maximum, sum);
  }
}

template <class E>
constexpr KernelSet kernel_set_of(const char* isa) {
  return {isa, E::kTile, E::kElementBytes, kPanel, kMaxBlockKeys, scratch_bytes<E>, run_task<E>, merge<E>};
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
