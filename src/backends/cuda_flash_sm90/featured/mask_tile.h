#pragma once
// How the tile of a mask lies in shared memory, as the copy engine writes it: panels of 128 bytes (or one of
// 64) a row, 16-byte chunks permuted so that the eight rows that a warp reads at once lie in different banks.
// Plain C++, so that a CPU test checks it.

#include "backends/cuda_flash_sm90/featured/params.h"

namespace attnscope::flash_sm90 {

// What the chunk number of `row` is combined with: the same for rows 8 apart.
ATTNSCOPE_HD constexpr int mask_flip(int row_bytes, int row) {
  return row_bytes == 128 ? row % 8 : row / 2 % 4;
}
// Byte offset of byte `byte` of `row` in a panel.
ATTNSCOPE_HD constexpr int mask_offset(int row_bytes, int row, int byte) {
  return row * row_bytes + ((byte / 16) ^ mask_flip(row_bytes, row)) * 16 + byte % 16;
}

// The tile of `rows` query rows × `keys` keys.
template <Masking kKind, int kRows, int kKeys>
struct MaskTile {
  static constexpr int kSize = kKind == Masking::kBool ? 1 : 2;  // bytes of an element
  static constexpr int kPanelKeys = kKeys * kSize < 128 ? kKeys : 128 / kSize;
  static constexpr int kRowBytes = kPanelKeys * kSize;
  static constexpr int kPanels = kKeys / kPanelKeys;
  static constexpr int kPanelBytes = kRows * kRowBytes;
  static constexpr int kBytes = kPanels * kPanelBytes;
  static_assert(kRowBytes == 128 || kRowBytes == 64, "what the copy engine permutes as mask_flip says");
  static_assert(kKeys % kPanelKeys == 0 && kPanelBytes % 1024 == 0, "panels start on a period");
};

}  // namespace attnscope::flash_sm90
