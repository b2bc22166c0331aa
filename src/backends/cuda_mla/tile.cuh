#pragma once
// Shapes, shared memory, barriers and the place of a block, for mla's kernel.

#include "backends/cuda_decode/output.cuh"
#include "backends/cuda_mla/params.h"
#include "backends/cuda_mla/products.cuh"
#include "cuda/kernels_tile/tma.cuh"

namespace attnscope::mla {

using decode::Interval;
using decode::Piece;
using decode::State;

// Of K: panels 0–3, 4–7 (the halves of V that the warpgroups multiply with) and 8.
inline constexpr int kParts = 3;
inline constexpr int kRest = 2;
ATTNSCOPE_HD constexpr int first_panel(int part) {
  return 4 * part;
}
ATTNSCOPE_HD constexpr int panels_of(int part) {
  return part == kRest ? 1 : 4;
}

template <Type16 kT, bool Alias>
struct Config {
  static constexpr Type16 kType = kT;
  static constexpr bool kAlias = Alias;  // V is K's first columns
  static constexpr int kE = 576, kEv = 512;
  static constexpr int kRows = 64, kKeys = 64;
  static constexpr int kHalf = kEv / 2;  // columns of O of a warpgroup
  static constexpr int kStages = Alias ? 2 : 1;
  static constexpr int kThreads = 3 * kWarpgroup;
  static constexpr int kConsumerThreads = 2 * kWarpgroup;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
  static constexpr int kPanelBytes = panel_bytes(64);  // Q, K, V and P alike
  static constexpr int kKBytes = tile_bytes(kKeys, kE);
  static constexpr int kVBytes = Alias ? 0 : tile_bytes(kKeys, kEv);  // beside K
  static_assert(kProducerRegisters + 2 * kConsumerRegisters <= 3 * 168, "what the block has at launch");
  static_assert(kPanelBytes % kSwizzlePeriodBytes == 0, "panels start on a swizzle period");
};

template <class C>
struct alignas(1024) SharedStorage {
  u8 q[tile_bytes(C::kRows, C::kE)];
  u8 tiles[C::kStages * C::kKBytes + C::kVBytes];  // K by stages, V
  u8 weights[tile_bytes(C::kRows, C::kKeys)];      // P of the latest tile …
  float reference[C::kRows];                       // … and what it is relative to
  float sums[2][C::kRows];                         // of each warpgroup's tiles
  u32 noted[2];  // values that are not finite were taken out of a tile; by turns of the pieces
  // full: the producer announces the bytes, the copy engine delivers them. empty: every warp that reads the
  // part last arrives once its product is done: of V's halves the four of one warpgroup, of the rest (and of
  // all of a K that is not V) the four that made the scores.
  Barrier k_full[C::kStages][kParts], k_empty[C::kStages][kParts];
  Barrier v_full[2], v_empty[2];
  // The other warpgroup's P and reference are in shared memory; its four warps arrive. They may be
  // overwritten by who waited, once its product is done: no barrier for that.
  Barrier weights_full[2];

  ATTNSCOPE_D u8* k(int stage) { return tiles + stage * C::kKBytes; }
  ATTNSCOPE_D u8* values(int t) { return tiles + (C::kAlias ? t % C::kStages : C::kStages) * C::kKBytes; }
};

// Tile t of a block uses stage t mod kStages; the parity that its barriers complete next.
template <class C>
ATTNSCOPE_HD constexpr int stage_of(int t) {
  return t % C::kStages;
}
template <class C>
ATTNSCOPE_HD constexpr u32 parity_of(int t) {
  return u32(t / C::kStages) & 1;
}

// Piece n = row tile · parts + part; blocks take turns. Empty parts (fewer key tiles than parts) are joined
// all the same.
ATTNSCOPE_D int piece_count(const decode::Problem& p) {
  return p.all_tiles() * p.parts;
}
ATTNSCOPE_D Piece piece_of(const decode::Problem& p, int n) {
  const int tile = n / p.parts, part = n % p.parts;
  Piece piece;
  piece.batch = tile / p.tiles_per_batch;
  const int in_batch = tile % p.tiles_per_batch;
  piece.pack = in_batch / p.row_tiles, piece.row_tile = in_batch % p.row_tiles;
  piece.keys = decode::keys_of(p, piece.batch);
  const decode::KeyTiles seen = decode::key_tiles(p, piece.keys);
  piece.first = seen.first + decode::part_begin(seen.count, part, p.parts);
  piece.last = seen.first + decode::part_begin(seen.count, part + 1, p.parts);
  piece.whole = p.parts == 1;
  piece.slot = n;
  return piece;
}

struct KeyTile {
  int row, batch;  // coordinates of its first key in the tensor maps
};
ATTNSCOPE_D KeyTile key_tile(const decode::Params& p, const Piece& piece, int key) {
  if (p.table == nullptr) return {key, piece.batch};
  const int page = p.table[piece.batch * p.table_strides[0] + (key / p.page_size) * p.table_strides[1]];
  return {key % p.page_size, page};
}

}  // namespace attnscope::mla
