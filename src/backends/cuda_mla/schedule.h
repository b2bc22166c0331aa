#pragma once
// How mla shares the keys among blocks, with the measurements that say so (docs/kernels/mla.md).

#include "backends/cuda_decode/arguments.h"

#include <cstdint>

namespace attnscope::mla {

inline constexpr int kTileRows = 64, kTileKeys = 64;  // of the kernel
inline constexpr int kMaxHeadDim = 576, kMaxValueDim = 512;

struct Work {
  int64_t row_tiles = 1;
  int64_t key_tiles = 1;  // of a row tile, at most
  int64_t blocks = 132;   // that run at once; they take turns with the pieces
  bool ragged = false;    // lengths differ between batch entries, as far as the host can know
  int64_t splits = 0;     // asked for; 0: choose
};
Work work_of(const Request& request, int blocks);

// Parts of every row tile's keys. A piece is one part of one row tile.
int share_keys(const Work& work);

// Blocks of the joining kernel for each row: few parts are read by one, many by several.
inline int column_blocks(int parts) {
  return parts > 4 ? 4 : 1;
}

// V is K's first columns, as far as sizes and strides tell; so it is when the addresses are the same too.
bool may_alias(const Request& request);

}  // namespace attnscope::mla
