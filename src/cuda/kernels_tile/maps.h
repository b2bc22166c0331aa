#pragma once
// Where things lie: swizzled shared tiles, the wgmma matrix descriptor, register fragments. All constexpr and
// plain C++, so that the CPU tests check every map against a software model of the instruction.
//
// A tile of 16-bit elements is a row of *panels*: 64 columns (128 bytes) wide, `rows` high, one panel after
// the other. Within a panel row r starts at byte 128·r and its eight 16-byte chunks are permuted: chunk c
// lies at position c XOR (r mod 8) (the 128-byte swizzle of TMA and wgmma: PTX ISA, "Swizzling modes").
// Panels must start at a multiple of 1024 bytes, the period of the permutation.

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::tile {

inline constexpr int kPanelColumns = 64;
inline constexpr int kPanelRowBytes = 128;
inline constexpr int kSwizzlePeriodBytes = 1024;  // 8 rows of 128 bytes

ATTNSCOPE_HD constexpr int panels(int columns) {
  return (columns + kPanelColumns - 1) / kPanelColumns;
}
ATTNSCOPE_HD constexpr int panel_bytes(int rows) {
  return rows * kPanelRowBytes;
}
ATTNSCOPE_HD constexpr int tile_bytes(int rows, int columns) {
  return panels(columns) * panel_bytes(rows);
}

// Byte offset of element (row, column) in a tile of `rows` rows.
ATTNSCOPE_HD constexpr int swizzled_offset(int rows, int row, int column) {
  const int chunk = (column % kPanelColumns) / 8;
  return (column / kPanelColumns) * panel_bytes(rows) + row * kPanelRowBytes + ((chunk ^ (row % 8)) * 16) +
         (column % 8) * 2;
}

// ---- wgmma matrix descriptor (PTX ISA, "Matrix Descriptor Format") -------------------------------------
// bits 0–13 start address ≫ 4 · 16–29 leading byte offset ≫ 4 · 32–45 stride byte offset ≫ 4 ·
// 49–51 base offset (0: panels are 1024-byte aligned) · 62–63 swizzle (1 = 128 bytes)

// K-major operand (Q and K of Q·Kᵀ: the contracted dimension is contiguous). Groups of 8 rows are 1024 bytes
// apart (stride); the leading offset is not used with a swizzle.
ATTNSCOPE_HD constexpr u64 k_major_descriptor(u32 shared_address) {
  return (u64(shared_address & 0x3FFFF) >> 4) | (u64(1) << 16) | (u64(1024 >> 4) << 32) | (u64(1) << 62);
}

// MN-major operand (V of P·V: the contracted dimension runs over rows). Groups of 8 contracted rows are
// 1024 bytes apart (stride); the next 64 columns are one panel further (leading).
ATTNSCOPE_HD constexpr u64 mn_major_descriptor(u32 shared_address, int panel_stride_bytes) {
  return (u64(shared_address & 0x3FFFF) >> 4) | (u64(panel_stride_bytes >> 4) << 16) |
         (u64(1024 >> 4) << 32) | (u64(1) << 62);
}

// One instruction contracts 16 elements; how far the descriptor's address moves for step `k16`.
ATTNSCOPE_HD constexpr int k_major_step_bytes(int rows, int k16) {
  return (k16 / 4) * panel_bytes(rows) + (k16 % 4) * 32;
}
ATTNSCOPE_HD constexpr int mn_major_step_bytes(int k16) {
  return k16 * 16 * kPanelRowBytes;
}

// ---- Register fragments ---------------------------------------------------------------------------------
// Accumulator of wgmma m64nNk16 (PTX ISA, "Register Fragments", D): register i of thread t of the warpgroup.
ATTNSCOPE_HD constexpr int accumulator_row(int thread, int i) {
  return (thread / 32) * 16 + (thread % 32) / 4 + ((i / 2) % 2) * 8;
}
ATTNSCOPE_HD constexpr int accumulator_column(int thread, int i) {
  return (i / 4) * 8 + (thread % 4) * 2 + i % 2;
}

// A operand from registers: word w (0…3) of k-step `k16` packs columns column, column + 1 of this row.
ATTNSCOPE_HD constexpr int operand_row(int thread, int word) {
  return (thread / 32) * 16 + (thread % 32) / 4 + (word % 2) * 8;
}
ATTNSCOPE_HD constexpr int operand_column(int thread, int k16, int word) {
  return k16 * 16 + (word / 2) * 8 + (thread % 4) * 2;
}
// …which is exactly accumulators first and first + 1 of the same thread: P feeds P·V without a shuffle.
ATTNSCOPE_HD constexpr int operand_first_accumulator(int k16, int word) {
  return k16 * 8 + word * 2;
}

// stmatrix.x4 storing 16 rows × 16 columns: the row and the first column whose address `lane` supplies.
// Matrices in order: rows 0–7 and 8–15 of the left 8 columns, then of the right 8: accumulator order.
ATTNSCOPE_HD constexpr int stmatrix_row(int lane) {
  return lane % 16;
}
ATTNSCOPE_HD constexpr int stmatrix_column(int lane) {
  return (lane / 16) * 8;
}

}  // namespace attnscope::tile
