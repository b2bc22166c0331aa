#pragma once
// Shared memory of a block and what fills it: Q, K and V by cp.async, which keys its rows see; and O on its
// way out.

#include "backends/cuda_mma/geometry.cuh"
#include "cuda/kernels_tile/math.cuh"
#include "cuda/kernels_tile/mma.cuh"
#include "cuda/kernels_tile/mma_maps.h"

namespace attnscope::mma {

using namespace attnscope::tile;

inline constexpr float kLog2E = 1.4426950408889634f;

template <Type16 kT>
inline constexpr u32 kExponentMask = kT == Type16::kBf16 ? 0x7F80u : 0x7C00u;

template <Type16 kT, int E, int MTiles, int Warps, int Keys, int Stages, bool Featured>
struct Config {
  static constexpr Type16 kType = kT;
  static constexpr int kE = E;            // columns of Q, K, V and O
  static constexpr int kMTiles = MTiles;  // 16-row tiles of a warp
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = kWarp * Warps;
  static constexpr int kRows = 16 * MTiles * Warps;  // of a block
  static constexpr int kWarpRows = 16 * MTiles;
  static constexpr int kKeys = Keys;  // a step
  static constexpr int kStages = Stages;
  static constexpr bool kFeatured = Featured;
  static constexpr int kKBytes = tile_bytes(Keys, E);
  static constexpr int kVBytes = tile_bytes(Keys, E);

  static_assert(E % 32 == 0 && Keys % 32 == 0, "products take 16 × 16 blocks in pairs");
  static_assert(MTiles <= 2, "a lane of a warp finds the keys of one row");
  static_assert(Stages == 1 || !Featured, "the mask's tile has one stage");
};

// The keys that rows see together.
struct alignas(16) Range {
  int begin, end;              // some row sees keys here at most
  int whole_begin, whole_end;  // every row sees these

  ATTNSCOPE_D bool whole(int first, int keys) const {
    return first >= whole_begin && first + keys <= whole_end;
  }
  ATTNSCOPE_D bool any(int first, int keys) const { return first < end && first + keys > begin; }
};

template <class C>
struct alignas(1024) SharedStorage {
  u8 q[tile_bytes(C::kRows, C::kE)];  // then O
  u8 k[C::kStages][C::kKBytes];
  u8 v[C::kStages][C::kVBytes];
  u8 mask[C::kFeatured ? C::kRows * C::kKeys * 4 : 16];  // each warp its own rows (features.cuh)
  Interval seen[C::kRows];
  int diagonal[C::kFeatured ? C::kRows : 4];
  Range warp_range[C::kWarps], block_range;
  const u16 *k_base, *v_base;  // of the block's head, and batch entry unless paged
  int first_tile;
  int guarded_begin, guarded_end;  // tiles in which a value is not finite and 0 took its place (guard_values)
};

// ---- Which keys -----------------------------------------------------------------------------------------
template <class C>
ATTNSCOPE_D void find_ranges(const Params& p, SharedStorage<C>& shared, const Place& place) {
  const int warp = int(threadIdx.x) / kWarp, lane = int(threadIdx.x) % kWarp;
  const int row_here = C::kWarpRows * warp + lane % C::kWarpRows;
  const int row = place.row_block * C::kRows + row_here;
  Range r{kFar, 0, 0, kFar};
  if (row < p.rows) {
    int diagonal;
    const Interval seen = visible(p, place.batch, row, diagonal);
    shared.seen[row_here] = seen;
    if constexpr (C::kFeatured) shared.diagonal[row_here] = diagonal;
    if (seen.begin < seen.end) r.begin = seen.begin, r.end = seen.end;
    r.whole_begin = seen.begin, r.whole_end = seen.end;
  } else {
    shared.seen[row_here] = {0, kFar};  // its results are not stored
    if constexpr (C::kFeatured) shared.diagonal[row_here] = 0;
  }
  r.begin = __reduce_min_sync(0xFFFFFFFFu, r.begin);
  r.end = __reduce_max_sync(0xFFFFFFFFu, r.end);
  r.whole_begin = __reduce_max_sync(0xFFFFFFFFu, r.whole_begin);
  r.whole_end = __reduce_min_sync(0xFFFFFFFFu, r.whole_end);
  if (lane == 0) shared.warp_range[warp] = r;
}

// After a barrier; needs another one.
template <class C>
ATTNSCOPE_D void find_block_range(const Params& p, SharedStorage<C>& shared, const Place& place) {
  if (threadIdx.x != 0) return;
  const int batch = C::kFeatured && p.paging.table != nullptr ? 0 : place.batch;
  shared.k_base = static_cast<const u16*>(p.k.data) + (place.head / p.k_group) * p.k.head + batch * p.k.batch;
  shared.v_base = static_cast<const u16*>(p.v.data) + (place.head / p.v_group) * p.v.head + batch * p.v.batch;
  Range r = shared.warp_range[0];
#pragma unroll
  for (int w = 1; w < C::kWarps; ++w) {
    const Range& other = shared.warp_range[w];
    r.begin = min(r.begin, other.begin), r.end = max(r.end, other.end);
    r.whole_begin = max(r.whole_begin, other.whole_begin), r.whole_end = min(r.whole_end, other.whole_end);
  }
  if (r.begin > r.end) r.begin = r.end;  // nothing at all
  shared.block_range = r;
  shared.first_tile = r.begin / C::kKeys;
  shared.guarded_begin = kFar, shared.guarded_end = 0;
}

// ---- Copies ---------------------------------------------------------------------------------------------
// Eight neighbouring elements from anywhere.
ATTNSCOPE_D void gather_8(u32 (&words)[4], const u16* from, i64 stride, int count) {
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const u32 low = 2 * w < count ? from[(2 * w) * stride] : 0;
    const u32 high = 2 * w + 1 < count ? from[(2 * w + 1) * stride] : 0;
    words[w] = low | high << 16;
  }
}

// The thread's number, derived anew from a value of the step that is never negative: what only a copy or a
// mask needs is then not computed before the loop and kept in registers, of which the products leave few.
ATTNSCOPE_D int thread_in_step(int tile) {
  return int(threadIdx.x) ^ (tile >> 31);
}

// A thread's place among the accumulators of a block.
struct Lane {
  int warp, lane;
  ATTNSCOPE_D explicit Lane(int thread) : warp(thread / kWarp), lane(thread % kWarp) {}
  // Row of the block that value i of tile m belongs to, and the first column in a tile of 8.
  template <class C>
  ATTNSCOPE_D int row(int m, int i) const {
    return C::kWarpRows * warp + 16 * m + mma_row(lane, i);
  }
  ATTNSCOPE_D int column() const { return mma_column(lane, 0); }
};

// How the threads of a block divide a tile into pieces of 16 bytes: thread t takes piece t + turn · threads.
template <class C, int kTileRows>
struct Pieces {
  static constexpr int kPerRow = C::kE / 8;
  static constexpr int kTurns = kTileRows * kPerRow / C::kThreads;
  static_assert(kTileRows * kPerRow % C::kThreads == 0, "every thread copies the same number of pieces");
  static constexpr bool kSameColumn = C::kThreads % kPerRow == 0;
  static constexpr int kRowStep = C::kThreads / kPerRow;  // when the column is the same every turn

  const int thread;
  const u32 start;
  ATTNSCOPE_D explicit Pieces(int t) : thread(t), start(swizzled_offset(kTileRows, row(0), column(0))) {}
  ATTNSCOPE_D int row(int turn) const {
    return kSameColumn ? thread / kPerRow + turn * kRowStep : (thread + turn * C::kThreads) / kPerRow;
  }
  ATTNSCOPE_D int column(int turn) const {
    return kSameColumn ? 8 * (thread % kPerRow) : 8 * ((thread + turn * C::kThreads) % kPerRow);
  }
  ATTNSCOPE_D u32 offset(int turn) const {
    if constexpr (kSameColumn && kRowStep % 8 == 0) return start + turn * kRowStep * kPanelRowBytes;
    return swizzled_offset(kTileRows, row(turn), column(turn));
  }
};

// Rows first … of a matrix to a tile; rows outside [begin, end) and columns past `columns` become 0 and are
// not read.
template <class C, int kTileRows, class RowAt>
ATTNSCOPE_D void load_tile(u32 to, int first, int begin, int end, int columns, bool aligned, bool paged,
                           i64 row_stride, i64 column_stride, RowAt row_at) {
  using Division = Pieces<C, kTileRows>;
  const Division pieces(thread_in_step(first));
  if (C::kFeatured && (!aligned || paged)) {
#pragma unroll 1
    for (int turn = 0; turn < Division::kTurns; ++turn) {
      const int row = first + pieces.row(turn), column = pieces.column(turn);
      const bool exists = row >= begin && row < end && column < columns;
      const u16* from = row_at(exists ? row : begin) + column * column_stride;
      if (aligned) {
        copy_async_16(to + pieces.offset(turn), from, exists ? 16 : 0);
      } else {
        u32 words[4];
        gather_8(words, from, column_stride, exists ? columns - column : 0);
        store_shared(to + pieces.offset(turn), words);
      }
    }
  } else if constexpr (Division::kSameColumn) {
    const int row = first + pieces.row(0), column = pieces.column(0);
    const u16* from = row_at(row) + column;
    const u32 count = column < columns ? end - begin : 0;
#pragma unroll
    for (int turn = 0; turn < Division::kTurns; ++turn) {
      const bool exists = u32(row + turn * Division::kRowStep - begin) < count;
      copy_async_16(to + pieces.offset(turn), from, exists ? 16 : 0);
      from += Division::kRowStep * row_stride;
    }
  } else {
#pragma unroll
    for (int turn = 0; turn < Division::kTurns; ++turn) {
      const int row = first + pieces.row(turn), column = pieces.column(turn);
      const bool exists = row >= begin && row < end && column < columns;
      copy_async_16(to + pieces.offset(turn), row_at(row) + column, exists ? 16 : 0);
    }
  }
}

template <class C>
ATTNSCOPE_D void load_queries(const Params& p, SharedStorage<C>& shared, const Place& place) {
  const u16* q = static_cast<const u16*>(p.q.data) + place.batch * p.q.batch + place.head * p.q.head;
  load_tile<C, C::kRows>(shared_address_of(shared.q), place.row_block * C::kRows, 0, p.rows, p.columns,
                         p.q_aligned != 0, false, p.q.row, p.q.column,
                         [&](int row) { return q + row * p.q.row; });
}

template <class C>
struct Loader {
  const Params& p;
  SharedStorage<C>& shared;
  ATTNSCOPE_D bool paged() const { return C::kFeatured && p.paging.table != nullptr; }

  // Where key `row` of a tensor begins.
  ATTNSCOPE_D const u16* row_of(const u16* base, const Strided& t, int row) const {
    if (!paged()) return base + row * t.row;
    const int n = row / p.paging.page_size;
    const int batch = place_of(p, int(blockIdx.x)).batch;
    const int page = p.paging.table[batch * p.paging.table_batch + n * p.paging.table_page];
    return base + page * t.batch + (row - n * p.paging.page_size) * t.row;
  }
  // Keys tile · kKeys … of a tensor.
  ATTNSCOPE_D void load(u32 to, int tile, const u16* base, const Strided& t, int columns,
                        bool aligned) const {
    const Range whole = shared.block_range;
    load_tile<C, C::kKeys>(to, tile * C::kKeys, whole.begin, whole.end, columns, aligned, paged(), t.row,
                           t.column, [&](int row) { return row_of(base, t, row); });
  }
  ATTNSCOPE_D void keys(int stage, int tile) const {
    load(shared_address_of(shared.k[0]) + stage * C::kKBytes, tile, shared.k_base, p.k, p.columns,
         p.k_aligned != 0);
  }
  ATTNSCOPE_D void values(int stage, int tile) const {
    load(shared_address_of(shared.v[0]) + stage * C::kVBytes, tile, shared.v_base, p.v, p.value_columns,
         p.v_aligned != 0);
  }
  ATTNSCOPE_D bool in_range(int key) const {
    return key >= shared.block_range.begin && key < shared.block_range.end;
  }
  ATTNSCOPE_D const u16* value_row(int key) const { return row_of(shared.v_base, p.v, key); }

  // After this thread's copies of V have arrived: a barrier, for a tile that some row sees partly. 0 · NaN
  // must not reach a row that does not see the key: values that are not finite are replaced by 0, and
  // add_not_finite gives them to the rows that do. (A thread's own copies are visible to it without a
  // barrier.)
  ATTNSCOPE_D void guard_values(int stage, int tile) const {
    const bool masks = C::kFeatured && p.mask.type != MaskType::kNone;
    if (shared.block_range.whole(tile * C::kKeys, C::kKeys) && !masks) {
      __syncthreads();
      return;
    }
    const u32 at = shared_address_of(shared.v[0]) + stage * C::kVBytes;
    const Pieces<C, C::kKeys> pieces(thread_in_step(tile));
    constexpr u32 kMask = kExponentMask<C::kType> * 0x10001u;
    constexpr u32 kOne = (kExponentMask<C::kType> & (~kExponentMask<C::kType> + 1u)) * 0x10001u;
    u32 found = 0;  // an exponent of all ones plus one carries into the sign's place
#pragma unroll 2    // beside S and O few registers are left
    for (int turn = 0; turn < Pieces<C, C::kKeys>::kTurns; ++turn) {
      u32 w[4];
      load_shared(w, at + pieces.offset(turn));
#pragma unroll
      for (int i = 0; i < 4; ++i) found |= (w[i] & kMask) + kOne;
    }
    found &= 0x80008000u;
    if (!__syncthreads_or(found != 0)) return;
    if (threadIdx.x == 0)
      shared.guarded_begin = min(shared.guarded_begin, tile),
      shared.guarded_end = max(shared.guarded_end, tile + 1);
    if (found != 0) {
#pragma unroll 1
      for (int turn = 0; turn < Pieces<C, C::kKeys>::kTurns; ++turn) {
        u32 w[4];
        load_shared(w, at + pieces.offset(turn));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const u32 bad = (((w[i] & kMask) + kOne) & 0x80008000u) >> 15;  // 1 in each half that is not finite
          w[i] &= ~(bad * 0xFFFFu);
        }
        store_shared(at + pieces.offset(turn), w);
      }
    }
    __syncthreads();
  }
};

// Everything before the first tile: Q on its way, the ranges known.
template <class C>
ATTNSCOPE_D void prepare_block(const Params& p, SharedStorage<C>& shared) {
  const Place place = place_of(p, int(blockIdx.x));
  load_queries<C>(p, shared, place);
  copy_async_commit();
  find_ranges<C>(p, shared, place);
  __syncthreads();
  find_block_range<C>(p, shared, place);
  __syncthreads();
}

// ---- O --------------------------------------------------------------------------------------------------
// The 16 · kMTiles rows from `first` of the block, staged in shared memory, to global memory by one warp.
template <class C>
ATTNSCOPE_D void store_rows(const Params& p, u32 stage, const Place& place, int first, int lane) {
  constexpr int kPerRow = C::kE / 8;
  u16* out = static_cast<u16*>(p.out) + place.batch * p.out_batch + place.head * p.out_head;
#pragma unroll
  for (int turn = 0; turn < C::kWarpRows * kPerRow / kWarp; ++turn) {
    const int x = lane + turn * kWarp;
    const int row_here = first + x / kPerRow, column = 8 * (x % kPerRow);
    const int row = place.row_block * C::kRows + row_here;
    if (row >= p.rows || column >= p.value_columns) continue;
    u32 w[4];
    load_shared(w, stage + swizzled_offset(C::kRows, row_here, column));
    u16* to = out + row * p.out_row + column * p.out_column;
    if (p.out_aligned != 0) {
      *reinterpret_cast<uint4*>(to) = make_uint4(w[0], w[1], w[2], w[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (column + i < p.value_columns) to[i * p.out_column] = u16(w[i / 2] >> (16 * (i % 2)));
    }
  }
}

}  // namespace attnscope::mma
