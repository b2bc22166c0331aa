// Which tiles of a bool mask keep anything, ahead of the kernel that leaves the others out: one warp a tile
// reads it until it finds a key that is kept.
#include "backends/cuda_flash_sm90/featured/params.h"

namespace attnscope::flash_sm90 {
namespace {

using namespace attnscope::tile;

constexpr int kBatch = 8;  // pieces of 16 bytes that a lane asks for together

// Piece `n` of the tile in order of rows; 0 past its end. A piece that crosses the last key is read byte by
// byte.
ATTNSCOPE_D u32 kept_in_piece(const u8* from, i64 row_stride, int rows, int keys, int per_row, int n) {
  const int row = n / per_row, key = 16 * (n % per_row);
  if (row >= rows || key >= keys) return 0;
  const u8* at = from + row * row_stride + key;
  if (key + 16 <= keys) {
    const uint4 piece = *reinterpret_cast<const uint4*>(at);
    return piece.x | piece.y | piece.z | piece.w;
  }
  u32 found = 0;
  for (int i = 0; i < keys - key; ++i) found |= at[i];
  return found;
}

}  // namespace
}  // namespace attnscope::flash_sm90

extern "C" __device__ const int mask_tiles_shared_bytes = 0;

extern "C" __global__ void mask_tiles(const __grid_constant__ attnscope::flash_sm90::KeptParams p) {
  using namespace attnscope::flash_sm90;
  const int tile = int((blockIdx.x * blockDim.x + threadIdx.x) / kWarp), lane = int(threadIdx.x) % kWarp;
  if (tile >= p.tiles) return;
  const int step = tile % p.steps, block = tile / p.steps % p.row_blocks;
  const int pair = tile / p.steps / p.row_blocks, head = pair % p.heads, batch = pair / p.heads;
  const int first_row = block * p.tile_rows, first_key = step * p.tile_keys;
  const int rows = min(p.tile_rows, p.rows - first_row), keys = min(p.tile_keys, p.keys - first_key);
  const u8* from = p.mask + batch * p.mask_strides[0] + head * p.mask_strides[1] +
                   first_row * p.mask_strides[2] + first_key;
  const int per_row = p.tile_keys / 16;
  bool any = false;
  for (int n = lane; !any && n - lane < rows * per_row; n += kBatch * kWarp) {
    u32 found = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      found |= kept_in_piece(from, p.mask_strides[2], rows, keys, per_row, n + i * kWarp);
    any = __any_sync(0xFFFFFFFFu, found != 0);
  }
  if (lane == 0) p.kept[tile] = any ? 1 : 0;
}
