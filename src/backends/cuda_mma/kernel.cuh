#pragma once
// O = softmax(scale · Q·Kᵀ + mask) · V, exactly, in one kernel for every GPU since sm_80.
//
// Shapes: Q [batch, heads, L, E] · K [batch, heads / group, S, E] · V [batch, heads / group, S, Ev] ·
// O [batch, heads, L, Ev] · LSE [batch, heads, L].
//
//   one block per kRows query rows of one head                                    shared memory
//     Q ──► sQ     K_j ──► sK     V_j ──► sV     (cp.async, 16 bytes a copy)      panels.h of maps.h
//   warp w owns 16 · kMTiles rows
//     step j, from the last tile of keys to the first:
//       wait K_j · barrier · start V_j · S = Q·K_jᵀ · wait V_j · barrier · start K_{j−1}
//       mask (only where the tile is not seen whole) · maximum · O += P·V_j, each 16 keys' exponentials under
//       the products of the 16 before them
//     S, P and O stay in registers: S's accumulator layout is P's operand layout (mma_maps.h)
//
// A plain image knows only which keys exist (causal, window, lengths, packed sequences: one interval a row);
// a featured one also takes masks, softcap, slopes, dropout, pages and tensors that are not 16-byte aligned
// (features.cuh). Bound and measurements: docs/kernels/mma_forward.md.

#include "backends/cuda_mma/features.cuh"
#include "backends/cuda_mma/loads.cuh"

namespace attnscope::mma {

inline constexpr float kLn2 = 0.6931471805599453f;

inline constexpr float kLowest = -3.402823466e38f;

// The reference stays while the true one exceeds it by no more than 2^8: weights up to 2^8 are as
// exact as weights up to 1, and O needs no rescaling.
inline constexpr float kKeepReference = 8.0f;  // in log2 units

// ---- One warp's rows ------------------------------------------------------------------------------------
template <class C>
struct Worker {
  const Params& p;
  SharedStorage<C>& shared;
  float s[C::kMTiles][C::kKeys / 8][4];
  float o[C::kMTiles][C::kEv / 8][4];
  // Of the rows mma_row(lane, 0) and + 8 of each tile: what the exponential subtracts, a score that was once
  // the largest (plain: in log2 units), and this lane's part of the sum. The lowest number there is loses to
  // every score.
  float reference[C::kMTiles][2], sum[C::kMTiles][2];

  ATTNSCOPE_D Worker(const Params& params, SharedStorage<C>& storage) : p(params), shared(storage) {}

  ATTNSCOPE_D void clear() {
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m) {
      reference[m][0] = reference[m][1] = kLowest;
      sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
      for (int n = 0; n < C::kEv / 8; ++n) o[m][n][0] = o[m][n][1] = o[m][n][2] = o[m][n][3] = 0.0f;
    }
  }

  // Is everything in O finite? (x · 0 is NaN when x is not.)
  ATTNSCOPE_D bool finite() const {
    float zero = 0.0f;
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
      for (int n = 0; n < C::kEv / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) zero = fmaf(o[m][n][i], 0.0f, zero);
    return zero == 0.0f;
  }

  // S = Q·K_jᵀ.
  ATTNSCOPE_D void scores(int stage, int tile) {
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
      for (int n = 0; n < C::kKeys / 8; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.0f;
    const Lane at(thread_in_step(tile));
    const u32 q_lane = shared_address_of(shared.q) + C::kWarpRows * at.warp * kPanelRowBytes +
                       block_offset(C::kRows, ldmatrix_a(at.lane), 0, 0);
    const u32 k_at = shared_address_of(shared.k[0]) + stage * C::kKBytes +
                     block_offset(C::kKeys, ldmatrix_b(at.lane), 0, 0);
#pragma unroll
    for (int e16 = 0; e16 < C::kE / 16; ++e16) {
      const int flip = 32 * (e16 % 4);
      u32 a[C::kMTiles][4];
#pragma unroll
      for (int m = 0; m < C::kMTiles; ++m)
        ldmatrix(a[m], (q_lane ^ flip) + (e16 / 4) * panel_bytes(C::kRows) + 16 * m * kPanelRowBytes);
#pragma unroll
      for (int n16 = 0; n16 < C::kKeys / 16; ++n16) {
        u32 b[4];
        ldmatrix(b, (k_at ^ flip) + (e16 / 4) * panel_bytes(C::kKeys) + 16 * n16 * kPanelRowBytes);
#pragma unroll
        for (int m = 0; m < C::kMTiles; ++m) {
          mma_16816<C::kType>(s[m][2 * n16], a[m], b[0], b[1]);
          mma_16816<C::kType>(s[m][2 * n16 + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  // −∞ where the row does not see the key. A scale that is not positive is applied here, so that the largest
  // score is the largest weight.
  ATTNSCOPE_D void mask(int first) {
    const Lane at(thread_in_step(first));
    if constexpr (C::kFeatured) {
      transform_scores<C>(p, shared, at, s, first);
    } else if (p.natural_scores != 0) {
#pragma unroll
      for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
        for (int n = 0; n < C::kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) s[m][n][i] *= p.scale;
    }
    if (shared.warp_range[at.warp].whole(first, C::kKeys)) return;
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Interval seen = shared.seen[at.template row<C>(m, 2 * half)];
        const int shift = first + at.column();
        const int begin = seen.begin - shift, end = seen.end - shift;
#pragma unroll
        for (int n = 0; n < C::kKeys / 8; ++n)
#pragma unroll
          for (int c = 0; c < 2; ++c)
            if (8 * n + c < begin || 8 * n + c >= end) s[m][n][2 * half + c] = -infinity();
      }
  }

  // The new reference of every row; O and the sums follow it.
  ATTNSCOPE_D void raise_reference() {
    const float c = p.log2_per_score;
    bool moved = false;
    float rescale[C::kMTiles][2];
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float top = fmaxf(s[m][0][2 * half], s[m][0][2 * half + 1]);
#pragma unroll
        for (int n = 1; n < C::kKeys / 8; ++n)
          top = fmaxf(top, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        top = quad_max(top);
        const float before = reference[m][half];
        const float now = fmaxf(before, C::kFeatured ? top : top * c);
        const float rise = C::kFeatured ? (now - before) * c : now - before;
        const bool keep = rise <= kKeepReference;
        moved |= !keep;
        reference[m][half] = keep ? before : now;
        rescale[m][half] = keep ? 1.0f : exp2_unit(-rise);
      }
    if (!__any_sync(0xFFFFFFFFu, moved)) return;
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m) {
      sum[m][0] *= rescale[m][0], sum[m][1] *= rescale[m][1];
#pragma unroll
      for (int n = 0; n < C::kEv / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[m][n][i] *= rescale[m][i / 2];
    }
  }

  // log2 of the weight of one score.
  ATTNSCOPE_D float exponent(int m, int n, int i) const {
    if constexpr (C::kFeatured)  // exact for a finite minimum in a bias
      return (s[m][n][i] - reference[m][i / 2]) * p.log2_per_score;
    else
      return fmaf(s[m][n][i], p.log2_per_score, -reference[m][i / 2]);
  }

  ATTNSCOPE_D void weight(int m, int n, int i) {
    s[m][n][i] = exp2_unit(exponent(m, n, i));
    sum[m][i / 2] += s[m][n][i];
  }

  // Weights of keys 16·n16 … + 15 as an A operand; those that dropout removes as 0.
  ATTNSCOPE_D void pack(u32 (&a)[C::kMTiles][4], int n16) {
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m) {
      if constexpr (C::kDropout) {
        const u32 bits = shared.kept[m][threadIdx.x] >> (8 * n16);
#pragma unroll
        for (int x = 0; x < 8; ++x)
          if ((bits >> x & 1) == 0) s[m][2 * n16 + x / 4][x % 4] = 0.0f;
      }
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int n = 2 * n16 + mma_a_tile(w), i = mma_a_first(w);
        a[m][w] = pack16<C::kType>(s[m][n][i], s[m][n][i + 1]);
      }
    }
  }

  // Scores become weights, O += P·V. The exponentials of 16 keys stand between the products of the 16 before
  // them.
  ATTNSCOPE_D void values(int stage, int first) {
    constexpr int kSteps = C::kKeys / 16, kColumns = C::kEv / 16, kWeights = 8 * C::kMTiles;
    const u32 v_at = shared_address_of(shared.v[0]) + stage * C::kVBytes +
                     block_offset(C::kKeys, ldmatrix_b_transposed(thread_in_step(first) % kWarp), 0, 0);
    if constexpr (C::kDropout) draw_kept<C>(p, shared, first);
#pragma unroll
    for (int x = 0; x < kWeights; ++x) weight(x / 8, (x / 4) % 2, x % 4);
    u32 a[C::kMTiles][4];
    pack(a, 0);
#pragma unroll
    for (int n16 = 0; n16 < kSteps; ++n16) {
#pragma unroll
      for (int c16 = 0; c16 < kColumns; ++c16) {
        u32 b[4];
        ldmatrix_transposed(
            b, (v_at ^ (32 * (c16 % 4))) + (c16 / 4) * panel_bytes(C::kKeys) + 16 * n16 * kPanelRowBytes);
#pragma unroll
        for (int m = 0; m < C::kMTiles; ++m) {
          mma_16816<C::kType>(o[m][2 * c16], a[m], b[0], b[1]);
          mma_16816<C::kType>(o[m][2 * c16 + 1], a[m], b[2], b[3]);
        }
        if (n16 + 1 < kSteps) {
#pragma unroll
          for (int x = c16 * kWeights / kColumns; x < (c16 + 1) * kWeights / kColumns; ++x)
            weight(x / 8, 2 * (n16 + 1) + (x / 4) % 2, x % 4);
        }
      }
      if (n16 + 1 < kSteps) pack(a, n16 + 1);
    }
  }

  // O / sum to global memory through this warp's rows of sQ, and the LSE.
  ATTNSCOPE_D void epilogue(const Loader<C>& loader) {
    const Place place = place_of(p, int(blockIdx.x));
    const Lane at(int(threadIdx.x));
    const u32 stage = shared_address_of(shared.q);
    const float sink = p.sinks.data != nullptr ? element(p.sinks, place.head) : -infinity();
#pragma unroll
    for (int m = 0; m < C::kMTiles; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float total = quad_sum(sum[m][half]);
        const bool empty = total == 0.0f;
        float factor = 1.0f;  // of O and the sum
        float top = reference[m][half] * (C::kFeatured ? p.natural_per_score : kLn2);
        if (sink != -infinity() && !empty) {  // one more logit, without a value
          const float before = top;
          top = fmaxf(top, sink);
          factor = exp2_unit((before - top) * kLog2E);
          total = total * factor + exp2_unit((sink - top) * kLog2E);
        }
        const int row_here = at.template row<C>(m, 2 * half);
        const int row = place.row_block * C::kRows + row_here;
        if (p.lse != nullptr && at.lane % 4 == 0 && row < p.rows)
          p.lse[place.batch * p.lse_batch + place.head * p.lse_head + row * p.lse_row] =
              empty ? -infinity() : top + log2_unit(total) * kLn2;
        const float scale = empty ? 0.0f : __fdividef(factor, total) * p.dropout.keep_scale;
        const bool zero = empty || p.dropout.drop_all != 0;
#pragma unroll
        for (int n = 0; n < C::kEv / 8; ++n) {
          const float x = o[m][n][2 * half] * scale, y = o[m][n][2 * half + 1] * scale;
          store_shared(stage + swizzled_offset(C::kRows, row_here, 8 * n + at.column()),
                       zero ? 0u : pack16<C::kType>(x, y));
        }
      }
    __syncwarp();
    if (shared.careful != 0 && p.dropout.drop_all == 0) add_not_finite<C>(p, shared, loader, place, at);
    store_rows<C>(p, stage, place, C::kWarpRows * at.warp, at.lane);
  }
};

// ---- The kernel -----------------------------------------------------------------------------------------
// All tiles of the block. 0 · NaN must not reach a row that does not see the key, but where only finite
// values stand nothing needs to be done for that: so the first walk does nothing, and where it leaves
// something in O that is not finite a second, careful one follows.
template <class C>
ATTNSCOPE_D void walk(const Params& p, SharedStorage<C>& shared, const Loader<C>& loader, Worker<C>& me) {
  int tile = (shared.block_range.end + C::kKeys - 1) / C::kKeys - 1;
  bool start = true;  // nothing of `tile` is on its way yet
  while (tile >= shared.first_tile) {
    if (start) {
      if constexpr (C::kFeatured) tile = last_kept_tile<C>(p, shared, tile);
      if (tile < shared.first_tile) break;
      loader.keys(C::stage(tile), tile);
      if constexpr (C::kStages == 2) loader.values(C::stage(tile), tile);
      if constexpr (C::kFeatured) load_mask<C>(p, shared, tile * C::kKeys);
      copy_async_commit();
      start = false;
    }
    const int first = tile * C::kKeys;
    bool mine =
        shared.warp_range[threadIdx.x / kWarp].any(first, C::kKeys);  // does this warp see a key of the tile?
    copy_async_wait<0>();
    if (C::kFeatured && p.mask.type == MaskType::kBool) {
      __syncwarp();
      mine = mine && any_kept<C>(p, shared, tile);
      if (!__syncthreads_or(mine)) {  // the mask removes the whole tile
        --tile;
        start = true;
        continue;
      }
    } else {
      __syncthreads();
    }
    if constexpr (C::kStages == 2) {
      if (tile > shared.first_tile) {
        loader.keys(C::stage(tile - 1), tile - 1);
        loader.values(C::stage(tile - 1), tile - 1);
      }
    } else {
      loader.values(0, tile);
    }
    copy_async_commit();
    if (mine) me.scores(C::stage(tile), tile);
    if constexpr (C::kStages == 1) {
      copy_async_wait<0>();
      __syncthreads();  // every warp is done with K_j, and V_j is there
      if (tile > shared.first_tile) loader.keys(0, tile - 1);
      copy_async_commit();
    }
    if (shared.careful != 0) loader.clear_not_finite(C::stage(tile), tile);
    if (mine) me.mask(first);
    if constexpr (C::kFeatured) {
      __syncwarp();  // every lane has read the tile's mask
      if (tile > shared.first_tile) load_mask<C>(p, shared, first - C::kKeys);
      copy_async_commit();
    }
    if (mine) {
      me.raise_reference();
      me.values(C::stage(tile), first);
    }
    --tile;
  }
  copy_async_wait<0>();
}

template <class C>
ATTNSCOPE_D void attention_forward(const Params& p, void* dynamic_shared) {
  SharedStorage<C>& shared = *static_cast<SharedStorage<C>*>(dynamic_shared);
  prepare_block<C>(p, shared);
  const Loader<C> loader{p, shared};
  Worker<C> me(p, shared);
  for (;;) {
    me.clear();
    walk<C>(p, shared, loader, me);
    // A barrier too: Q is there even when no tile was, and nobody reads what another warp's epilogue
    // overwrites.
    if (!__syncthreads_or(!me.finite()) || shared.careful != 0) break;
    __syncthreads();
    if (threadIdx.x == 0) shared.careful = 1;
    __syncthreads();
  }
  me.epilogue(loader);
}

}  // namespace attnscope::mma
