#pragma once
// Fragments of mma.m16n8k16 and the addresses that ldmatrix wants from each lane (PTX ISA, "Matrix Fragments
// for mma.m16n8k16", "ldmatrix"). Tiles lie in shared memory as maps.h says: panels of 64 columns, 16-byte
// chunks permuted by row mod 8, so that the eight rows of a matrix lie in different banks.
//
//   S = Q·Kᵀ: A = Q [row][column], B = K [key][column]    O += P·V: A = P (registers), B = V [key][column]
//
// ldmatrix.x4 reads four 8×8 matrices; lane l gives the address of row l mod 8 of matrix l / 8.

#include "cuda/kernels_tile/maps.h"

namespace attnscope::tile {

// Accumulator (C and D): value i of a lane, i = 0…3, in the 16 × 8 tile.
ATTNSCOPE_HD constexpr int mma_row(int lane, int i) {
  return lane / 4 + 8 * (i / 2);
}
ATTNSCOPE_HD constexpr int mma_column(int lane, int i) {
  return 2 * (lane % 4) + i % 2;
}
// The A operand of 16 contracted columns: word w packs values first, first + 1 of the accumulator tile
// 2·k16 + w / 2: P feeds P·V without a shuffle.
ATTNSCOPE_HD constexpr int mma_a_tile(int word) {
  return word / 2;
}
ATTNSCOPE_HD constexpr int mma_a_first(int word) {
  return 2 * (word % 2);
}

// What a lane's address points at, in elements from the corner of a 16 × 16 block.
struct LaneAt {
  int row, column;
};
// A operand, [row][contracted]: words are rows 0–7 and 8–15 of the left half, then of the right half.
ATTNSCOPE_HD constexpr LaneAt ldmatrix_a(int lane) {
  return {lane % 16, 8 * (lane / 16)};
}
// B operand of two 8-wide tiles from [n][contracted]: words are (n 0–7: k 0–7, k 8–15), (n 8–15: the same).
ATTNSCOPE_HD constexpr LaneAt ldmatrix_b(int lane) {
  return {lane % 8 + 8 * (lane / 16), 8 * ((lane / 8) % 2)};
}
// The same from [contracted][n], with .trans.
ATTNSCOPE_HD constexpr LaneAt ldmatrix_b_transposed(int lane) {
  return {lane % 16, 8 * (lane / 16)};
}

// Byte offset, in a tile of `rows` rows, of what a lane addresses in the block at rows 16·r16, columns
// 16·c16. Moving down by 16 rows adds a constant; moving along the columns flips bits 5 and 6: `lane_offset`
// ^ 32·(c16 % 4)
// + (c16 / 4) · panel, which is what the kernel computes with.
ATTNSCOPE_HD constexpr int block_offset(int rows, LaneAt lane, int r16, int c16) {
  const int start = swizzled_offset(rows, lane.row, lane.column);
  return (start ^ (32 * (c16 % 4))) + (c16 / 4) * panel_bytes(rows) + 16 * r16 * kPanelRowBytes;
}

}  // namespace attnscope::tile
