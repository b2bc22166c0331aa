#pragma once
// The flash kernel with everything the plain one leaves out: windows, per-batch key counts, packed sequences,
// sinks, values that are not finite behind a mask, any output layout; and, in images with kTransform,
// softcap, ALiBi and dropout. Tiles, pipeline and products are those of kernel.cuh; what differs:
//
//   producer warpgroup   warp 0, one thread: TMA loads      40 registers a thread
//     warp 1: scheduler  walks the tiles (walk.cuh) and writes them into a ring of kTileSlots
//     warps 2, 3: cleaners  of a V tile that not every row sees whole: rows nobody sees become zeros, and so
//     do
//                        elements that are not finite; their keys are noted
//   consumer warpgroups  as in kernel.cuh, with masks on both sides; noted keys are added by ordinary
//                        arithmetic to the rows that see them, since P = 0 times NaN is NaN
//
// A tile that every row sees whole takes the plain path: its V goes from the copy engine to the products.
// Images with a bool mask or a bias (masks.cuh) have a ring for its tiles; there every V tile is cleaned.
// Measurements: docs/kernels/flash_forward.md.

#include "attention/dropout_bits.h"
#include "backends/cuda_flash_sm90/featured/masks.cuh"
#include "backends/cuda_flash_sm90/featured/walk.cuh"
#include "backends/cuda_flash_sm90/kernel.cuh"

namespace attnscope::flash_sm90 {

inline constexpr int kCleaners = 2;  // warps
inline constexpr float kLog2E = 1.4426950408889634f;

template <class C>
struct FeaturedConfig : C {
  static constexpr int kProducerRegisters = C::kConsumers == 3 ? 32 : C::kEv > 192 ? 40 : 56;
  static constexpr int kConsumerRegisters = C::kConsumers == 3 ? 160 : C::kEv > 192 ? 232 : 224;
  static_assert(C::kStore != Store::kStaged, "packed rows end anywhere: O is written from registers");
};

template <class C>
struct FeaturedStorage : SharedStorage<C>, MaskTiles<C>, MaskBarriers<C>, KeptSteps<C> {
  TileInfo tiles[kTileSlots];
  // tile_full: the scheduler has written the slot. tile_empty: producer, cleaners and consumer warps are
  // done.
  Barrier tile_full[kTileSlots], tile_empty[kTileSlots];
  // The copy engine has delivered a V tile that needs cleaning. v_full takes two arrivals: both cleaners',
  // or two of the producer where there is nothing to clean.
  Barrier v_raw[C::kKvStages];
  WalkState walk;  // the scheduler's
};

// ---- Scheduler ------------------------------------------------------------------------------------------
template <class C>
ATTNSCOPE_D void schedule(const ParamsOf<C>& p, FeaturedStorage<C>& shared) {
  Walk<C::kRows, C::kColumns> walk(p, shared.walk);
  for (int turn = 0;; ++turn) {
    const Slot<kTileSlots> slot(turn);
    barrier_wait(shared.tile_empty[slot.stage], slot.parity ^ 1);
    const int place = turn % 2 == 0 ? int(blockIdx.x) : int(gridDim.x) - 1 - int(blockIdx.x);
    bool wrote;
    const bool found = walk.find(turn * int(gridDim.x) + place, shared.tiles[slot.stage], wrote);
    if constexpr (C::kMask != Masking::kNone)
      if (wrote) share_masks(p, shared.tiles[slot.stage]);
    if (!found && threadIdx.x % kWarp == 0) shared.tiles[slot.stage].valid = 0, wrote = true;
    if constexpr (C::kMask == Masking::kBool) {
      __syncwarp();
      if (found) find_kept_steps<C>(p, shared, slot.stage);
      __syncwarp();
    }
    if (wrote) barrier_arrive(shared.tile_full[slot.stage]);
    __syncwarp();
    if (!found) break;
  }
}

// ---- Cleaners -------------------------------------------------------------------------------------------
// Is there a row of the tile that does not see all keys of step j? Dropout too makes weights that are 0.
template <class C>
ATTNSCOPE_D bool needs_cleaning(const FeaturedParams& p, const TileInfo& t, int j) {
  if constexpr (C::kMask != Masking::kNone) return true;
  const int last_row = min(C::kRows, t.rows) - 1;
  if (C::kTransform && p.dropout != 0) return true;
  return (j + 1) * C::kColumns > min(t.keys, t.seen_end) || j * C::kColumns < last_row + t.seen_begin;
}

// Exponents of all ones: infinities and NaN, in either half of a word.
template <Type16 kT>
struct NotFinite {
  static constexpr u32 kExponent = kT == Type16::kBf16 ? 0x7F807F80u : 0x7C007C00u;
  static constexpr u32 kLowestBit = kT == Type16::kBf16 ? 0x00800080u : 0x04000400u;
  // The sign bits of the halves that are not finite.
  ATTNSCOPE_D static u32 signs(u32 word) { return ((word & kExponent) + kLowestBit) & 0x80008000u; }
  // Of a half that is not finite.
  ATTNSCOPE_D static bool is_nan(u32 half) { return (half & ~kExponent & 0x7FFF) != 0; }
  ATTNSCOPE_D static u32 without(u32 word) { return word & ~((signs(word) >> 15) * 0xFFFFu); }
  // Half by half the larger magnitude, NaN before all; signs mean nothing.
  ATTNSCOPE_D static u32 larger(u32 a, u32 b) {
    u32 c;
    if constexpr (kT == Type16::kBf16)
      asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    else
      asm("max.NaN.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
  }
};

// One warp, its half of a V stage's rows: `cleaner` 0 or 1.
template <class C>
ATTNSCOPE_D void clean(FeaturedStorage<C>& shared, TileInfo& t, int j, int stage, int cleaner) {
  using Check = NotFinite<C::kType>;
  constexpr int kHalf = C::kColumns / kCleaners;
  constexpr int kRowChunks = kPanelRowBytes / 16;
  // Loads in flight. Every tile of a masked image comes through here, not only those at an edge.
  constexpr int kLoads = kHalf * kRowChunks / kWarp;
  constexpr int kBatch = C::kMask != Masking::kNone && C::kEv >= 128 ? 8 : kLoads % 4 == 0 ? 4 : 5;
  const int lane = int(threadIdx.x) % kWarp;
  const int first_key = j * C::kColumns + cleaner * kHalf;
  // Keys that some row sees, as rows of this half.
  const int begin = min(max(t.seen_begin - first_key, 0), kHalf);
  const int end = max(begin, min(kHalf, min(t.keys, min(C::kRows, t.rows) - 1 + t.seen_end) - first_key));
  bool noted = false;
#pragma unroll 1
  for (int panel = 0; panel < panels(C::kEv); ++panel) {
    uint4* chunks = reinterpret_cast<uint4*>(shared.v[stage] + panel * panel_bytes(C::kColumns) +
                                             cleaner * kHalf * kPanelRowBytes);
#pragma unroll 1
    for (int i = lane; i < begin * kRowChunks; i += kWarp) chunks[i] = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int i = end * kRowChunks + lane; i < kHalf * kRowChunks; i += kWarp)
      chunks[i] = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int i = begin * kRowChunks + lane; i < end * kRowChunks; i += kBatch * kWarp) {
      u32 largest = 0;
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const uint4 w = chunks[min(i + b * kWarp, end * kRowChunks - 1)];
        largest = Check::larger(Check::larger(largest, w.x), Check::larger(w.y, Check::larger(w.z, w.w)));
      }
      if (Check::signs(largest) == 0) continue;
      noted = true;
#pragma unroll 1
      for (int b = i; b < min(i + kBatch * kWarp, end * kRowChunks); b += kWarp) {
        const uint4 w = chunks[b];
        chunks[b] =
            make_uint4(Check::without(w.x), Check::without(w.y), Check::without(w.z), Check::without(w.w));
      }
    }
  }
  fence_to_async_proxy();
  if (noted) t.not_finite = 1;
  __syncwarp();
  if (lane == 0) barrier_arrive(shared.v_full[stage]);
}

template <class C>
ATTNSCOPE_D void clean_all(const FeaturedParams& p, FeaturedStorage<C>& shared, int cleaner) {
  int n = 0;
  u32 parities = 0;  // bit per stage: of its v_raw
  for (int turn = 0;; ++turn) {
    const Slot<kTileSlots> slot(turn);
    barrier_wait(shared.tile_full[slot.stage], slot.parity);
    TileInfo& t = shared.tiles[slot.stage];
    if (!t.valid) break;
    for (int j = top_step<C>(shared, slot.stage, t); j >= t.first_step;
         j = step_below<C>(shared, slot.stage, t, j), ++n) {
      if (!needs_cleaning<C>(p, t, j)) continue;
      const int stage = n % C::kKvStages;
      barrier_wait(shared.v_raw[stage], (parities >> stage) & 1);
      parities ^= 1u << stage;
      clean(shared, t, j, stage, cleaner);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(shared.tile_empty[slot.stage]);
  }
}

// ---- Producer -------------------------------------------------------------------------------------------
// One thread; the order of loads is that of the plain kernel.
template <class C>
ATTNSCOPE_D void produce_featured(const ParamsOf<C>& p, FeaturedStorage<C>& shared) {
  int n = 0;
  int v_row = 0, v_head = 0, v_batch = 0;
  bool v_clean = false;
  auto load_v = [&](int step) {
    const Slot<C::kKvStages> slot(step);
    barrier_wait(shared.v_empty[slot.stage], slot.parity ^ 1);
    Barrier& full = shared.v_full[slot.stage];
    if (!v_clean) barrier_arrive(full);
    load_tile<panels(C::kEv)>(shared.v[slot.stage], p.v, v_clean ? shared.v_raw[slot.stage] : full,
                              C::kColumns, v_row, v_head, v_batch, kEvictLast);
  };
  for (int turn = 0;; ++turn) {
    const Slot<kTileSlots> tile_slot(turn);
    barrier_wait(shared.tile_full[tile_slot.stage], tile_slot.parity);
    const TileInfo& t = shared.tiles[tile_slot.stage];
    if (!t.valid) break;
    for (int j = top_step<C>(shared, tile_slot.stage, t); j >= t.first_step;
         j = step_below<C>(shared, tile_slot.stage, t, j), ++n) {
      const Slot<C::kKvStages> slot(n);
      barrier_wait(shared.k_empty[slot.stage], slot.parity ^ 1);
      load_tile<panels(C::kE)>(shared.k[slot.stage], p.k, shared.k_full[slot.stage], C::kColumns,
                               t.k_row + j * C::kColumns, t.k_head, t.batch, kEvictLast);
      if constexpr (C::kMask != Masking::kNone) load_mask<C>(p, shared, t, j, n);
      if (n > 0) load_v(n - 1);
      v_row = t.k_row + j * C::kColumns, v_head = t.v_head, v_batch = t.batch;
      v_clean = needs_cleaning<C>(p, t, j);
      if constexpr (C::kMask == Masking::kBool) {
        if (j != top_step<C>(shared, tile_slot.stage, t)) continue;
      } else {
        if (j != t.end_step - 1) continue;
      }
      const Slot<C::kQStages> q_slot(turn);
      for (int w = 0; w < C::kConsumers; ++w) {
        barrier_wait(shared.q_empty[q_slot.stage][w], q_slot.parity ^ 1);
        load_tile<panels(C::kE)>(shared.q[q_slot.stage][w], p.q, shared.q_full[q_slot.stage][w], 64,
                                 t.q_row + 64 * w, t.head, t.batch, kEvictFirst);
      }
    }
    barrier_arrive(shared.tile_empty[tile_slot.stage]);
  }
  if (n > 0) load_v(n - 1);
}

// Stores four words at a 16-byte aligned address of global memory, where `yes`. A predicate, not a branch:
// the compiler would split half of such stores into four behind a branch.
ATTNSCOPE_D void store16_if(bool yes, void* to, const u32 (&w)[4]) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p st.global.v4.b32 [%1], {%2, %3, %4, %5};\n}\n" ::"r"(
          int(yes)),
      "l"(__cvta_generic_to_global(to)), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
      : "memory");
}

// ---- Consumer -------------------------------------------------------------------------------------------
template <class C>
struct FeaturedConsumer : Consumer<C> {
  using Base = Consumer<C>;
  using Base::n, Base::o, Base::row, Base::s, Base::warpgroup;
  const ParamsOf<C>& features;
  FeaturedStorage<C>& own;

  ATTNSCOPE_D FeaturedConsumer(const ParamsOf<C>& p, FeaturedStorage<C>& storage, int w)
      : Base(p, storage, w), features(p), own(storage) {}

  // ---- Scores
  // To log2 units, capped and with ALiBi, where the request has any of it.
  ATTNSCOPE_D void transform(const TileInfo& t, int j) {
    if (features.scores_in_log2 == 0) return;
    if (features.softcap_log2 != 0.0f) {
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i) s[i] = features.softcap_log2 * tanh_of(s[i]);
    } else {
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i) s[i] *= features.score_scale;
    }
    if (features.slopes == nullptr) return;
    const float slope =
        -kLog2E * features.slopes[t.batch * features.slope_strides[0] + t.head * features.slope_strides[1]];
    const int thread = Base::thread_again();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int from_diagonal = j * C::kColumns + accumulator_column(thread, 0) -
                                (t.diagonal + 64 * warpgroup + accumulator_row(thread, 2 * half));
      const float distance = float(from_diagonal);
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i)
        if ((i / 2) % 2 == half) s[i] = fmaf(slope, fabsf(distance + float(accumulator_column(0, i))), s[i]);
    }
  }
  // tanh(score / softcap) of a product: the unit's own tanh is good to 11 bits only.
  ATTNSCOPE_D float tanh_of(float x) const {
    const float twice = x * features.score_to_twice_tanh;  // in log2 units
    const float half = twice * (0.5f / kLog2E);
    const float far = 1.0f - __fdividef(2.0f, exp2_unit(twice) + 1.0f);
    const float near = half * fmaf(half * half, -1.0f / 3.0f, 1.0f);  // where the subtraction would cancel
    return fabsf(half) < 0.04f ? near : exp2_unit(twice) == infinity() ? 1.0f : far;
  }

  ATTNSCOPE_D bool has_one_step(const TileInfo& t, int slot) const {
    if constexpr (C::kMask == Masking::kBool)
      return step_below<C>(own, slot, t, top_step<C>(own, slot, t)) < t.first_step;
    else
      return t.end_step - t.first_step == 1;
  }
  // Do all rows of this warpgroup see all keys of step j?
  ATTNSCOPE_D bool sees_all(const TileInfo& t, int j) const {
    const int first_column = j * C::kColumns, first_row = 64 * warpgroup;
    const int4 bounds = *reinterpret_cast<const int4*>(&t);  // keys, seen_end, seen_begin
    return first_column + C::kColumns <= min(bounds.x, first_row + bounds.y) &&
           first_column >= first_row + 63 + bounds.z;
  }
  // −∞ where the key does not exist or may not be seen. `all`: sees_all, asked for before the scores came.
  ATTNSCOPE_D void mask(const TileInfo& t, int j, bool all) {
    if constexpr (C::kTransform) transform(t, j);
    if (features.scale_scores != 0) {
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i) s[i] *= features.score_scale;
    }
    if constexpr (C::kMask != Masking::kNone)
      apply_mask<C>(features, own, s, n, warpgroup, Base::thread_again());
    if (all) return;
    const int first_column = j * C::kColumns, first_row = 64 * warpgroup;
    const int thread = Base::thread_again();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = first_row + accumulator_row(thread, 2 * half);
      const int mine = first_column + accumulator_column(thread, 0);
      const int end = min(t.keys, r + t.seen_end) - mine, begin = r + t.seen_begin - mine;
      u32 seen[2];
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        const int low = min(max((begin - x + 7) >> 3, 0), C::kColumns / 8),
                  high = min(max((end - x + 7) >> 3, 0), C::kColumns / 8);
        seen[x] = ((1u << high) - 1) & ~((1u << low) - 1);
      }
#pragma unroll
      for (int c = 0; c < C::kColumns / 8; ++c)
#pragma unroll
        for (int x = 0; x < 2; ++x)
          if ((seen[x] & 1u << c) == 0) s[4 * c + 2 * half + x] = -infinity();
    }
  }

  // ---- Softmax
  ATTNSCOPE_D bool softmax(const TileInfo& t, int j) {
    if constexpr (C::kMask == Masking::kBias)
      return softmax_biased(t, j);
    else
      return Base::softmax();
  }
  // As Consumer's, of natural scores that a bias may have made as low as floats go: then the difference to
  // the reference comes before the factor. Weights that are NaN where the bias is −∞ become 0.
  ATTNSCOPE_D bool softmax_biased(const TileInfo& t, int j) {
    float before[2], base[2];
    bool moved = false, extreme = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float left = s[2 * half], right = s[2 * half + 1];
#pragma unroll
      for (int i = 1; i < C::kColumns / 8; ++i) {
        left = fmaxf(left, s[4 * i + 2 * half]);
        right = fmaxf(right, s[4 * i + 2 * half + 1]);
      }
      before[half] = row.maximum[half];
      float now = fmaxf(before[half], quad_max(fmaxf(left, right)));
      if ((now - before[half]) * kLog2E <= kKeepReference) now = before[half];
      moved |= now != before[half];
      row.maximum[half] = now;
      base[half] = now == -infinity() ? 0.0f : now * kLog2E;
      extreme |= fabsf(base[half]) == infinity();
      Base::rescale[half] = exp2_unit(fmaf(before[half], kLog2E, -base[half]));
    }
    if (__any_sync(0xFFFFFFFFu, extreme))
      weigh_extreme(before);
    else
      for_each([&](int i) { s[i] = exp2_unit(fmaf(s[i], kLog2E, -base[(i / 2) % 2])); });
    float sum[2][2];
    const auto add = [&] {
      sum[0][0] = sum[0][1] = sum[1][0] = sum[1][1] = 0.0f;
      for_each([&](int i) { sum[(i / 2) % 2][i % 2] += s[i]; });
    };
    add();
    const float both = (sum[0][0] + sum[0][1]) + (sum[1][0] + sum[1][1]);
    if (__any_sync(0xFFFFFFFFu, both != both)) {
      drop_hidden(t, j);
      add();
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      row.sum[half] = row.sum[half] * Base::rescale[half] + (sum[half][0] + sum[half][1]);
    return __any_sync(0xFFFFFFFFu, moved);
  }
  template <class Body>
  ATTNSCOPE_D static void for_each(Body body) {
#pragma unroll
    for (int i = 0; i < C::kColumns / 2; ++i) body(i);
  }
  ATTNSCOPE_D void weigh_extreme(const float (&before)[2]) {
    float top[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = row.maximum[half] == -infinity() ? 0.0f : row.maximum[half];
      Base::rescale[half] = exp2_unit((before[half] - top[half]) * kLog2E);
    }
    for_each([&](int i) { s[i] = exp2_unit((s[i] - top[(i / 2) % 2]) * kLog2E); });
  }
  ATTNSCOPE_D void drop_hidden(const TileInfo& t, int j) {
    const int thread = Base::thread_again();
    u64 nan = 0, hidden = 0;
    for_each([&](int i) { nan |= u64(s[i] != s[i]) << i; });
#pragma unroll 1
    for (; nan != 0; nan &= nan - 1) {
      const int i = __ffsll((long long)(nan)) - 1;
      const int r = 64 * warpgroup + accumulator_row(thread, i);
      if (!mask_keeps<C>(features, t, r, j * C::kColumns + accumulator_column(thread, i)))
        hidden |= nan & -nan;
    }
    for_each([&](int i) { s[i] = hidden >> i & 1 ? 0.0f : s[i]; });
  }

  // ---- Dropout
  struct Draw {
    unsigned long long seed, offset, row;  // row of the request's score matrix
  };
  // Made anew for every draw: the ten round keys would otherwise be kept in registers through the loop.
  ATTNSCOPE_D Draw draw_of(const TileInfo& t, int row_in_tile) const {
    Draw d{features.seed, features.offset, 0};
    if (features.seed_on_device != nullptr)
      d.seed = features.seed_on_device[0], d.offset = features.seed_on_device[1];
    d.row =
        (u64(t.batch) * u64(features.heads) + u64(t.head)) * u64(features.rows) + u64(t.q_row + row_in_tile);
    asm volatile("" : "+l"(d.seed), "+l"(d.offset), "+l"(d.row));
    return d;
  }
  ATTNSCOPE_D static u32 word_of(const Philox4& words, int key) {
    const u32 low = key & 1 ? words.x[1] : words.x[0], high = key & 1 ? words.x[3] : words.x[2];
    return key & 2 ? high : low;
  }
  // Weights that dropout removes become 0; the sums have them already. The bits are found in a loop and kept
  // in words, since the code of one draw is longer than that of a whole softmax.
  ATTNSCOPE_D void drop(const TileInfo& t, int j) {
    if (features.dropout == 0) return;
    constexpr int kWords = (C::kColumns / 8 + 7) / 8;
    const int thread = Base::thread_again();
    const int first = t.k_row + j * C::kColumns + accumulator_column(thread, 0);
    u32 kept[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      kept[w] = 0;
      if (features.dropout == 2) continue;
      const int groups = min(8, C::kColumns / 8 - 8 * w);
#pragma unroll 1
      for (int at = 0; at < 2 * groups; ++at) {  // a group of 8 columns, one of the two rows
        const int half = at % 2, key = first + 8 * (8 * w + at / 2);
        const Draw d = draw_of(t, 64 * warpgroup + accumulator_row(thread, 2 * half));
        Philox4 words = dropout_words(d.seed, d.offset, d.row, u64(key));
        const u32 left = word_of(words, key);
        if ((key & 3) == 3) words = dropout_words(d.seed, d.offset, d.row, u64(key) + 1);
        const u32 right = word_of(words, key + 1);
        const u32 bits =
            (left >= features.dropout_threshold ? 1u : 0u) | (right >= features.dropout_threshold ? 2u : 0u);
        kept[w] |= bits << (2 * at);
      }
    }
#pragma unroll
    for (int i = 0; i < C::kColumns / 2; ++i)
      if ((kept[i / 32] >> (i % 32) & 1) == 0) s[i] = 0.0f;
  }

  // ---- Values that are not finite
  // Rows of a warp's 16, as bits, that see a key; `first`: the warp's first row in the tile.
  ATTNSCOPE_D static u32 rows_that_see(const TileInfo& t, int first, int key) {
    const int low = max(0, key - t.seen_end + 1 - first), high = min(15, key - t.seen_begin - first);
    return high < low || key >= t.keys ? 0 : ((2u << high) - 1) & ~((1u << low) - 1);
  }
  ATTNSCOPE_D u32 kept_of(const TileInfo& t, int first, int key, u32 rows) const {
    if (features.dropout == 2) return 0;
    u32 kept = 0;
    for (u32 left = rows; left != 0; left &= left - 1) {
      const int r = __ffs(int(left)) - 1;
      const Draw d = draw_of(t, first + r);
      const Philox4 words = dropout_words(d.seed, d.offset, d.row, u64(t.k_row + key));
      if (word_of(words, t.k_row + key) >= features.dropout_threshold) kept |= 1u << r;
    }
    return kept;
  }
  // Adds them to what the warp has stored, for rows that see their keys: what the sum is then does not depend
  // on the weights. V is read again, from where it still is whole.
  ATTNSCOPE_D void add_not_finite(const TileInfo& t) {
    using Check = NotFinite<C::kType>;
    __syncwarp();
    const int thread = Base::thread_again(), first = 64 * warpgroup + thread / 32 * 16;
    const u16* v = features.v_at + t.batch * features.v_strides[0] + t.v_head * features.v_strides[1] +
                   t.k_row * features.v_strides[2];
    u16* out = features.out + t.batch * features.out_strides[0] + t.head * features.out_strides[1] +
               (t.q_row + first) * features.out_strides[2];
#pragma unroll 1
    for (int column = thread % 32; column < features.out_columns; column += kWarp) {
      u32 plus = 0, minus = 0, nan = 0;  // rows
#pragma unroll 1
      for (int key = t.first_step * C::kColumns; key < min(t.keys, t.end_step * C::kColumns); ++key) {
        const u32 value = v[key * features.v_strides[2] + column];
        if (Check::signs(value) == 0 || !needs_cleaning<C>(features, t, key / C::kColumns)) continue;
        u32 rows = rows_that_see(t, first, key);
        if (C::kTransform && features.dropout != 0) rows = kept_of(t, first, key, rows);
        if constexpr (C::kMask != Masking::kNone)
          for (u32 left = rows; left != 0; left &= left - 1)
            if (!mask_keeps<C>(features, t, first + __ffs(int(left)) - 1, key)) rows &= ~(left & -left);
        (Check::is_nan(value) ? nan : value & 0x8000 ? minus : plus) |= rows;
      }
      for (u32 rows = plus | minus | nan; rows != 0; rows &= rows - 1) {
        const int r = __ffs(int(rows)) - 1;
        if (first + r >= t.rows) break;
        u16* at = out + r * features.out_strides[2] + column * features.out_strides[3];
        const u32 before = *at, bit = 1u << r;
        const bool infinite = Check::signs(before) != 0;
        if ((nan & bit) || (infinite && Check::is_nan(before)) ||
            ((plus & bit || (infinite && !(before & 0x8000))) &&
             (minus & bit || (infinite && before & 0x8000))))
          *at = u16(0x7FFF);
        else
          *at = u16((Check::kExponent & 0x7FFF) | (minus & bit ? 0x8000 : 0));
      }
    }
  }

  // ---- Steps: as in Consumer
  // Descriptors found anew in every step: kept through the loop they cost registers that this kernel lacks.
  // What a shuffle returns the compiler knows to be the same in all lanes, and does their arithmetic in
  // uniform registers, where wgmma wants them; without it every product waited for two moves there, 5 % of
  // the whole.
  ATTNSCOPE_D static u32 same_in_warp(u32 x) { return __shfl_sync(0xFFFFFFFFu, x, 0); }
  ATTNSCOPE_D void issue_scores(int q_stage, int k_stage) {
    u32 q_at = shared_address(own.q[q_stage][warpgroup]), k_at = shared_address(own.k[k_stage]);
    q_at = same_in_warp(q_at), k_at = same_in_warp(k_at);
    const u32 q = u32(k_major_descriptor(q_at)), k = u32(k_major_descriptor(k_at));
    // Only the low word moves, and never out of its address field.
    const auto at = [](u32 low) { return k_major_descriptor(0) >> 32 << 32 | low; };
#pragma unroll
    for (int k16 = 0; k16 < C::kE / 16; ++k16)
      Base::Scores::shared_a(s, at(q + (k_major_step_bytes(64, k16) >> 4)),
                             at(k + (k_major_step_bytes(C::kColumns, k16) >> 4)), k16 != 0);
    wgmma_commit();
  }

  ATTNSCOPE_D void issue_values(int v_stage, int accumulate) {
    u32 v_at = shared_address(own.v[v_stage]);
    v_at = same_in_warp(v_at);
    const u32 v = u32(mn_major_descriptor(v_at, panel_bytes(C::kColumns)));
    const auto at = [](u32 low) { return mn_major_descriptor(0, 0) >> 32 << 32 | low; };
#pragma unroll
    for (int k16 = 0; k16 < C::kColumns / 16; ++k16)
      Base::Values::register_a(o, Base::weights[4 * k16], Base::weights[4 * k16 + 1],
                               Base::weights[4 * k16 + 2], Base::weights[4 * k16 + 3],
                               at(v + (mn_major_step_bytes(k16) >> 4)), k16 == 0 ? accumulate : 1);
    wgmma_commit();
  }

  ATTNSCOPE_D void first_step(const TileInfo& t) {
    barrier_wait(own.q_full[0][warpgroup], 0);
    barrier_wait(own.k_full[0], 0);
    if (C::kOrder == Order::kProducts) Base::take_turn();
    wgmma_fence();
    issue_scores(0, 0);
    if (C::kOrder == Order::kProducts) Base::pass_turn();
    wgmma_wait<0>();
    pin_registers(s);
    Base::arrive_per_warp(own.k_empty[0]);
    if (has_one_step(t, 0)) Base::arrive_per_warp(own.q_empty[0][warpgroup]);
    const auto j = [&] { return top_step<C>(own, 0, t); };  // found anew: no register through the products
    mask(t, j(), sees_all(t, j()));
    softmax(t, j());
    if constexpr (C::kTransform) drop(t, j());
    Base::pack_weights();
    n = 1;
  }

  template <bool kHead, class Between>
  ATTNSCOPE_D void step(const TileInfo& t, int j, bool last, int turn, int accumulate, Between between) {
    const bool all = sees_all(t, j);
    const Slot<C::kKvStages> k_slot(n), v_slot(n - 1);
    const int q_stage = turn % C::kQStages;
    barrier_wait(own.k_full[k_slot.stage], k_slot.parity);
    if (C::kOrder == Order::kProducts) Base::take_turn();
    wgmma_fence();
    issue_scores(q_stage, k_slot.stage);
    barrier_wait(own.v_full[v_slot.stage], v_slot.parity);
    wgmma_fence();
    issue_values(v_slot.stage, accumulate);
    if (C::kOrder == Order::kProducts) Base::pass_turn();
    wgmma_wait<1>();
    pin_registers(s);
    Base::arrive_per_warp(own.k_empty[k_slot.stage]);
    if (last) Base::arrive_per_warp(own.q_empty[q_stage][warpgroup]);
    mask(t, j, all);
    const bool moved = softmax(t, j);
    if constexpr (C::kTransform) drop(t, j);
    Base::wait_for_values();
    if (moved && !kHead) Base::rescale_output();
    Base::arrive_per_warp(own.v_empty[v_slot.stage]);
    between();
    Base::pack_weights();
    ++n;
  }

  ATTNSCOPE_D void last_values(int accumulate) {
    const Slot<C::kKvStages> slot(n - 1);
    barrier_wait(own.v_full[slot.stage], slot.parity);
    wgmma_fence();
    issue_values(slot.stage, accumulate);
    wgmma_wait<0>();
    pin_registers(o);
    Base::arrive_per_warp(own.v_empty[slot.stage]);
  }

  // ---- Epilogue
  ATTNSCOPE_D float sink_of(int head) const {
    const i64 at = head * features.sink_stride;
    const void* data = features.sinks;
    if (features.sink_type == 0) return static_cast<const float*>(data)[at];
    if (features.sink_type == 3) return float(static_cast<const double*>(data)[at]);
    const u32 bits = static_cast<const u16*>(data)[at];
    if (features.sink_type == 2) return __int_as_float(int(bits << 16));
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(u16(bits)));
    return value;
  }

  // O / sum to global memory, and the LSE: rows of the sequence only.
  ATTNSCOPE_D void epilogue(const TileInfo& t, const RowState& r) {
    const int thread = Base::thread_again();
    const int first = 64 * warpgroup + accumulator_row(thread, 0);
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = quad_sum(r.sum[half]), top = r.maximum[half] * features.log2_per_score, own_share = 1.0f;
      if (features.sinks != nullptr && sum != 0.0f) {  // a row that sees nothing has no sink either
        const float sink = sink_of(t.head) * kLog2E, before = top;
        top = fmaxf(before, sink);
        own_share = exp2_unit(before - top);
        sum = sum * own_share + exp2_unit(sink - top);
      }
      inverse[half] = sum == 0.0f ? 0.0f : __fdividef(own_share, sum);
      if (C::kTransform && features.dropout != 0) inverse[half] *= features.keep_scale;
      const int at = first + 8 * half;
      if (features.lse != nullptr && thread % 4 == 0 && at < t.rows) {
        float lse = sum == 0.0f ? -infinity() : (top + log2_unit(sum)) * kLn2;
        if constexpr (C::kMask == Masking::kBias)  // as low as floats go: not in log2 units
          if (features.sinks == nullptr && sum != 0.0f) lse = r.maximum[half] + log2_unit(sum) * kLn2;
        features.lse[t.batch * features.lse_strides[0] + t.head * features.lse_strides[1] +
                     (t.q_row + at) * features.lse_strides[2]] = lse;
      }
    }
    u16* base = features.out + t.batch * features.out_strides[0] + t.head * features.out_strides[1] +
                (t.q_row + first) * features.out_strides[2];
    if constexpr (C::kStore == Store::kDirect)
      store_vectors(base, t.rows - first, inverse);
    else
      store_single(base, t.rows - first, inverse);
    if (t.not_finite != 0) add_not_finite(t);
  }

  // Four lanes that share a row trade words, so that each holds 8 neighbouring columns.
  ATTNSCOPE_D void store_vectors(u16* base, int rows, const float (&inverse)[2]) const {
    const int t = Base::thread_again() % 4;
#pragma unroll
    for (int c = 0; c < C::kEv / 32; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 w[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) w[b] = Base::output_pair(16 * c + 4 * b + 2 * half, inverse);
        quad_transpose(w);
        const int column = 32 * c + 8 * t;
        store16_if(8 * half < rows && column < features.out_columns,
                   base + 8 * half * features.out_strides[2] + column, w);
      }
  }
  ATTNSCOPE_D void store_single(u16* base, int rows, const float (&inverse)[2]) const {
    const int thread = Base::thread_again();
#pragma unroll
    for (int i = 0; i < C::kEv / 2; i += 2) {
      const int below = accumulator_row(0, i), column = accumulator_column(thread, i);
      const u32 pair = Base::output_pair(i, inverse);
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (below < rows && column + c < features.out_columns)
          base[below * features.out_strides[2] + (column + c) * features.out_strides[3]] =
              u16(pair >> (16 * c));
    }
  }
};

template <class C>
ATTNSCOPE_D void consume_featured(const ParamsOf<C>& p, FeaturedStorage<C>& shared, int warpgroup) {
  FeaturedConsumer<C> me(p, shared, warpgroup);
  const auto tile = [&](int turn) -> const TileInfo& { return shared.tiles[turn % kTileSlots]; };
  barrier_wait(shared.tile_full[0], 0);
  if (!tile(0).valid) return;
  me.start_turns();
  me.first_step(tile(0));
  int accumulate = 0, turn = 0;
  for (;; ++turn) {
    const int first = tile(turn).first_step;
    if constexpr (C::kMask == Masking::kBool) {
      const int slot = turn % kTileSlots;
      int j = step_below<C>(shared, slot, tile(turn), top_step<C>(shared, slot, tile(turn)));
      while (j >= first) {
        const int below = step_below<C>(shared, slot, tile(turn), j);
        me.template step<false>(tile(turn), j, below < first, turn, accumulate, [] {});
        accumulate = 1;
        j = below;
      }
    } else {
      for (int j = tile(turn).end_step - 2; j >= first; --j) {
        me.template step<false>(tile(turn), j, j == first, turn, accumulate, [] {});
        accumulate = 1;
      }
    }
    const Slot<kTileSlots> slot(turn + 1);
    barrier_wait(shared.tile_full[slot.stage], slot.parity);
    const TileInfo& next = shared.tiles[slot.stage];
    if (!next.valid) break;
    const RowState finished = me.row;
    me.row = RowState();
    const Slot<C::kQStages> q_slot(turn + 1);
    barrier_wait(shared.q_full[q_slot.stage][warpgroup], q_slot.parity);
    const auto finish = [&] { me.epilogue(tile(turn), finished); };
    if constexpr (C::kMask == Masking::kBool) {
      const int head = top_step<C>(shared, slot.stage, next);
      me.template step<true>(next, head, me.has_one_step(next, slot.stage), turn + 1, accumulate, finish);
    } else {
      const int head = next.end_step - 1;
      me.template step<true>(next, head, head == next.first_step, turn + 1, accumulate, finish);
    }
    __syncwarp();
    me.arrive_per_warp(shared.tile_empty[turn % kTileSlots]);
    accumulate = 0;
  }
  me.last_values(accumulate);
  me.epilogue(tile(turn), me.row);
  me.finish_turns();
}

// ---- The kernel -----------------------------------------------------------------------------------------
template <class C>
ATTNSCOPE_D void flash_featured(const ParamsOf<C>& p, void* dynamic_shared) {
  FeaturedStorage<C>& shared = *static_cast<FeaturedStorage<C>*>(dynamic_shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kQStages; ++i)
      for (int w = 0; w < C::kConsumers; ++w)
        barrier_init(shared.q_full[i][w], 1), barrier_init(shared.q_empty[i][w], 4);
    for (int i = 0; i < C::kKvStages; ++i) {
      barrier_init(shared.k_full[i], 1), barrier_init(shared.k_empty[i], 4 * C::kConsumers);
      barrier_init(shared.v_full[i], 2), barrier_init(shared.v_empty[i], 4 * C::kConsumers);
      barrier_init(shared.v_raw[i], 1);
    }
    if constexpr (C::kMask != Masking::kNone)
      for (int i = 0; i < C::kMaskStages; ++i)
        barrier_init(shared.mask_full[i], 1), barrier_init(shared.mask_empty[i], 4 * C::kConsumers);
    for (int i = 0; i < kTileSlots; ++i)
      barrier_init(shared.tile_full[i], 1),
          barrier_init(shared.tile_empty[i], 1 + kCleaners + 4 * C::kConsumers);
    barrier_init_fence();
  }
  __syncthreads();
  const int warp = int(threadIdx.x) / kWarp;
  if (warp >= 4) {
    take_registers<C::kConsumerRegisters>();
    consume_featured(p, shared, warp / 4 - 1);
    return;
  }
  keep_registers<C::kProducerRegisters>();
  if (warp == 0) {
    if (threadIdx.x == 0) produce_featured(p, shared);
  } else if (warp == 1) {
    schedule(p, shared);
  } else {
    clean_all(p, shared, warp - 2);
  }
}

}  // namespace attnscope::flash_sm90
