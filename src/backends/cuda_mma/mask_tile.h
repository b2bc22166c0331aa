#pragma once
// How the tile of a mask lies in shared memory: plain C++, so that a CPU test checks it.

#include "backends/cuda_mma/params.h"

namespace attnscope::mma {

ATTNSCOPE_HD constexpr int mask_bytes(MaskType type) {
  return type == MaskType::kBool                             ? 1
         : type == MaskType::kBf16 || type == MaskType::kF16 ? 2
                                                             : 4;  // f64: kept as f32
}

// Byte offset of (row, byte) in a warp's mask tile of rows of `row_bytes` (32 … 256).
ATTNSCOPE_HD constexpr int mask_offset(int row_bytes, int row, int byte) {
  const int chunk = byte / 16;
  const int flip = row_bytes == 256   ? 2 * (row % 4)  // 8-byte reads: four rows of 32 bytes at a time
                   : row_bytes == 128 ? row % 8
                   : row_bytes == 64  ? row / 2 % 4
                                      : row / 4 % 2;
  return row * row_bytes + ((chunk ^ flip) * 16) + byte % 16;
}

}  // namespace attnscope::mma
