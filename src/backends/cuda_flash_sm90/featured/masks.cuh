#pragma once
// Bool masks and biases of the featured kernel. The producer brings the mask's tile with the step's K into a
// ring of its own; a consumer reads, conflict-free, the two elements beside each pair of its scores.

#include "backends/cuda_flash_sm90/featured/mask_tile.h"
#include "backends/cuda_flash_sm90/featured/ranges.h"
#include "backends/cuda_flash_sm90/kernel.cuh"

namespace attnscope::flash_sm90 {

template <Masking kKind>
struct ParamsFor {
  using Type = MaskedParams;
};
template <>
struct ParamsFor<Masking::kNone> {
  using Type = FeaturedParams;
};
template <class C>
using ParamsOf = typename ParamsFor<C::kMask>::Type;

inline constexpr int kTileSlots = 4;   // the tile whose epilogue is due, the current one, two ahead
inline constexpr int kKeptWords = 32;  // 1024 steps; of longer sequences no step is left out

// Bases of the kernel's shared memory; empty without a mask.
template <class C, Masking kKind = C::kMask>
struct MaskTiles {
  using Tile = MaskTile<kKind, C::kRows, C::kColumns>;
  alignas(1024) u8 mask[C::kMaskStages][Tile::kBytes];
};
template <class C>
struct MaskTiles<C, Masking::kNone> {};

template <class C, Masking kKind = C::kMask>
struct MaskBarriers {
  Barrier mask_full[C::kMaskStages], mask_empty[C::kMaskStages];  // as those of K
};
template <class C>
struct MaskBarriers<C, Masking::kNone> {};

template <class C, Masking kKind = C::kMask>
struct KeptSteps {};
template <class C>
struct KeptSteps<C, Masking::kBool> {
  u32 kept[kTileSlots][kKeptWords];  // a bit for every step of the slot's tile
};

// The scheduler's: the walk counted batch entries as heads (MaskedParams).
ATTNSCOPE_D void share_masks(const MaskedParams& p, TileInfo& t) {
  if (p.heads_first == 0) return;
  const int head = t.batch;
  t.batch = t.head;
  t.head = head;
  t.k_head = head / p.k_group;
  t.v_head = head / p.v_group;
}

// ---- Steps of a tile, from the last to the first, without those that a bool mask removes ---------------
// The last one up to j that is kept; −1: none.
template <class C, class Storage>
ATTNSCOPE_D int kept_step(const Storage& shared, int slot, int j) {
  for (int word = j >> 5; word >= 0; --word, j = 32 * word + 31) {
    const u32 bits = shared.kept[slot][word] & ((2u << (j & 31)) - 1);
    if (bits != 0) return 32 * word + 31 - __clz(int(bits));
  }
  return -1;
}
template <class C>
ATTNSCOPE_D bool leaves_steps_out(const TileInfo& t) {
  return C::kMask == Masking::kBool && t.end_step <= 32 * kKeptWords;
}
template <class C, class Storage>
ATTNSCOPE_D int top_step(const Storage& shared, int slot, const TileInfo& t) {
  if constexpr (C::kMask == Masking::kBool)
    if (leaves_steps_out<C>(t)) return kept_step<C>(shared, slot, t.end_step - 1);
  return t.end_step - 1;
}
template <class C, class Storage>
ATTNSCOPE_D int step_below(const Storage& shared, int slot, const TileInfo& t, int j) {
  if constexpr (C::kMask == Masking::kBool)
    if (leaves_steps_out<C>(t)) return kept_step<C>(shared, slot, j - 1);
  return j - 1;
}

// The scheduler warp's: the bits of a tile; at least one is set.
template <class C, class Storage>
ATTNSCOPE_D void find_kept_steps(const MaskedParams& p, Storage& shared, int slot) {
  const TileInfo& t = shared.tiles[slot];
  if (!leaves_steps_out<C>(t)) return;
  const int lane = int(threadIdx.x) % kWarp;
  const u8* kept = p.kept == nullptr ? nullptr
                                     : p.kept + t.batch * p.kept_strides[0] + t.head * p.kept_strides[1] +
                                           t.q_row / C::kRows * p.kept_strides[2];
  bool any = false;
  for (int word = 0; 32 * word < t.end_step; ++word) {
    const int j = 32 * word + lane;
    const bool here = j >= t.first_step && j < t.end_step && (kept == nullptr || kept[j] != 0);
    const u32 bits = __ballot_sync(0xFFFFFFFFu, here);
    any |= bits != 0;
    if (lane == 0) shared.kept[slot][word] = bits;
  }
  if (!any && lane == 0) shared.kept[slot][(t.end_step - 1) / 32] = 1u << (t.end_step - 1) % 32;
}

// The producer's part of step `n`.
template <class C, class Storage>
ATTNSCOPE_D void load_mask(const MaskedParams& p, Storage& shared, const TileInfo& t, int j, int n) {
  using Tile = typename Storage::Tile;
  const Slot<C::kMaskStages> slot(n);
  Barrier& full = shared.mask_full[slot.stage];
  barrier_wait(shared.mask_empty[slot.stage], slot.parity ^ 1);
  barrier_expect(full, Tile::kPanels * Tile::kRowBytes * (p.mask_row != 0 ? C::kRows : 1));
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel)
    tma_load(shared.mask[slot.stage] + panel * Tile::kPanelBytes, p.mask, full,
             j * C::kColumns + panel * Tile::kPanelKeys, p.mask_row * t.q_row, p.mask_head * t.head,
             p.mask_batch * t.batch, kEvictNormal);
}

template <Type16 kT>
ATTNSCOPE_D float low_half(u32 pair) {
  if constexpr (kT == Type16::kBf16) {
    return __uint_as_float(pair << 16);
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(u16(pair)));
    return value;
  }
}
template <Type16 kT>
ATTNSCOPE_D float high_half(u32 pair) {
  if constexpr (kT == Type16::kBf16)
    return __uint_as_float(pair & 0xFFFF0000u);
  else
    return low_half<kT>(pair >> 16);
}

// The consumer's: bool: −∞ where the mask removes the score, whatever it was; bias: product · scale + bias.
template <class C, class Storage>
ATTNSCOPE_D void apply_mask(const MaskedParams& p, Storage& shared, float (&s)[C::kColumns / 2], int n,
                            int warpgroup, int thread) {
  using Tile = typename Storage::Tile;
  const Slot<C::kMaskStages> slot(n);
  const int row = 64 * warpgroup + accumulator_row(thread, 0);
  // A mask that is the same for all rows has one.
  const int flip = p.mask_row != 0 ? mask_flip(Tile::kRowBytes, row) : 0;
  const u32 first = shared_address(shared.mask[slot.stage]) + accumulator_column(thread, 0) * Tile::kSize +
                    p.mask_row * row * Tile::kRowBytes;
  const u32 below = p.mask_row * 8 * Tile::kRowBytes;
  barrier_wait(shared.mask_full[slot.stage], slot.parity);
#pragma unroll
  for (int c = 0; c < C::kColumns / 8; ++c) {
    const int byte = 8 * c % Tile::kPanelKeys * Tile::kSize;
    const u32 at = first + 8 * c / Tile::kPanelKeys * Tile::kPanelBytes + (byte / 16 ^ flip) * 16 + byte % 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& left = s[4 * c + 2 * half];
      float& right = s[4 * c + 2 * half + 1];
      if constexpr (C::kMask == Masking::kBool) {
        u16 pair;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(pair) : "r"(at + half * below) : "memory");
        if ((pair & 0xFF) == 0) left = -infinity();
        if ((pair & 0xFF00) == 0) right = -infinity();
      } else {
        u32 pair;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(pair) : "r"(at + half * below) : "memory");
        left = fmaf(left, p.bias_scale, low_half<C::kType>(pair));
        right = fmaf(right, p.bias_scale, high_half<C::kType>(pair));
      }
    }
  }
  __syncwarp();  // every lane has read
  if (thread % kWarp == 0) barrier_arrive(shared.mask_empty[slot.stage]);
}

// Does the mask keep the score of a row of the tile and a key? From global memory, for rare code.
template <class C>
ATTNSCOPE_D bool mask_keeps(const MaskedParams& p, const TileInfo& t, int row, int key) {
  if (row >= t.rows || key >= t.keys) return true;
  const i64 at =
      t.batch * p.mask_strides[0] + t.head * p.mask_strides[1] + (t.q_row + row) * p.mask_strides[2] + key;
  if constexpr (C::kMask == Masking::kBool)
    return static_cast<const u8*>(p.mask_at)[at] != 0;
  else
    return low_half<C::kType>(static_cast<const u16*>(p.mask_at)[at]) != -infinity();
}

}  // namespace attnscope::flash_sm90
