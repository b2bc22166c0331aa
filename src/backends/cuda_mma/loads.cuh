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

template <Type16 kT, int E, int Ev, int MTiles, int Warps, int Keys, int Stages, int Features>
struct Config {
  static constexpr Type16 kType = kT;
  static constexpr int kE = E;            // columns of Q and K
  static constexpr int kEv = Ev;          // of V and O
  static constexpr int kMTiles = MTiles;  // 16-row tiles of a warp
  static constexpr int kWarps = Warps;
  static constexpr int kThreads = kWarp * Warps;
  static constexpr int kRows = 16 * MTiles * Warps;  // of a block
  static constexpr int kWarpRows = 16 * MTiles;
  static constexpr int kKeys = Keys;  // a step
  static constexpr int kStages = Stages;
  static constexpr bool kFeatured = Features >= 1;
  static constexpr bool kDropout =
      Features >= 2;  // an image of its own: its branches cost the others registers
  ATTNSCOPE_D static int stage(int tile) { return Stages == 2 ? tile & 1 : 0; }
  static constexpr int kKBytes = tile_bytes(Keys, E);
  static constexpr int kVBytes = tile_bytes(Keys, Ev);

  static_assert(E % 16 == 0 && Ev % 16 == 0 && Keys % 32 == 0, "products take blocks of 16 × 16");
  static_assert(MTiles <= 2, "a lane of a warp finds the keys of one row");
  static_assert(Stages == 1 || Features == 0, "the mask's tile has one stage");
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
  u8 q[tile_bytes(C::kRows, C::kE > C::kEv ? C::kE : C::kEv)];  // then O
  u8 k[C::kStages][C::kKBytes];
  u8 v[C::kStages][C::kVBytes];
  u8 mask[C::kFeatured ? C::kRows * C::kKeys * 4 : 16];  // each warp its own rows (features.cuh)
  Interval seen[C::kRows];
  int diagonal[C::kFeatured ? C::kRows : 4];
  u32 kept[C::kMTiles][C::kDropout ? C::kThreads : 1];  // by dropout (features.cuh)
  Range warp_range[C::kWarps], block_range;
  const u16 *k_base, *v_base;  // of the block's head, and batch entry unless paged
  int first_tile;
  int careful;             // the walk: first 0, then perhaps 1
  int bad_begin, bad_end;  // tiles in which clear_not_finite found something
  float slope;             // ALiBi
};

// ---- Elements of any type ---------------------------------------------------------------------------------
template <Type16 T>
ATTNSCOPE_D float low_half(u32 pair) {
  if constexpr (T == Type16::kBf16) return __uint_as_float(pair << 16);
  float x;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(x) : "r"(pair));
  return x;
}
template <Type16 T>
ATTNSCOPE_D float high_half(u32 pair) {
  if constexpr (T == Type16::kBf16) return __uint_as_float(pair & 0xFFFF0000u);
  float x;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(x) : "r"(pair));
  return x;
}

// Any float type from global memory.
ATTNSCOPE_D float float_at(const void* data, MaskType type, i64 i) {
  switch (type) {
    case MaskType::kF32: return static_cast<const float*>(data)[i];
    case MaskType::kF64: return float(static_cast<const double*>(data)[i]);
    case MaskType::kBf16: return low_half<Type16::kBf16>(static_cast<const u16*>(data)[i]);
    case MaskType::kF16: return low_half<Type16::kF16>(static_cast<const u16*>(data)[i]);
    default: return 0.0f;
  }
}
ATTNSCOPE_D float element(const Vector& v, int head, int batch = 0) {
  return float_at(v.data, v.type, batch * v.batch + head * v.head);
}

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
  shared.slope = C::kFeatured && p.slopes.data != nullptr ? element(p.slopes, place.head, place.batch) : 0.0f;
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
  shared.careful = 0;
  shared.bad_begin = kFar, shared.bad_end = 0;
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

// How the threads of a block divide a tile into pieces of 16 bytes: a thread stays in its column and goes
// down the rows.
template <class C, int kTileRows, int kColumns>
struct Pieces {
  static constexpr int kPerRow = kColumns / 8;
  // As many rows at once as there are threads for, a number that divides 8 or is a multiple of it.
  static constexpr int kFit = C::kThreads / kPerRow;
  static constexpr int kRowStep = kFit >= 8 ? kFit / 8 * 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
  static constexpr int kTurns = (kTileRows + kRowStep - 1) / kRowStep;
  static_assert(kTileRows % kRowStep == 0, "every thread copies the same number of pieces");

  const int row0, column;
  const u32 start;
  ATTNSCOPE_D explicit Pieces(int thread)
      : row0(thread / kPerRow),
        column(8 * (thread % kPerRow)),
        start(swizzled_offset(kTileRows, row0, column)) {}
  ATTNSCOPE_D bool active() const { return kRowStep * kPerRow == C::kThreads || row0 < kRowStep; }
  ATTNSCOPE_D int row(int turn) const { return row0 + turn * kRowStep; }
  ATTNSCOPE_D u32 offset(int turn) const {
    if constexpr (kRowStep % 8 == 0) return start + turn * kRowStep * kPanelRowBytes;
    return swizzled_offset(kTileRows, row(turn), column);
  }
};

// Rows first … of a matrix to a tile; rows outside [begin, end) and columns past `columns` become 0 and are
// not read.
template <class C, int kTileRows, int kColumns, class RowAt>
ATTNSCOPE_D void load_tile(u32 to, int first, int begin, int end, int columns, bool aligned, bool paged,
                           i64 row_stride, i64 column_stride, RowAt row_at) {
  using Division = Pieces<C, kTileRows, kColumns>;
  const Division pieces(thread_in_step(first));
  if (!pieces.active()) return;
  if (C::kFeatured && (!aligned || paged)) {
#pragma unroll 1
    for (int turn = 0; turn < Division::kTurns; ++turn) {
      const int row = first + pieces.row(turn);
      const bool exists = row >= begin && row < end && pieces.column < columns;
      const u16* from = row_at(exists ? row : begin) + pieces.column * column_stride;
      if (aligned) {
        copy_async_16(to + pieces.offset(turn), from, exists ? 16 : 0);
      } else {
        u32 words[4];
        gather_8(words, from, column_stride, exists ? columns - pieces.column : 0);
        store_shared(to + pieces.offset(turn), words);
      }
    }
    return;
  }
  const int row = first + pieces.row(0);
  const u16* from = row_at(row) + pieces.column;
  const u32 count = pieces.column < columns ? end - begin : 0;
#pragma unroll
  for (int turn = 0; turn < Division::kTurns; ++turn) {
    const bool exists = u32(row + turn * Division::kRowStep - begin) < count;
    copy_async_16(to + pieces.offset(turn), from, exists ? 16 : 0);
    from += Division::kRowStep * row_stride;
  }
}

template <class C>
ATTNSCOPE_D void load_queries(const Params& p, SharedStorage<C>& shared, const Place& place) {
  const u16* q = static_cast<const u16*>(p.q.data) + place.batch * p.q.batch + place.head * p.q.head;
  load_tile<C, C::kRows, C::kE>(shared_address_of(shared.q), place.row_block * C::kRows, 0, p.rows, p.columns,
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
  template <int kColumns>
  ATTNSCOPE_D void load(u32 to, int tile, const u16* base, const Strided& t, int columns,
                        bool aligned) const {
    const Range whole = shared.block_range;
    load_tile<C, C::kKeys, kColumns>(to, tile * C::kKeys, whole.begin, whole.end, columns, aligned, paged(),
                                     t.row, t.column, [&](int row) { return row_of(base, t, row); });
  }
  ATTNSCOPE_D void keys(int stage, int tile) const {
    load<C::kE>(shared_address_of(shared.k[0]) + stage * C::kKBytes, tile, shared.k_base, p.k, p.columns,
                p.k_aligned != 0);
  }
  ATTNSCOPE_D void values(int stage, int tile) const {
    load<C::kEv>(shared_address_of(shared.v[0]) + stage * C::kVBytes, tile, shared.v_base, p.v,
                 p.value_columns, p.v_aligned != 0);
  }
  ATTNSCOPE_D bool in_range(int key) const {
    return key >= shared.block_range.begin && key < shared.block_range.end;
  }
  ATTNSCOPE_D const u16* value_row(int key) const { return row_of(shared.v_base, p.v, key); }

  // The careful walk: values of a tile that are not finite become 0, and add_not_finite gives them to the
  // rows that see them. After the barrier that follows V's arrival; ends with one.
  ATTNSCOPE_D void clear_not_finite(int stage, int tile) const {
    const u32 at = shared_address_of(shared.v[0]) + stage * C::kVBytes;
    using Division = Pieces<C, C::kKeys, C::kEv>;
    const Division pieces(thread_in_step(tile));
    constexpr u32 kMask = kExponentMask<C::kType> * 0x10001u;
    constexpr u32 kOne = (kExponentMask<C::kType> & (~kExponentMask<C::kType> + 1u)) * 0x10001u;
    u32 found = 0;
    if (pieces.active()) {
#pragma unroll 1
      for (int turn = 0; turn < Division::kTurns; ++turn) {
        u32 w[4];
        load_shared(w, at + pieces.offset(turn));
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // an exponent of all ones plus one carries into the sign's place
          const u32 bad = (((w[i] & kMask) + kOne) & 0x80008000u) >> 15;
          w[i] &= ~(bad * 0xFFFFu);
          found |= bad;
        }
        store_shared(at + pieces.offset(turn), w);
      }
    }
    if (found != 0) atomicMin(&shared.bad_begin, tile), atomicMax(&shared.bad_end, tile + 1);
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
  constexpr int kPerRow = C::kEv / 8;
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
