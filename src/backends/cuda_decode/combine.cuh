#pragma once
// The small kernel after decode_forward: joins pieces that went to memory.

#include "backends/cuda_decode/output.cuh"

namespace attnscope::decode {

inline constexpr int kCombineThreads = 128;
inline constexpr int kCombineWarps = kCombineThreads / 32;
inline constexpr int kMaxColumns = 256;

struct CombineStorage {
  i64 sums[2][kCombineWarps];
  float4 total[kCombineWarps][kMaxColumns / 4];
  float sum[kCombineWarps];
};

// Key tiles of all batch entries and of those before `batch`.
ATTNSCOPE_D void line_of(const Problem& p, int batch, CombineStorage& shared, i64& total, i64& before) {
  const int per_batch = p.tiles_per_batch;
  if (p.lengths == nullptr) {
    const i64 of_one = i64(count_of(p, 0)) * per_batch;
    total = of_one * p.batch, before = of_one * batch;
    return;
  }
  i64 all = 0, earlier = 0;
  for (int b = int(threadIdx.x); b < p.batch; b += kCombineThreads) {
    const i64 n = i64(count_of(p, b)) * per_batch;
    all += n;
    if (b < batch) earlier += n;
  }
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    all += __shfl_xor_sync(0xFFFFFFFFu, all, d);
    earlier += __shfl_xor_sync(0xFFFFFFFFu, earlier, d);
  }
  const int warp = int(threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) shared.sums[0][warp] = all, shared.sums[1][warp] = earlier;
  __syncthreads();
  total = before = 0;
#pragma unroll
  for (int w = 0; w < kCombineWarps; ++w) total += shared.sums[0][w], before += shared.sums[1][w];
}

// The pieces of a row tile: how many, and the slot of each.
struct Pieces {
  int count;
  i64 first_slot;   // of piece 0
  i64 second_slot;  // of piece 1; from there they are `step` apart
  int step;
  ATTNSCOPE_D i64 slot(int k) const { return k == 0 ? first_slot : second_slot + i64(k - 1) * step; }
};
ATTNSCOPE_D Pieces pieces_of(const Problem& p, int tile, CombineStorage& shared) {
  if (p.parts > 0) return {p.parts, i64(tile) * p.parts, i64(tile) * p.parts + 1, 1};
  const int batch = tile / p.tiles_per_batch;
  i64 total, before;
  line_of(p, batch, shared, total, before);
  const int count = count_of(p, batch), blocks = int(min(i64(p.blocks), total));
  const i64 begin = before + i64(tile % p.tiles_per_batch) * count;
  const int first = line_owner(total, begin, blocks), last = line_owner(total, begin + count - 1, blocks);
  return {last - first + 1, flat_slot(first, true), flat_slot(first + 1, false), 2};
}

// One block per row of a row tile: out = Σ w_k sums_k / Σ w_k sum_k.
template <Type16 T>
ATTNSCOPE_D void decode_combine(const Params& p) {
  __shared__ CombineStorage shared;
  const Problem& problem = p.problem;
  const int rows_each = min(problem.tile_rows, problem.rows());
  const int tile = int(blockIdx.x) / rows_each, row = int(blockIdx.x) % rows_each;
  const int batch = tile / problem.tiles_per_batch, in_batch = tile % problem.tiles_per_batch;
  const int pack = in_batch / problem.row_tiles;
  const int packed_row = in_batch % problem.row_tiles * problem.tile_rows + row;
  const Pieces pieces = pieces_of(problem, tile, shared);
  wait_for_previous_kernel();
  if (packed_row >= problem.rows() || pieces.count == 1) return;  // a whole row tile has been written
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const auto state_of = [&](int k) {
    return *reinterpret_cast<const float2*>(p.partial_state + 2 * (pieces.slot(k) * problem.tile_rows + row));
  };
  State state{-infinity(), 0.0f};
  for (int k = lane; k < pieces.count; k += 32) state.maximum = fmaxf(state.maximum, state_of(k).x);
#pragma unroll
  for (int d = 16; d > 0; d /= 2)
    state.maximum = fmaxf(state.maximum, __shfl_xor_sync(0xFFFFFFFFu, state.maximum, d));
  float4 total[kMaxColumns / 128] = {};
#pragma unroll 4
  for (int k = warp; k < pieces.count; k += kCombineWarps) {
    const float2 part = state_of(k);
    const float w = weight_of(part.x, state.maximum);
    const float* from = p.partial + (pieces.slot(k) * problem.tile_rows + row) * p.ev;
    state.sum += w * part.y;
#pragma unroll
    for (int j = 0; j < kMaxColumns / 128; ++j) {
      const int column = 128 * j + 4 * lane;
      if (column >= p.ev) continue;
      const float4 v = *reinterpret_cast<const float4*>(from + column);
      total[j].x += w * v.x, total[j].y += w * v.y, total[j].z += w * v.z, total[j].w += w * v.w;
    }
  }
#pragma unroll
  for (int j = 0; j < kMaxColumns / 128; ++j) shared.total[warp][32 * j + lane] = total[j];
  if (lane == 0) shared.sum[warp] = state.sum;
  __syncthreads();
  const int column = 4 * int(threadIdx.x);
  if (column >= p.ev) return;
  float v[4] = {};
  state.sum = 0.0f;
#pragma unroll
  for (int w = 0; w < kCombineWarps; ++w) {
    const float4 part = shared.total[w][threadIdx.x];
    v[0] += part.x, v[1] += part.y, v[2] += part.z, v[3] += part.w;
    state.sum += shared.sum[w];
  }
  const Row at = row_of(problem, pack, packed_row);
  const float scale = finish_row(p, at.head, state);
#pragma unroll
  for (float& x : v) x *= scale;
  store_output<T>(p, batch, at, column, v);
  if (column == 0 && p.lse != nullptr) store_lse(p, batch, at, state);
}

}  // namespace attnscope::decode
