#pragma once
// The f32 kernel for Hopper: configuration, what a block shares, and rows of f32 on their way into pieces.

#include "backends/cuda_efficient/f32_kernel.cuh"
#include "backends/cuda_efficient/f32_pieces.cuh"
#include "cuda/kernels_tile/barrier.cuh"
#include "cuda/kernels_tile/tma.cuh"
#include "cuda/kernels_tile/wgmma.cuh"

namespace attnscope::efficient_f32 {

using tile::Barrier;
using tile::kWarpgroup;
using tile::u8;

template <int kE_, int kConsumers_, int kStages_, bool kFeatured_, bool kDropout_>
struct HopperConfig {
  static constexpr int kE = kE_;  // columns of Q, K and V; smaller ones are filled with zeros
  static constexpr int kConsumers = kConsumers_;
  static constexpr int kStages = kStages_;       // tiles of K, and of V, in shared memory
  static constexpr bool kFeatured = kFeatured_;  // masks, bias, softcap, slopes, pages, any alignment
  static constexpr bool kDropout = kDropout_;
  static constexpr int kKeys = kTileRows;  // a step
  static constexpr int kRows = kTileRows * kConsumers;
  static constexpr int kThreads = kWarpgroup * (1 + kConsumers);
  static constexpr int kPieceBytes = tile::tile_bytes(kTileRows, kE);
  static constexpr int kHalves = kE / 64;     // of 64 output columns
  static constexpr int kInfos = kStages + 1;  // tiles that some warp may still ask about
  static constexpr int kRowsEach =
      (kRows + kWarpgroup - 1) / kWarpgroup;  // whose masks a producer thread has
  static constexpr int kProducerRegisters = kConsumers == 3 ? 104 : kFeatured ? 136 : 120;
  static constexpr int kConsumerRegisters = kConsumers == 3 ? 136 : kFeatured ? 184 : 192;
  // A block has what it was launched with, ⌊65536 / threads⌋ in steps of 8 each: a warpgroup that asks for
  // more waits for ever.
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <=
                (1 + kConsumers) * (65536 / kThreads / 8 * 8));
  // What the parts shared with f32_kernel.cuh ask for.
  static constexpr int kMTiles = 1, kNTiles = kKeys / 8;
  static constexpr bool kBiasTile = false;
  static constexpr int kBiasPad = 0;
  static_assert(kE == 64 || kE == 128, "a warp reads whole rows");
  static_assert(kConsumers == 2 || kConsumers == 3, "registers of a multiprocessor");
};

// Of a tile, as the producer found it.
template <class C>
struct TileInfo {
  int first_key;   // −1: no more tiles
  int end;         // keys from here on are seen by no row of the block; their pages may not exist
  u32 seen;        // bit w: some row of consumer w sees a key of it; bit 8 + w: some row does not see all
  u32 largest[4];  // bits of the largest magnitude in K, by producer warp; NaN is above all
  u32 largest_v[4];
  u64 kept[C::kRows];  // keys of the tile that the row sees, written where bit 8 + w is set
};

template <class C>
struct alignas(1024) HopperStorage {
  u8 q[C::kConsumers][kPieces][C::kPieceBytes];
  u8 k[C::kStages][kPieces][C::kPieceBytes];
  u8 v[C::kStages][kPieces][C::kPieceBytes];
  TileInfo<C> info[C::kInfos];
  int diagonals[C::kRows];
  u32 largest_q[C::kConsumers][4];  // by warp
  int bounds[4][4];                 // by producer warp
  u32 votes[2][4];
  // full: the producer's four warps have written; empty: the consumers' warps have read.
  Barrier k_full[C::kStages], k_empty[C::kStages], v_full[C::kStages], v_empty[C::kStages];
};

// Named barriers 1 … 4: the producer's, then each consumer's. From 5 on: the consumers' turns.
ATTNSCOPE_D void sync_warpgroup(int warpgroup) {
  tile::named_sync(1 + warpgroup, kWarpgroup);
}

// Sums of 128 products of values below 2⁶⁰, or of 64 weights with values below 2¹²⁰, are finite. Below 2⁻¹⁰⁰
// pieces lose digits.
constexpr u32 kLargestFactor = (127 + 60) << 23, kLargestValue = (127 + 120) << 23,
              kSmallestValue = (127 - 100) << 23;

// The same value, of which the compiler does not know that: what is computed from it is not held in registers
// from tile to tile.
ATTNSCOPE_D int anew(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

ATTNSCOPE_D u32 largest_of(const u32 (&by_warp)[4]) {
  return max(max(by_warp[0], by_warp[1]), max(by_warp[2], by_warp[3]));
}

// ---- Rows of f32 and their pieces -----------------------------------------------------------------------

// Where rows of a matrix lie; strides stay where the kernel's parameters are.
struct Source {
  const Params& p;
  const Strided& s;
  const float* data;  // of the batch entry and head; of pages: of the head
  const int* pages;   // or null: the block table of the batch entry
  int columns;
  bool aligned;

  ATTNSCOPE_D bool plain() const { return aligned && pages == nullptr; }
  ATTNSCOPE_D const float* row_at(int r) const {
    if (pages == nullptr) return data + r * s.row;
    const int page = r / p.paging.page_size;
    return data + pages[page * p.paging.table_page] * s.batch + (r - page * p.paging.page_size) * s.row;
  }
};

template <class C>
ATTNSCOPE_D Source queries_of(const Params& p, const Place& place) {
  return {p,       p.q,       floats(p.q, place.batch, place.head),
          nullptr, p.columns, !C::kFeatured || p.q_aligned != 0};
}
template <class C, bool kIsV>
ATTNSCOPE_D Source keys_of(const Params& p, const Place& place) {
  const Strided& s = kIsV ? p.v : p.k;
  const int head = place.head / (kIsV ? p.v_group : p.k_group), columns = kIsV ? p.value_columns : p.columns;
  const bool aligned = !C::kFeatured || (kIsV ? p.v_aligned : p.k_aligned) != 0;
  if (C::kFeatured && p.paging.table != nullptr)
    return {p, s, floats(s, 0, head), p.paging.table + place.batch * p.paging.table_batch, columns, aligned};
  return {p, s, floats(s, place.batch, head), nullptr, columns, aligned};
}

ATTNSCOPE_D float larger(float largest, float x) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(largest), "f"(fabsf(x)));
  return y;
}

// A warpgroup's 64 rows on their way from global to shared memory. Half of them wait in registers, the others
// follow as those go.
//
// kPlain: rows one stride apart, of 16-byte pieces.
template <class C, bool kPlain>
struct Rows64 {
  static constexpr int kPasses = passes(C::kE), kRowsAPass = rows_a_pass(C::kE), kHeld = kPlain ? 8 : 4;
  static_assert(kPasses % kHeld == 0);
  const Source& from;
  const int row, end;  // of the thread in pass 0; rows from `end` on become zeros
  float4 x[kHeld];
  float most = 0;  // the largest magnitude

  ATTNSCOPE_D static int thread() { return int(threadIdx.x) % kWarpgroup; }
  // Rows first … first + 63: the first loads leave.
  ATTNSCOPE_D Rows64(const Source& source, int first, int end_row)
      : from(source), row(anew(first + row_of_thread(C::kE, thread()))), end(end_row) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) x[i] = load(i);
  }

  ATTNSCOPE_D float4 load(int pass) const {
    const int r = row + pass * kRowsAPass, column = column_of_thread(C::kE, thread());
    float4 y = make_float4(0, 0, 0, 0);
    if (column >= from.columns || r >= end) return y;
    if constexpr (kPlain) return *reinterpret_cast<const float4*>(from.data + r * from.s.row + column);
    const float* at = from.row_at(r);
    if (from.aligned) return *reinterpret_cast<const float4*>(at + column);
    y.x = at[column * from.s.column];
    if (column + 1 < from.columns) y.y = at[(column + 1) * from.s.column];
    if (column + 2 < from.columns) y.z = at[(column + 2) * from.s.column];
    if (column + 3 < from.columns) y.w = at[(column + 3) * from.s.column];
    return y;
  }

  // Writes all passes' pieces; returns the bits of the warp's largest magnitude.
  ATTNSCOPE_D u32 store(u8 (&to)[kPieces][C::kPieceBytes]) {
    const int column = column_of_thread(C::kE, thread()), local = row_of_thread(C::kE, thread());
    const u32 base = tile::shared_address(to);
    const u32 even = base + u32(tile::swizzled_offset(kTileRows, local, column)),
              odd = base + u32(tile::swizzled_offset(kTileRows, local + kRowsAPass, column));
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      float4& y = x[i % kHeld];
      most = larger(larger(larger(larger(most, y.x), y.y), y.z), y.w);
      const Pieces left = cut(y.x, y.y), right = cut(y.z, y.w);
      const u32 at = u32(pass_offset(C::kE, i, int(even), int(odd)));
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at + u32(piece * C::kPieceBytes)),
                     "r"(left.word[piece]), "r"(right.word[piece])
                     : "memory");
      if (i + kHeld < kPasses) y = load(i + kHeld);
    }
    return __reduce_max_sync(0xFFFFFFFFu, __float_as_uint(most));
  }
};

// Rows first … first + 63 of `from` to `to` as pieces; those from `end` on become zeros. Loads leave before
// `wait` is called, which returns when `to` is free. Returns the bits of the warp's largest magnitude.
template <class C, class Wait>
ATTNSCOPE_D u32 copy_rows(const Source& from, int first, int end, u8 (&to)[kPieces][C::kPieceBytes],
                          Wait wait) {
  if (!C::kFeatured || from.plain()) {
    Rows64<C, true> rows(from, first, end);
    wait();
    return rows.store(to);
  }
  Rows64<C, false> rows(from, first, end);
  wait();
  return rows.store(to);
}

}  // namespace attnscope::efficient_f32
