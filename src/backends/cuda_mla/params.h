#pragma once
// What one launch passes to the kernel, the same bytes on host and device.

#include "backends/cuda_decode/params.h"

namespace attnscope::mla {

struct alignas(64) Params {
  tile::TensorMap k,
      v;  // 4-D {column, key, head, batch} or, paged, {column, slot, head, page}; boxes of 64 × 64
  decode::Params rest;  // schedule, Q, output, features: what decode asks for, tiles of 64 rows and 64 keys
  int out_vectors;      // rows of the output are 16-byte aligned and contiguous
};

}  // namespace attnscope::mla
