#pragma once
// What one launch passes to the kernel, the same bytes on host and device.

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::flash_sm90 {

struct alignas(64) Params {
  tile::TensorMap q, k, v, o;  // 4-D {column, row, head, batch}; boxes of 64 columns
  float* lse;                  // or null; element strides of batch, head, row
  tile::i64 lse_strides[3];
  tile::u16* out;               // O again, for stores that do not go through TMA
  tile::i64 out_strides[4];     // elements: batch, head, row, column
  int out_columns;              // Ev
  int heads, k_group, v_group;  // query heads; query heads per key head, per value head
  int rows, columns;            // L and S
  int causal_offset;            // row i sees columns ≤ i + causal_offset (0 top-left, S − L lower-right)
  int row_blocks;               // ⌈L / rows of a tile⌉
  int tiles;                    // row_blocks · heads · batch
  int group_heads;              // heads walked together, so that their K and V stay in L2 (schedule.h)
  float log2_per_score;         // softmax scale · log2(e); 1 when the scores are scaled first
  int scale_scores;             // the scale is not positive:
  float score_scale;            // … then the scores are multiplied by scale · log2(e) before the maximum
};

}  // namespace attnscope::flash_sm90
