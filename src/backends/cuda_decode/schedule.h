#pragma once
// Who computes what, the same arithmetic on host and device, so that the CPU tests check it.
//
// The query rows that share a key head and a value head (all heads of a group × L rows) are packed into tiles
// of 16 or 64 rows; the keys that a tile of rows sees are cut into key tiles. Blocks get runs of key tiles:
//   even parts   block = tile of rows · parts + part; each part is a run of one row tile's key tiles
//   flat         all key tiles of all row tiles in one line, which the blocks share evenly, whatever the
//                lengths are: a block may end one row tile and begin the next
// A run that is not all of its row tile's keys is a *piece*: its result is joined with the others'.

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::decode {

using tile::i64;
using tile::u32;
using tile::u64;

// Division by a number that the host knows, in two instructions; right as long as x · by < 2^32.
struct Divisor {
  int by;
  u32 factor;  // 2^32 / by, rounded up
};
ATTNSCOPE_HD constexpr Divisor divisor(int by) {
  return {by, by > 1 ? static_cast<u32>(((u64(1) << 32) + u64(by) - 1) / u64(by)) : 0};
}
ATTNSCOPE_HD constexpr int divided(int x, Divisor d) {
  return d.by == 1 ? x : static_cast<int>(u64(u32(x)) * d.factor >> 32);
}

// Everything that decides who computes what.
struct Problem {
  int batch, heads;         // query heads
  int length;               // L: query rows of a head
  int pack;                 // query heads that are packed together
  int k_group, v_group;     // query heads per key head, per value head
  int keys;                 // S, when there are no lengths
  const void* lengths;      // keys per batch entry, or null
  i64 lengths_stride;       // elements
  int lengths_wide;         // they are i64
  int appended;             // keys that this call adds to each length
  int causal, lower_right;  // row i sees keys ≤ i (+ keys − L)
  int window_left;          // −1: unbounded; of the diagonal
  int window_right;
  int tile_rows;  // rows of a row tile: 16 or 64
  int tile_keys;  // keys of a key tile
  int parts;      // even: pieces of every row tile; 0: flat
  int blocks;     // flat: blocks that share the line

  // Derived, by derive().
  int row_tiles;        // of a pack
  int tiles_per_batch;  // row tiles of a batch entry
  Divisor by_parts, by_tiles_per_batch, by_row_tiles;
  int quick;  // those may be used: their operands are small enough

  ATTNSCOPE_HD constexpr int rows() const { return pack * length; }  // of a pack
  ATTNSCOPE_HD constexpr int all_tiles() const { return batch * tiles_per_batch; }
};
ATTNSCOPE_HD constexpr void derive(Problem& p) {
  p.row_tiles = (p.rows() + p.tile_rows - 1) / p.tile_rows;
  p.tiles_per_batch = p.heads / p.pack * p.row_tiles;
  p.by_parts = divisor(p.parts);
  p.by_tiles_per_batch = divisor(p.tiles_per_batch);
  p.by_row_tiles = divisor(p.row_tiles);
  constexpr i64 kMost = i64(1) << 32;
  const i64 blocks = i64(p.all_tiles()) * p.parts;
  p.quick = p.parts > 0 && blocks * p.parts < kMost && i64(p.keys) * p.parts < kMost &&
            i64(p.all_tiles()) * p.tiles_per_batch < kMost && i64(p.tiles_per_batch) * p.row_tiles < kMost;
}

// Row r of pack `pack`: which query head and row.
struct Row {
  int head, i;
};
ATTNSCOPE_HD constexpr Row row_of(const Problem& p, int pack, int r) {
  if (p.length == 1) return {pack * p.pack + r, 0};
  return {pack * p.pack + r / p.length, r % p.length};
}

struct Interval {
  int begin, end;
};

// The key that row i sits on, for the causal mode, the window and ALiBi.
ATTNSCOPE_HD constexpr int diagonal_of(const Problem& p, int keys, int i) {
  return p.lower_right ? i + keys - p.length : i;
}

// Keys that row i sees of `keys`; begin and end never decrease with i.
ATTNSCOPE_HD constexpr Interval visible(const Problem& p, int keys, int i) {
  const int diagonal = diagonal_of(p, keys, i);
  Interval v{0, keys};
  if (p.window_left >= 0 && diagonal > p.window_left) v.begin = diagonal - p.window_left;
  if (p.window_right >= 0 && diagonal + p.window_right + 1 < v.end) v.end = diagonal + p.window_right + 1;
  if (p.causal && diagonal + 1 < v.end) v.end = diagonal + 1;
  if (v.end < 0) v.end = 0;
  return v;
}

// Key tiles that some row of a head sees; counted from key 0. A row tile that sees nothing has one, so that
// its rows are written.
struct KeyTiles {
  int first, count;
};
ATTNSCOPE_HD constexpr KeyTiles key_tiles(const Problem& p, int keys) {
  const int begin = visible(p, keys, 0).begin, end = visible(p, keys, p.length - 1).end;
  if (end <= begin) return {0, 1};
  const int first = begin / p.tile_keys;
  return {first, (end + p.tile_keys - 1) / p.tile_keys - first};
}

// Even parts: run of part `part` of `count` key tiles.
ATTNSCOPE_HD constexpr int part_begin(int count, int part, int parts) {
  const int longer = count % parts;  // parts that have one more
  return count / parts * part + (part < longer ? part : longer);
}

// Flat: where block `block` of `blocks` begins on a line of `total` key tiles, and who holds key tile `at`.
ATTNSCOPE_HD constexpr i64 line_begin(i64 total, int block, int blocks) {
  return total * block / blocks;
}
ATTNSCOPE_HD constexpr int line_owner(i64 total, i64 at, int blocks) {
  return static_cast<int>(((at + 1) * blocks - 1) / total);
}

// A run of key tiles of one row tile.
struct Piece {
  int batch, pack, row_tile;
  int first, last;  // key tiles [first, last), counted from key 0
  int keys;         // of this batch entry
  bool whole;       // it is all that the row tile sees: nothing to join
  i64 slot;         // of its result when it is not
};

// Slots of flat pieces: a block holds at most one piece that its row tile began elsewhere (even slots) and
// one that goes on elsewhere (odd slots).
ATTNSCOPE_HD constexpr i64 flat_slot(int block, bool begins_row_tile) {
  return 2 * static_cast<i64>(block) + (begins_row_tile ? 1 : 0);
}

}  // namespace attnscope::decode
