#pragma once
// What one launch passes to the kernel, the same bytes on host and device.

#include "cuda/kernels_tile/tma.cuh"

namespace attnscope::flash_sm90 {

struct alignas(64) Params {
  tile::TensorMap q, k, v, o;  // 4-D {column, row, head, batch}; boxes of 64 columns
  float* lse;                  // [batch, heads, rows] or null
  tile::u16* out;              // O again, for Store::kDirect: element strides of batch, head, row
  tile::i64 out_strides[3];
  int out_columns;
  int heads, kv_group;      // query heads; query heads per key/value head
  int rows, columns;        // L and S
  int causal_offset;        // row i sees columns ≤ i + causal_offset (0 top-left, S − L lower-right)
  int row_blocks;           // ⌈L / kRows⌉
  int tiles;                // row_blocks · heads · batch
  int group_heads;          // heads walked together, so that their K and V stay in L2
  float scale, scale_log2;  // softmax scale, and times log2(e)
};

}  // namespace attnscope::flash_sm90
