#pragma once
// The walk of the kernel's blocks over the tiles (kernel.cuh, Tile), on the host: to choose how many heads
// are walked together and which tile size suits a request, and for tests.

#include <cstdint>
#include <vector>

namespace attnscope::flash_sm90 {

struct Problem {
  int64_t heads = 1;  // batch · query heads
  int64_t rows = 0, columns = 0;
  bool causal = false;
  int64_t causal_offset = 0;
  double kv_bytes_per_head = 0;  // K and V of one query head, shared ones divided among their heads
  int64_t window_left = -1;      // a row sees at most so many keys before its diagonal; −1: all
};

struct TileShape {
  int rows = 128;
  int keys = 128;
  double step_us = 1.0;  // how long a block takes for one step, other blocks busy too
};

struct WalkedTile {
  int64_t head, row_block;
};

// The tile that `block` of `blocks` takes in its turn `turn`; head −1 past the end.
WalkedTile tile_of(const Problem& problem, const TileShape& shape, int64_t group_heads, int64_t blocks,
                   int64_t block, int64_t turn);
// Steps of a tile: key blocks that its last row sees, at least one.
int64_t steps_of(const Problem& problem, const TileShape& shape, int64_t row_block);

struct Schedule {
  int64_t group_heads = 1;
  double balance = 1.0;    // mean load of a block over the largest
  double expected_us = 0;  // of the model, good for comparing choices only
};

// The best number of heads to walk together. Few heads: their K and V stay in L2, but a group's end leaves
// blocks unevenly loaded; many: the reverse.
Schedule choose_schedule(const Problem& problem, const TileShape& shape, int64_t blocks);

}  // namespace attnscope::flash_sm90
