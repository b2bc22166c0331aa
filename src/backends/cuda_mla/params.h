#pragma once
// What one launch passes to the kernels, the same bytes on host and device.

#include "backends/cuda_decode/params.h"

namespace attnscope::mla {

struct alignas(64) Params {
  // 4-D {column, key, head, batch} or, paged, {column, slot, head, page}; boxes of 64 × 64.
  tile::TensorMap k, v;
  decode::Params rest;  // schedule, Q, output, features: what decode asks for, tiles of 64 rows and 64 keys
  int out_vectors;      // rows of the output are 16-byte aligned and contiguous
  int column_blocks;    // of the joining kernel: blocks that share a row
};

}  // namespace attnscope::mla
