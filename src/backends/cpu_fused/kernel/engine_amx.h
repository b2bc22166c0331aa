#pragma once
// bf16 products on AMX tiles: 32 × 32 results at a time in four tiles, so that each loaded tile is used
// twice.
//
// K and V panels are those of engine_bf16.h: a tile of B is 16 consecutive lines of a panel's half. Queries
// stay row-major. The accumulators live in memory between blocks, so their rescaling is a pass of its own,
// left out for rows whose maximum did not move.

#include "backends/cpu_fused/kernel/engine_bf16.h"
#include "backends/cpu_fused/kernel/task.h"
#include "backends/cpu_fused/kernel/tiles.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

// accumulators += A · B over `steps` tiles.
template <bool kTall>
ATTNSCOPE_INLINE void multiply_tiles(int64_t steps, const uint16_t* a, int64_t a_stride, const uint16_t* b) {
  for (int64_t i = 0; i < steps; ++i) {
    load_a<kTall>(a, a_stride);
    load_b(b);
    multiply<kTall>();
    a += kDepthStep;
    b += 16 * 2 * kPanel;
  }
}

// Maxima of the tile's rows over keys begin … end−1.
ATTNSCOPE_INLINE void note_maxima(const Frame& f, int rows, int64_t begin, int64_t end) {
  for (int r = 0; r < rows; ++r) {
    const float* s = f.s.scores + r * kScoreStride;
    vf m = vset(-kInfinity);
    for (int64_t j = begin; j < end; j += kW) m = vmax(vload(s + j), m);
    vstore(f.s.tile_max + r * kW, m);
  }
}

struct AmxEngine {
  using Storage = BF16;
  static constexpr int kTile = kAmxRows;
  static constexpr int kElementBytes = 2;
  static constexpr WeightForm kWeights = kPairs;

  static Layout layout(const Problem& p) { return layout_of(p, kAmxRows, kDepthStep); }

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
  static void load_block(const Frame& f, Block* b) {
    pack_keys_bf16(f, *b, static_cast<uint16_t*>(f.s.k_panels));
    uint16_t* v = static_cast<uint16_t*>(f.s.v_panels);
    b->finite = pack_values_bf16(f, *b, v);
    // Whole tiles are multiplied: the lines up to the next 32 keys must not hold what was there before.
    const int64_t used = (b->n + 1) / 2, padded = round_up(b->n, kPanel) / 2;
    for (int64_t d = 0; d < f.p.value_dim; d += kPanel)
      __builtin_memset(v + (d * f.p.keys_per_block + used * 2 * kPanel), 0,
                       static_cast<size_t>((padded - used) * kPanelBytes));
  }
  static bool values_finite(const Frame&, const Block& b) { return b.finite; }

  static void scores(const Frame& f, const Block& b, int64_t row0, int rows, int64_t begin, int64_t end) {
    if (rows > 16)
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
      multiply_tiles<kTall>(depth / kDepthStep, q, depth * 2, k + j * depth);
      store_accumulators<kTall>(f.s.scores + j, kScoreStride);
    }
  }

  static void accumulate(const Frame& f, const Block&, int64_t row0, int rows, int64_t begin, int64_t end,
                         const float* alpha) {
    const int64_t width = f.layout.value_width;
    for (int r = 0; r < rows; ++r) {
      if (alpha[r] == 1.0f) continue;
      float* o = f.s.values + (row0 + r) * width;
      for (int64_t d = 0; d < width; d += kW) vstore(o + d, vload(o + d) * vset(alpha[r]));
    }
    if (rows > 16)
      accumulate_of<true>(f, row0, begin, end);
    else
      accumulate_of<false>(f, row0, begin, end);
  }
  // Weights past `end` are 0 up to the end of their panel.
  template <bool kTall>
  [[gnu::noinline]] static void accumulate_of(const Frame& f, int64_t row0, int64_t begin, int64_t end) {
    const int64_t width = f.layout.value_width, steps = (end - begin + kDepthStep - 1) / kDepthStep;
    const uint16_t* v = static_cast<const uint16_t*>(f.s.v_panels) + begin * kPanel;
    for (int64_t d = 0; d < f.p.value_dim; d += kPanel) {
      float* o = f.s.values + row0 * width + d;
      load_accumulators<kTall>(o, width);
      multiply_tiles<kTall>(steps, f.s.weights + begin, kScoreStride * 2, v + d * f.p.keys_per_block);
      store_accumulators<kTall>(o, width);
    }
  }

  static float weight_at(const Frame& f, int r, int64_t j) { return DotEngine::weight_at(f, r, j); }
  static float value_at(const Frame& f, const Block& b, int64_t j, int64_t d) {
    return DotEngine::value_at(f, b, j, d);
  }
};

template <class E>
void run_task_on_tiles(const Problem& p, const Task& t, void* scratch) {
  const TileScope tiles;
  run_task<E>(p, t, scratch);
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
