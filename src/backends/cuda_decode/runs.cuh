#pragma once
// Which runs of key tiles a block works through (schedule.h).

#include "backends/cuda_decode/output.cuh"

namespace attnscope::decode {

// Where on the line of flat parts a batch entry lies.
struct Place {
  i64 total;   // key tiles of all
  i64 before;  // key tiles of the batch entries before …
  int batch;   // … this one, which holds the key tile asked for
};

struct PlaceStorage {
  i64 warp_sums[32];
  i64 before;
  int batch;
};

// All threads of the block together. `wanted`(total) is the key tile looked for.
template <int kThreads, class Wanted>
ATTNSCOPE_D Place find_place(const Problem& p, PlaceStorage& shared, Wanted wanted) {
  const int per_batch = p.tiles_per_batch;
  if (p.lengths == nullptr) {
    const i64 of_one = i64(count_of(p, 0)) * per_batch;
    const i64 total = of_one * p.batch;
    const int batch = int(wanted(total) / of_one);
    return {total, batch * of_one, batch};
  }
  const int t = int(threadIdx.x), lane = t % 32, warp = t / 32;
  const int each = (p.batch + kThreads - 1) / kThreads;
  const int first = min(t * each, p.batch), end = min(first + each, p.batch);
  i64 mine = 0;
  for (int b = first; b < end; ++b) mine += i64(count_of(p, b)) * per_batch;
  i64 up_to = mine;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const i64 other = __shfl_up_sync(0xFFFFFFFFu, up_to, d);
    if (lane >= d) up_to += other;
  }
  if (lane == 31) shared.warp_sums[warp] = up_to;
  __syncthreads();
  i64 total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) up_to += total;
    total += shared.warp_sums[w];
  }
  const i64 at = wanted(total);
  i64 before = up_to - mine;
  if (at >= before && at < up_to) {
    int b = first;
    for (;; ++b) {
      const i64 n = i64(count_of(p, b)) * per_batch;
      if (at < before + n) break;
      before += n;
    }
    shared.before = before;
    shared.batch = b;
  }
  __syncthreads();
  return {total, shared.before, shared.batch};
}

// The batch entry of this block.
ATTNSCOPE_D int quick_batch(const Problem& p) {
  return divided(divided(int(blockIdx.x), p.by_parts), p.by_tiles_per_batch);
}
// even_piece() of key tiles of kTileKeys where every row sees all keys.
template <int kTileKeys>
ATTNSCOPE_D Piece quick_piece(const Problem& p) {
  const int tile = divided(int(blockIdx.x), p.by_parts), part = int(blockIdx.x) - tile * p.parts;
  Piece piece;
  piece.batch = quick_batch(p);
  const int in_batch = tile - piece.batch * p.tiles_per_batch;
  piece.pack = divided(in_batch, p.by_row_tiles), piece.row_tile = in_batch - piece.pack * p.row_tiles;
  piece.keys = keys_of(p, piece.batch);
  const int count = max(1, (piece.keys + kTileKeys - 1) / kTileKeys);
  const int each = divided(count, p.by_parts), longer = count - each * p.parts;
  piece.first = part * each + min(part, longer);
  piece.last = piece.first + each + (part < longer ? 1 : 0);
  piece.whole = p.parts == 1;
  piece.slot = blockIdx.x;
  return piece;
}

// Even parts: this block's only piece, which may be empty; its (empty) result is joined all the same.
ATTNSCOPE_D Piece even_piece(const Problem& p) {
  const int tile = int(blockIdx.x) / p.parts, part = int(blockIdx.x) % p.parts;
  Piece piece;
  piece.batch = tile / p.tiles_per_batch;
  const int in_batch = tile % p.tiles_per_batch;
  piece.pack = in_batch / p.row_tiles, piece.row_tile = in_batch % p.row_tiles;
  piece.keys = keys_of(p, piece.batch);
  const KeyTiles seen = key_tiles(p, piece.keys);
  piece.first = seen.first + part_begin(seen.count, part, p.parts);
  piece.last = seen.first + part_begin(seen.count, part + 1, p.parts);
  piece.whole = p.parts == 1;
  piece.slot = blockIdx.x;
  return piece;
}

// Flat: the pieces of this block, one after the other.
template <int kThreads>
struct FlatRuns {
  const Problem& p;
  int batch = 0, keys = 0;
  KeyTiles seen{};
  i64 before = 0;       // key tiles on the line before this batch entry
  i64 at = 0, end = 0;  // key tiles on the line that are this block's

  ATTNSCOPE_D void start(PlaceStorage& shared) {
    const auto blocks_for = [&](i64 total) { return int(min(i64(p.blocks), total)); };
    const Place place = find_place<kThreads>(p, shared, [&](i64 total) {
      return min(line_begin(total, int(blockIdx.x), blocks_for(total)), total - 1);
    });
    const int blocks = blocks_for(place.total);
    at = line_begin(place.total, int(blockIdx.x), blocks);
    end = int(blockIdx.x) < blocks ? line_begin(place.total, int(blockIdx.x) + 1, blocks) : at;
    before = place.before;
    set_batch(place.batch);
  }
  ATTNSCOPE_D void set_batch(int b) {
    batch = b, keys = keys_of(p, b);
    seen = key_tiles(p, keys);
  }
  ATTNSCOPE_D Piece next() {
    while (at - before >= i64(seen.count) * p.tiles_per_batch) {
      before += i64(seen.count) * p.tiles_per_batch;
      set_batch(batch + 1);
    }
    const int tile = int((at - before) / seen.count), skipped = int((at - before) % seen.count);
    const int count = int(min(i64(seen.count - skipped), end - at));
    at += count;
    Piece piece;
    piece.batch = batch, piece.keys = keys;
    piece.pack = tile / p.row_tiles, piece.row_tile = tile % p.row_tiles;
    piece.first = seen.first + skipped, piece.last = piece.first + count;
    piece.whole = count == seen.count;
    piece.slot = flat_slot(int(blockIdx.x), skipped == 0);
    return piece;
  }
};

}  // namespace attnscope::decode
