#pragma once
// Joins the parts of row tiles that went to memory: out = Σ w_k sums_k / Σ w_k sum_k.

#include "backends/cuda_mla/store.cuh"

namespace attnscope::mla {

using decode::State;

inline constexpr int kCombineWarps = 4;
inline constexpr int kCombineThreads = 32 * kCombineWarps;
inline constexpr int kWarpColumns = 128;  // four a lane

struct CombineStorage {
  float4 total[kCombineWarps][32];
  float sum[kCombineWarps];
};

// column_blocks 1: a block has a row, a warp 128 columns and all parts. 4: a block has 128 columns of a row,
// its warps share the parts, of which there are then many.
template <Type16 T>
ATTNSCOPE_D void mla_combine(const Params& launch) {
  __shared__ CombineStorage shared;
  const decode::Params& p = launch.rest;
  const decode::Problem& problem = p.problem;
  const bool shares = launch.column_blocks > 1;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int in_grid = int(blockIdx.x) / launch.column_blocks;
  const int rows_each = min(problem.tile_rows, problem.rows());
  const int tile = in_grid / rows_each, row = in_grid % rows_each;
  const int batch = tile / problem.tiles_per_batch, in_batch = tile % problem.tiles_per_batch;
  const int packed_row = in_batch % problem.row_tiles * problem.tile_rows + row;
  const int column = kWarpColumns * (shares ? int(blockIdx.x) % launch.column_blocks : warp) + 4 * lane;
  decode::wait_for_previous_kernel();
  if (packed_row >= problem.rows()) return;
  const auto slot = [&](int k) { return (i64(tile) * problem.parts + k) * problem.tile_rows + row; };
  const auto state_of = [&](int k) {
    return *reinterpret_cast<const float2*>(p.partial_state + 2 * slot(k));
  };
  State state{-infinity(), 0.0f};
  for (int k = lane; k < problem.parts; k += 32) state.maximum = fmaxf(state.maximum, state_of(k).x);
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    state.maximum = fmaxf(state.maximum, __shfl_xor_sync(0xFFFFFFFFu, state.maximum, d));
  float v[4] = {};
  const int step = shares ? kCombineWarps : 1;
  if (column < p.ev)
#pragma unroll 8
    for (int k = shares ? warp : 0; k < problem.parts; k += step) {
      const float2 part = state_of(k);
      const float4 more = *reinterpret_cast<const float4*>(p.partial + slot(k) * p.ev + column);
      const float w = decode::weight_of(part.x, state.maximum);
      state.sum += w * part.y;
      v[0] += w * more.x, v[1] += w * more.y, v[2] += w * more.z, v[3] += w * more.w;
    }
  if (shares) {
    shared.total[warp][lane] = make_float4(v[0], v[1], v[2], v[3]);
    if (lane == 0) shared.sum[warp] = state.sum;
    __syncthreads();
    if (warp != 0) return;
    state.sum = 0.0f;
#pragma unroll
    for (float& x : v) x = 0.0f;
#pragma unroll
    for (int w = 0; w < kCombineWarps; ++w) {
      const float4 more = shared.total[w][lane];
      v[0] += more.x, v[1] += more.y, v[2] += more.z, v[3] += more.w;
      state.sum += shared.sum[w];
    }
  }
  if (column >= p.ev) return;
  const decode::Row at = row_of(problem, in_batch / problem.row_tiles, packed_row);
  const float scale = finish_row(p, at.head, state);
#pragma unroll
  for (float& x : v) x *= scale;
  store_four<T>(launch, batch, at, column, v);
  if (column == 0 && p.lse != nullptr) store_lse(p, batch, at, state);
}

}  // namespace attnscope::mla
