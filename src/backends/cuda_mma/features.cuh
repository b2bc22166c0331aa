#pragma once
// What a featured image does beside the plain one: masks and biases through shared memory, softcap, slopes,
// dropout, tiles that a bool mask removes.
//
// A warp copies the mask of its own rows, so that no barrier of the block is needed. Rows of a tile follow
// each other; their 16-byte chunks are permuted so that the eight rows that a warp reads at once lie in
// different banks.

#include "attention/dropout_bits.h"
#include "backends/cuda_mma/loads.cuh"
#include "backends/cuda_mma/mask_tile.h"

namespace attnscope::mma {

// ---- The mask's tile ------------------------------------------------------------------------------------
template <int kBytes>
ATTNSCOPE_D void copy_piece(u32 to, const u8* from, int bytes) {
  if constexpr (kBytes == 16)
    copy_async_16(to, from, bytes);
  else
    copy_async_small<kBytes>(to, from, bytes);
}

// Rows of `row_bytes` in pieces of kBytes; what lies past the last row or key becomes 0. A lane stays in its
// column and goes down the rows.
template <int kBytes>
ATTNSCOPE_D void copy_mask_rows(u32 to, const u8* from, i64 row_stride, int rows, int existing_rows,
                                int row_bytes, int existing_bytes, int lane) {
  const int per_row = row_bytes / kBytes;  // 2 … 64: a power of two
  const int shift = 31 - __clz(per_row);
  const int row_step = max(kWarp >> shift, 1);
  for (int byte = (lane & (per_row - 1)) * kBytes; byte < row_bytes; byte += kWarp * kBytes) {
    const int bytes = min(max(existing_bytes - byte, 0), kBytes);
    const u8* piece = from + (lane >> shift) * row_stride + byte;
#pragma unroll 4
    for (int row = lane >> shift; row < rows; row += row_step) {
      copy_piece<kBytes>(to + mask_offset(row_bytes, row, byte), piece, row < existing_rows ? bytes : 0);
      piece += row_step * row_stride;
    }
  }
}

template <class C>
ATTNSCOPE_D void load_mask(const Params& p, SharedStorage<C>& shared, int first) {
  const Mask& m = p.mask;
  if (m.type == MaskType::kNone) return;
  const Place place = place_of(p, int(blockIdx.x));
  const auto [warp, lane] = Lane(thread_in_step(first));
  const int first_row = place.row_block * C::kRows + C::kWarpRows * warp;
  const u32 to = shared_address_of(shared.mask) + warp * C::kWarpRows * C::kKeys * 4;
  const int size = mask_bytes(m.type);
  const int rows = m.row == 0 ? 1 : C::kWarpRows;  // a mask that is the same for every row has one
  const int existing = m.row == 0 ? 1 : p.rows - first_row;
  const i64 start = place.batch * m.batch + place.head * m.head + first_row * m.row + first * m.column;
  const u8* from = static_cast<const u8*>(m.data) + start * size;
  const int row_bytes = C::kKeys * size, bytes = (p.keys - first) * size;
  if (m.vector_bytes == 16) {
    copy_mask_rows<16>(to, from, m.row * size, rows, existing, row_bytes, bytes, lane);
  } else if (m.vector_bytes == 8) {
    copy_mask_rows<8>(to, from, m.row * size, rows, existing, row_bytes, bytes, lane);
  } else if (m.vector_bytes == 4) {
    copy_mask_rows<4>(to, from, m.row * size, rows, existing, row_bytes, bytes, lane);
  } else {
    for (int x = lane; x < rows * C::kKeys; x += kWarp) {
      const int row = x / C::kKeys, key = x % C::kKeys;
      const bool exists = row < existing && first + key < p.keys;
      const i64 at = start + row * m.row + key * m.column;
      const u32 to_element = to + mask_offset(row_bytes, row, key * size);
      if (m.type == MaskType::kBool) {
        const u32 keep = exists ? static_cast<const u8*>(m.data)[at] : 0;
        asm volatile("st.shared.u8 [%0], %1;" ::"r"(to_element), "r"(keep) : "memory");
      } else if (size == 2) {
        const u16 bits = exists ? static_cast<const u16*>(m.data)[at] : u16(0);
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(to_element), "h"(bits) : "memory");
      } else {
        store_shared(to_element, exists ? __float_as_uint(float_at(m.data, m.type, at)) : 0u);
      }
    }
  }
}

// Does a row of this warp keep a key of the tile (bool masks)?
template <class C>
ATTNSCOPE_D bool any_kept(const Params& p, const SharedStorage<C>& shared, int tile) {
  const auto [warp, lane] = Lane(thread_in_step(tile));
  const u32 at = shared_address_of(shared.mask) + warp * C::kWarpRows * C::kKeys * 4;
  u32 found = 0;
  const int rows = p.mask.row == 0 ? 1 : C::kWarpRows;
  for (int x = lane; x < rows * C::kKeys / 4; x += kWarp) found |= load_shared(at + 4 * x);
  return __any_sync(0xFFFFFFFFu, found != 0);
}

// The last tile from `tile` down of which a bool mask keeps anything for some row of the block, read straight
// from global memory; one before the first when there is none. Masks of other kinds keep every tile.
template <class C>
ATTNSCOPE_D int last_kept_tile(const Params& p, const SharedStorage<C>& shared, int tile) {
  const Mask& m = p.mask;
  if (m.type != MaskType::kBool || m.vector_bytes == 0) return tile;
  const Place place = place_of(p, int(blockIdx.x));
  const int first_row = place.row_block * C::kRows;
  const int rows = m.row == 0 ? 1 : min(C::kRows, p.rows - first_row);
  const u8* from =
      static_cast<const u8*>(m.data) + place.batch * m.batch + place.head * m.head + first_row * m.row;
  for (; tile >= shared.first_tile; --tile) {
    const int first = tile * C::kKeys, keys = min(C::kKeys, p.keys - first);
    u32 found = 0;
    for (int x = int(threadIdx.x); x < rows * (C::kKeys / 4); x += C::kThreads) {
      const int row = x / (C::kKeys / 4), key = 4 * (x % (C::kKeys / 4));
      if (key + 4 <= keys)
        found |= *reinterpret_cast<const u32*>(from + row * m.row + first + key);
      else
        for (int i = key; i < keys; ++i) found |= from[row * m.row + first + i];
    }
    if (__syncthreads_or(found != 0)) break;
  }
  return tile;
}

// ---- Scores ---------------------------------------------------------------------------------------------
// cap · tanh(x / cap), to a few ulp of cap.
ATTNSCOPE_D float soft_cap(float x, float cap, float twice_log2e_over_cap) {
  return cap - __fdividef(2.0f * cap, exp2_unit(x * twice_log2e_over_cap) + 1.0f);
}

// score · scale + bias. In the careful walk a bias of −∞ removes the score whatever it was, NaN included.
ATTNSCOPE_D float biased(float score, float scale, float bias, bool careful) {
  const float sum = fmaf(score, scale, bias);
  return careful && bias == -infinity() ? -infinity() : sum;
}

// A bias takes the scale along when nothing stands between them.
ATTNSCOPE_D bool scaled_before(const Params& p) {
  return p.softcap > 0 || p.slopes.data != nullptr || p.mask.type <= MaskType::kBool;
}

template <class C>
using Scores = float[C::kMTiles][C::kKeys / 8][4];

template <class C, MaskType kMask>
ATTNSCOPE_D void apply_mask(const Params& p, const SharedStorage<C>& shared, const Lane& at,
                            Scores<C>& scores, bool careful) {
  constexpr int kSize = mask_bytes(kMask);
  const float scale = scaled_before(p) ? 1.0f : p.scale;
  const u32 from = shared_address_of(shared.mask) + at.warp * C::kWarpRows * C::kKeys * 4;
#pragma unroll
  for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = p.mask.row == 0 ? 0 : 16 * m + mma_row(at.lane, 2 * half);
#pragma unroll
      for (int n = 0; n < C::kKeys / 8; ++n) {
        float* s = &scores[m][n][2 * half];
        const u32 address = from + mask_offset(C::kKeys * kSize, row, (8 * n + at.column()) * kSize);
        if constexpr (kMask == MaskType::kBool) {
          u16 pair;
          asm volatile("ld.shared.u16 %0, [%1];" : "=h"(pair) : "r"(address) : "memory");
          if ((pair & 0xFF) == 0) s[0] = -infinity();
          if ((pair >> 8) == 0) s[1] = -infinity();
        } else if constexpr (kMask == MaskType::kF32) {
          float x, y;
          asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory");
          s[0] = biased(s[0], scale, x, careful), s[1] = biased(s[1], scale, y, careful);
        } else {
          constexpr Type16 kT = kMask == MaskType::kBf16 ? Type16::kBf16 : Type16::kF16;
          const u32 pair = load_shared(address);
          s[0] = biased(s[0], scale, low_half<kT>(pair), careful);
          s[1] = biased(s[1], scale, high_half<kT>(pair), careful);
        }
      }
    }
}

// Raw products become scores: natural ones when the request needs them so, with bias or mask applied.
// `careful`: a NaN may be among them.
template <class C>
ATTNSCOPE_D void transform_scores(const Params& p, const SharedStorage<C>& shared, const Lane& at,
                                  Scores<C>& s, int first) {
  const bool careful = shared.careful != 0;
  if (p.natural_scores != 0 && scaled_before(p)) {
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
      for (int n = 0; n < C::kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] *= p.scale;
  }
  if (p.softcap > 0) {
    const float exponent = 2.0f * kLog2E / p.softcap;
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
      for (int n = 0; n < C::kKeys / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] = soft_cap(s[m][n][i], p.softcap, exponent);
  }
  if (p.slopes.data != nullptr) {
    const float slope = shared.slope;
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int from_diagonal = first + at.column() - shared.diagonal[at.template row<C>(m, 2 * half)];
#pragma unroll
        for (int n = 0; n < C::kKeys / 8; ++n)
#pragma unroll
          for (int c = 0; c < 2; ++c)
            s[m][n][2 * half + c] -= slope * fabsf(float(from_diagonal + 8 * n + c));
      }
  }
  switch (p.mask.type) {
    case MaskType::kNone: break;
    case MaskType::kBool: apply_mask<C, MaskType::kBool>(p, shared, at, s, careful); break;
    case MaskType::kBf16: apply_mask<C, MaskType::kBf16>(p, shared, at, s, careful); break;
    case MaskType::kF16: apply_mask<C, MaskType::kF16>(p, shared, at, s, careful); break;
    default: apply_mask<C, MaskType::kF32>(p, shared, at, s, careful); break;
  }
}

// ---- Dropout --------------------------------------------------------------------------------------------
// Draws which weights of a tile dropout keeps: one bit for each that a lane holds (four for every eight
// keys), in the lane's own words of shared memory, since S and O leave no registers.
//
// Four neighbouring keys of a row share one draw; two lanes hold them. The even lane draws for its first row,
// the odd one for its second, and they trade halves.
template <class C>
ATTNSCOPE_D void draw_kept(const Params& p, SharedStorage<C>& shared, int first) {
  static_assert(C::kKeys <= 64, "four bits for every eight keys");
  const Dropout& d = p.dropout;
  const Place place = place_of(p, int(blockIdx.x));
  const int thread = thread_in_step(first);
  const Lane at(thread);
  const u64 seed = d.seed_offset != nullptr ? d.seed_offset[0] : d.seed;
  const u64 offset = d.seed_offset != nullptr ? d.seed_offset[1] : d.offset;
  const bool odd = at.lane % 2 != 0;
  const u64 row = (u64(place.batch) * u64(p.heads) + u64(place.head)) * u64(p.rows) +
                  u64(place.row_block * C::kRows + at.template row<C>(0, odd ? 2 : 0));
  u32 bits[C::kMTiles] = {};
#pragma unroll 1
  for (int n = 0; n < C::kKeys / 8; ++n) {
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m) {
      const Philox4 x = dropout_words(seed, offset, row + 16 * m, u64(first + 8 * n + at.column()));
      const u32 a = __shfl_xor_sync(0xFFFFFFFFu, odd ? x.x[0] : x.x[2], 1);
      const u32 b = __shfl_xor_sync(0xFFFFFFFFu, odd ? x.x[1] : x.x[3], 1);
      const u32 four = u32((odd ? a : x.x[0]) >= d.threshold) | u32((odd ? b : x.x[1]) >= d.threshold) << 1 |
                       u32((odd ? x.x[2] : a) >= d.threshold) << 2 |
                       u32((odd ? x.x[3] : b) >= d.threshold) << 3;
      bits[m] |= four << (4 * n);
    }
  }
#pragma unroll
  for (int m = 0; m < C::kMTiles; ++m) shared.kept[m][thread] = bits[m];
}

// ---- Values that are not finite -------------------------------------------------------------------------
// Does the mask keep the score of this row and key?
ATTNSCOPE_D bool mask_keeps(const Params& p, const Place& place, int row, int key) {
  const Mask& m = p.mask;
  if (m.type == MaskType::kNone) return true;
  const i64 at = place.batch * m.batch + place.head * m.head + row * m.row + key * m.column;
  if (m.type == MaskType::kBool) return static_cast<const u8*>(m.data)[at] != 0;
  return float_at(m.data, m.type, at) != -infinity();
}

// clear_not_finite put 0 where V is not finite. Here the rows that see such a key get it after all, in the
// staged O.
template <class C>
ATTNSCOPE_D void add_not_finite(const Params& p, const SharedStorage<C>& shared, const Loader<C>& loader,
                                const Place& place, const Lane& me) {
  const u32 stage = shared_address_of(shared.q);
#pragma unroll 1
  for (int key = max(shared.bad_begin * C::kKeys, shared.block_range.begin);
       key < min(shared.bad_end * C::kKeys, shared.block_range.end); ++key) {
    const u16* v = loader.value_row(key);
#pragma unroll 1
    for (int first = 0; first < C::kEv; first += kWarp) {  // all lanes together: they ask each other
      const int column = first + me.lane;
      const u32 bits = column < p.value_columns ? v[column * p.v.column] : 0;
      const bool bad = (bits & kExponentMask<C::kType>) == kExponentMask<C::kType>;
      if (!__any_sync(0xFFFFFFFFu, bad)) continue;
#pragma unroll 1
      for (int r = C::kWarpRows * me.warp; r < C::kWarpRows * (me.warp + 1); ++r) {
        const int row = place.row_block * C::kRows + r;
        const Interval seen = shared.seen[r];
        if (!bad || row >= p.rows || key < seen.begin || key >= seen.end || !mask_keeps(p, place, row, key))
          continue;
        const u32 at = stage + swizzled_offset(C::kRows, r, column);
        u16 old;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(old) : "r"(at) : "memory");
        const float sum = low_half<C::kType>(old) + low_half<C::kType>(bits);
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(u16(pack16<C::kType>(sum, 0.0f))) : "memory");
      }
    }
  }
  __syncwarp();
}

}  // namespace attnscope::mma
