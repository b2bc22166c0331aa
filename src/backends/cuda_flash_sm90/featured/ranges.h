#pragma once
// Which keys the rows of a tile see, and how many row blocks of a sequence end where: constexpr and plain
// C++, so that the CPU tests check them against the definition.

#include "backends/cuda_flash_sm90/featured/params.h"

namespace attnscope::flash_sm90 {

using namespace attnscope::tile;

ATTNSCOPE_HD constexpr int least(int a, int b) {
  return a < b ? a : b;
}
ATTNSCOPE_HD constexpr int most(int a, int b) {
  return a > b ? a : b;
}

// One tile, in shared memory: the scheduler warp writes it, every role reads it.
struct alignas(16) TileInfo {
  int keys;        // of the sequence
  int seen_end;    // row r of the tile sees keys < min(keys, r + seen_end)…
  int seen_begin;  // …and ≥ r + seen_begin
  int rows;        // of the sequence from the tile's first one on; more than kRows: a whole tile
  int first_step;  // key blocks first_step … end_step − 1, at least one
  int end_step;
  int q_row, k_row;  // of the tile's first row in q, of the sequence's key 0 in k and v
  int head, k_head, v_head, batch;
  int diagonal;    // key that stands opposite the tile's first row (ALiBi)
  int valid;       // 0: no more tiles
  int not_finite;  // a cleaner took values out of it that are not finite (kernel.cuh, add_not_finite)
};

struct Sequence {
  int q_begin, rows, k_begin, keys, batch;
};

// Key − row of the last key that row sees, bounds of the sequence aside; and of the first.
ATTNSCOPE_HD constexpr int shift_of(const FeaturedParams& p, const Sequence& s) {
  return p.lower_right ? s.keys - s.rows : 0;
}
ATTNSCOPE_HD constexpr int last_offset(const FeaturedParams& p, const Sequence& s) {
  return p.right == kUnbounded ? kUnbounded : shift_of(p, s) + p.right;
}
ATTNSCOPE_HD constexpr int first_offset(const FeaturedParams& p, const Sequence& s) {
  return p.left == kUnbounded ? -kUnbounded : shift_of(p, s) - p.left;
}

// Row blocks of a sequence whose keys end within the first `steps` key blocks; a window's left side does not
// count. They are the sequence's first ones.
template <int kRows, int kColumns>
ATTNSCOPE_HD constexpr int blocks_within(const FeaturedParams& p, const Sequence& s, int steps) {
  if (steps <= 0) return 0;
  const int blocks = (s.rows + kRows - 1) / kRows, keys = steps * kColumns, last = last_offset(p, s);
  if (s.keys <= keys || s.rows + last <= keys) return blocks;
  return least(most(keys - last, 0) / kRows, blocks);
}

template <int kRows, int kColumns>
ATTNSCOPE_HD constexpr TileInfo tile_info(const FeaturedParams& p, const Sequence& s, int block, int head) {
  const int first_row = block * kRows, last_row = least(first_row + kRows, s.rows) - 1;
  TileInfo t{};
  t.keys = s.keys;
  t.seen_end = first_row + 1 + last_offset(p, s);
  t.seen_begin = first_row + first_offset(p, s);
  t.rows = s.rows - first_row;
  const int end = least(s.keys, last_row + 1 + last_offset(p, s));
  t.end_step = most(1, (end + kColumns - 1) / kColumns);  // a tile that sees nothing runs one masked step
  t.first_step = least(most(t.seen_begin, 0) / kColumns, t.end_step - 1);
  t.q_row = s.q_begin + first_row;
  t.k_row = s.k_begin;
  t.head = head;
  t.k_head = head / p.k_group;
  t.v_head = head / p.v_group;
  t.batch = s.batch;
  t.diagonal = first_row + shift_of(p, s);
  t.valid = 1;
  t.not_finite = 0;
  return t;
}

}  // namespace attnscope::flash_sm90
