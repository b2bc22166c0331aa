#pragma once
// One thread's working memory for one task, and which keys each of the task's rows sees.

#include "backends/cpu_fused/kernel/simd.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

// Distance between rows of the score tile: a constant, so that row addresses are displacements, and not a
// power of two, so that a column of rows spreads over the L1 sets.
inline constexpr int kScoreStride = kMaxBlockKeys + 16;
inline constexpr int kRowMax = 32;      // most rows of any register tile (AMX)
inline constexpr int kMostAhead = 128;  // most rows that are asked for ahead of a row that is read in place

// How an engine wants the weights: f32 in place of the scores; bf16, neighbours in pairs; or cut into bf16
// pieces without a remainder (see engine_amx_split.h).
enum WeightForm { kInPlace = 0, kPairs = 1, kTwoPieces = 2, kThreePieces = 3 };

ATTNSCOPE_INLINE int64_t round_up(int64_t n, int64_t m) {
  return (n + m - 1) / m * m;
}

struct KeyRange {
  int64_t begin, end;
};

// Keys that position i of the unit sees; begin ≤ end, both non-decreasing in i.
ATTNSCOPE_INLINE KeyRange visible_keys(const Problem& p, const Unit& u, int64_t i) {
  const int64_t d = i + u.diagonal;
  const int64_t end = max_of<int64_t>(0, min_of(u.k_len, d + p.right + 1));
  const int64_t begin = min_of(max_of<int64_t>(0, d - p.left), u.k_len);
  return {min_of(begin, end), end};
}

// Addresses of K or V rows of one head: dense, or through the block table.
struct KeyRows {
  const char* base;
  int64_t row_stride;
  const char* table;  // null when dense
  int64_t table_stride, page_stride, page_size;

  ATTNSCOPE_INLINE const char* row(int64_t j) const {
    if (table == nullptr) return base + j * row_stride;
    int32_t page;
    __builtin_memcpy(&page, table + j / page_size * table_stride, sizeof(page));
    return base + page * page_stride + j % page_size * row_stride;
  }
};

inline KeyRows key_rows(const Problem& p, const Unit& u, const Strided& x, int64_t head) {
  KeyRows rows{x.data + head * x.stride[1], x.stride[2], nullptr, 0, 0, 1};
  if (p.block_table.data != nullptr) {
    rows.table = p.block_table.data + u.batch * p.block_table.stride[0];
    rows.table_stride = p.block_table.stride[1];
    rows.page_stride = x.stride[0];
    rows.page_size = p.page_size;
  } else {
    rows.base += u.batch * x.stride[0] + u.k_begin * x.stride[2];
  }
  return rows;
}

// The keys a task is working on: key0 … key0+n−1 of its unit.
struct Block {
  KeyRows k, v;
  int64_t key0 = 0, n = 0;
  bool finite = true;        // all values are; set by engines that look at them while packing
  bool keys_regular = true;  // set by engines that take only such keys as they are

  // The next block, asked for while this one is worked on: so many of its rows with every panel of every
  // tile.
  int64_t next = 0, next_end = 0;
  float rows_ahead = 0;
  int64_t key_bytes = 0, value_bytes = 0;  // of a row
};

// Sizes that all parts of a kernel agree on.
struct Layout {
  int64_t row_tile;     // rows per register tile of this kernel
  int64_t rows;         // rows_per_task rounded up to row_tile
  int64_t depth;        // head_dim rounded up to the dot-product granule
  int64_t value_width;  // value_dim rounded up to kPanel
  int64_t pieces;       // that weights are cut into
};

inline Layout layout_of(const Problem& p, int64_t row_tile, int64_t depth_granule, int64_t pieces = 1) {
  return {row_tile, round_up(p.rows_per_task, row_tile),
          round_up(max_of<int64_t>(p.head_dim, 1), depth_granule),
          round_up(max_of<int64_t>(p.value_dim, 1), kPanel), pieces};
}

// Carves 64-byte aligned pieces out of the scratch; run with base 0 it measures.
struct Carver {
  char* at;
  template <typename T>
  T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(at);
    at += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return piece;
  }
};

struct Scratch {
  void* q_panels;        // scaled queries, layout of the engine
  void* k_panels;        // [keys / kPanel][depth] × kPanel
  void* v_panels;        // [value_width / kPanel][keys] × kPanel
  float* values;         // [rows][value_width] f32 accumulators
  float* maximum;        // [rows]
  float* sums;           // [rows][kW]: lanes are added up at the end
  float* scores;         // [row_tile][kScoreStride]; becomes the weights in f32 kernels
  uint16_t* weights;     // [pieces][row_tile][kScoreStride] bf16 weights of native kernels
  float* tile_max;       // [row_tile][kW] running maxima of the tile
  float* row;            // [kMaxBlockKeys] one mask row, or one gathered line
  uint32_t* words;       // [kMaxBlockKeys + 8] dropout words
  uint8_t* kept;         // [row_tile][kMaxBlockKeys], see accumulate_kept
  float* product;        // [row_tile][kPanel] of engines that add a block's product to the values at once
  uint8_t* odd_rows;     // [rows] queries that such engines do not take as they are
  const char** k_lines;  // [kMaxBlockKeys + kMostAhead] where the rows of the block lie and those after it,
  const char** v_lines;  // for engines that read them there
  char* end;
};

inline Scratch carve(const Problem& p, const Layout& l, int64_t element_bytes, void* base) {
  Carver c{static_cast<char*>(base)};
  Scratch s;
  const int64_t keys = p.keys_per_block;
  s.q_panels = c.take<char>(l.rows * l.depth * element_bytes);
  s.k_panels = c.take<char>(keys * l.depth * element_bytes);
  s.v_panels = c.take<char>(keys * l.value_width * element_bytes);
  s.values = c.take<float>(l.rows * l.value_width);
  s.maximum = c.take<float>(l.rows);
  s.sums = c.take<float>(l.rows * kW);
  s.scores = c.take<float>(l.row_tile * kScoreStride);
  s.weights = c.take<uint16_t>(l.pieces * l.row_tile * kScoreStride);
  s.tile_max = c.take<float>(kRowMax * kW);
  s.row = c.take<float>(max_of<int64_t>(kMaxBlockKeys, l.depth + kPanel));
  s.words = c.take<uint32_t>(kMaxBlockKeys + 8);
  s.kept = c.take<uint8_t>(l.row_tile * kMaxBlockKeys);
  s.product = c.take<float>(l.row_tile * kPanel);
  s.odd_rows = c.take<uint8_t>(l.rows);
  s.k_lines = c.take<const char*>(kMaxBlockKeys + kMostAhead);
  s.v_lines = c.take<const char*>(kMaxBlockKeys + kMostAhead);
  s.end = c.at;
  return s;
}

ATTNSCOPE_INLINE void prefetch_line(const char* line, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(line + at, 0, 2);
}

// What the steps of a task share.
struct Frame {
  const Problem& p;
  const Task& t;
  const Unit& u;
  Layout layout;
  Scratch s;
  float exponent_scale;  // p = exp2((t − m) · exponent_scale)
  bool natural;          // scores are brought to natural units before the maximum (bias or softcap)

  int64_t position(int64_t r) const { return p.group == 1 ? t.row_begin + r : (t.row_begin + r) / p.group; }
  int64_t head(int64_t r) const { return p.group == 1 ? t.head0 : t.head0 + (t.row_begin + r) % p.group; }
};

// Asks for rows of the next block. A few at a time: the requests must not crowd out the reads from L2 that
// the products wait for. `step` counts panels over all tiles of the block.
ATTNSCOPE_INLINE void ask_ahead(const Block& b, int64_t step) {
  const auto first = static_cast<int64_t>(static_cast<float>(step) * b.rows_ahead);
  const auto last = static_cast<int64_t>(static_cast<float>(step + 1) * b.rows_ahead);
  for (int64_t j = b.next + first; j < min_of(b.next + last, b.next_end); ++j) {
    prefetch_line(b.k.row(j), b.key_bytes);
    prefetch_line(b.v.row(j), b.value_bytes);
  }
}

inline Frame make_frame(const Problem& p, const Task& t, const Layout& l, int64_t element_bytes,
                        void* scratch) {
  constexpr float kLog2E = 1.44269504088896341f;
  const bool natural = p.softcap > 0 || (p.mask.data != nullptr && p.mask_element != Element::kBool);
  return Frame{
      p,      t, *t.unit, l, carve(p, l, element_bytes, scratch), natural ? kLog2E : p.multiplier * kLog2E,
      natural};
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
