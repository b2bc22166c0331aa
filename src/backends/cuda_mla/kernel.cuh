#pragma once
// O = softmax(scale · Q·Kᵀ, masked) · V for wide heads that many query heads share: absorbed MLA, E = 576 and
// Ev = 512, where V is K's first 512 columns. For Hopper (sm_90a).
//
// Shapes: Q [batch, heads, L, E] · K [batch, heads / k_group, S, E] · V [batch, heads / v_group, S, Ev] (or
// pages) · O [batch, heads, L, Ev]. Heads that share K and V are packed with their rows into tiles of 64
// rows, and key tiles of 64 keys are shared among the blocks, as in decode (cuda_decode/schedule.h).
//
//   producer warpgroup   one thread issues TMA loads          24 registers a thread
//     K_t ──► sK[2]: nine panels of 64 columns, in three parts: left and right half of V, the rest
//   consumer warpgroups  two, for the same 64 rows           240 registers a thread
//     warpgroup w has columns 256·w … of O (128 registers) and makes the scores of tiles t ≡ w (mod 2):
//       S_t = Q·K_tᵀ, begun as soon as K_t is there
//       O_w += P_{t−1}·V_{t−1}     weights of the other warpgroup, from shared memory; under it the softmax
//       of S_t P_t to shared memory, for the other warpgroup O_w += P_t·V_t             its own weights, from
//       registers
//
// So K is loaded once for both products and the tensor cores have work of one warpgroup while the other is at
// its softmax. All weights are relative to one running reference per row, which travels with P. When V is not
// K's first columns it has a stage of its own, and K one stage instead of two. Bound and measurements:
// docs/kernels/mla.md.

#include "backends/cuda_decode/output.cuh"
#include "backends/cuda_decode/runs.cuh"
#include "backends/cuda_mla/params.h"
#include "backends/cuda_mla/products.cuh"
#include "cuda/kernels_tile/tma.cuh"

namespace attnscope::mla {

using decode::Interval;
using decode::Piece;
using decode::State;

// Weights up to 2^8 relative to the reference are as exact as weights up to 1: it moves only beyond that.
inline constexpr float kKeepReference = 8.0f;  // in log2 units

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
  static_assert(kPanelBytes % kSwizzlePeriodBytes == 0, "panels start on a swizzle period");
};

template <class C>
struct alignas(1024) SharedStorage {
  u8 q[tile_bytes(C::kRows, C::kE)];
  u8 k[C::kStages][tile_bytes(C::kKeys, C::kE)];
  u8 v[C::kAlias ? 1024 : tile_bytes(C::kKeys, C::kEv)];
  u8 weights[tile_bytes(C::kRows, C::kKeys)];  // P of the latest tile …
  float reference[C::kRows];                   // … and what it is relative to
  float sums[2][C::kRows];                     // of each warpgroup's tiles
  u32 noted[2];  // values that are not finite were taken out of a tile; by turns of the pieces
  // full: the producer announces the bytes, the copy engine delivers them. empty: every warp that reads the
  // part last arrives once its product is done: of V's halves the four of one warpgroup, of the rest (and of
  // all of a K that is not V) the four that made the scores.
  Barrier k_full[C::kStages][kParts], k_empty[C::kStages][kParts];
  Barrier v_full[2], v_empty[2];
  // The other warpgroup's P and reference are in shared memory; its four warps arrive. They may be
  // overwritten by who waited, once its product is done: no barrier for that.
  Barrier weights_full[2];
  decode::PlaceStorage place;
};

template <int kStages>
struct Slot {
  int stage;
  u32 parity;
  ATTNSCOPE_D explicit Slot(int n) : stage(n % kStages), parity((n / kStages) & 1) {}
};

// ---- Producer -------------------------------------------------------------------------------------------
#ifndef ATTNSCOPE_MLA_POLICY
#define ATTNSCOPE_MLA_POLICY kEvictNormal
#endif

struct KeyTile {
  int row, batch;  // coordinates of its first key in the tensor maps
};
ATTNSCOPE_D KeyTile key_tile(const decode::Params& p, const Piece& piece, int key) {
  if (p.table == nullptr) return {key, piece.batch};
  const int page = p.table[piece.batch * p.table_strides[0] + (key / p.page_size) * p.table_strides[1]];
  return {key % p.page_size, page};
}

ATTNSCOPE_D void load_panels(u8* to, const TensorMap& map, Barrier& full, Barrier& empty, u32 parity,
                             int first, int count, const KeyTile& at, int head) {
  barrier_wait(empty, parity ^ 1);
  barrier_expect(full, u32(count * panel_bytes(64)));
#pragma unroll 1
  for (int panel = first; panel < first + count; ++panel)
    tma_load(to + panel * panel_bytes(64), map, full, panel * kPanelColumns, at.row, head, at.batch,
             ATTNSCOPE_MLA_POLICY);
}

// One thread. In the order in which the parts were given back and will be asked for.
template <class C, class Runs>
ATTNSCOPE_D void produce(const Params& p, SharedStorage<C>& shared, Runs& runs) {
  const decode::Problem& problem = p.rest.problem;
  const bool flat = problem.parts == 0;
  if (flat && runs.at >= runs.end) return;
  int n = 0;  // tiles of all pieces
  do {
    const Piece piece = flat ? runs.next() : decode::even_piece(problem);
    const int head = piece.pack * problem.pack;
    for (int t = 0; t < piece.last - piece.first; ++t, ++n) {
      const KeyTile at = key_tile(p.rest, piece, (piece.first + t) * C::kKeys);
      const Slot<C::kStages> slot(n);
      const int own = t & 1;
#pragma unroll 1
      for (int i = 0; i < kParts; ++i) {
        const int part = i == 0 ? kRest : i == 1 ? own : 1 - own;
        load_panels(shared.k[slot.stage], p.k, shared.k_full[slot.stage][part],
                    shared.k_empty[slot.stage][part], slot.parity, first_panel(part), panels_of(part), at,
                    head / problem.k_group);
      }
      if constexpr (!C::kAlias)
#pragma unroll 1
        for (int half = 0; half < 2; ++half)
          load_panels(shared.v, p.v, shared.v_full[half], shared.v_empty[half], u32(n & 1), first_panel(half),
                      4, at, head / problem.v_group);
    }
  } while (flat && runs.at < runs.end);
}

// ---- Consumer -------------------------------------------------------------------------------------------
template <class C>
struct Consumer {
  using Scores = Wgmma<C::kKeys, C::kType>;
  using Values = Wgmma<C::kHalf, C::kType>;

  const decode::Params& p;
  const int out_vectors;
  SharedStorage<C>& shared;
  const int half;    // of O's columns; parity of the tiles whose scores this warpgroup makes
  const int thread;  // in the warpgroup
  Piece piece;
  int before = 0;             // tiles of the block before this piece
  int turn = 0;               // pieces before this one
  u32 taken = 0;              // parity of weights_full
  float s[C::kKeys / 2];      // scores, then weights, of one tile
  u32 weights[C::kKeys / 4];  // packed P
  float o[C::kHalf / 2];
  float reference[2], sum[2];  // of rows r and r + 8; this thread's part of this warpgroup's sum
  float factor[2];             // that O is still to be multiplied with
  int all_begin, all_end;      // keys that every row of the tile sees

  ATTNSCOPE_D Consumer(const Params& params, SharedStorage<C>& storage, int w)
      : p(params.rest),
        out_vectors(params.out_vectors),
        shared(storage),
        half(w),
        thread(int(threadIdx.x) % kWarpgroup) {}

  ATTNSCOPE_D int lane() const { return thread % 32; }
  ATTNSCOPE_D int row() const { return accumulator_row(thread, 0); }  // the other one is 8 below
  ATTNSCOPE_D int packed_row(int h) const { return piece.row_tile * C::kRows + row() + 8 * h; }
  ATTNSCOPE_D void arrive_per_warp(Barrier& b) {
    if (lane() == 0) barrier_arrive(b);
  }
  ATTNSCOPE_D Slot<C::kStages> slot_of(int t) const { return Slot<C::kStages>(before + t); }
  ATTNSCOPE_D u8* values_of(int t) { return C::kAlias ? shared.k[slot_of(t).stage] : shared.v; }

  // ---- Products ----
  // S = Q·K_tᵀ, asynchronously, part by part as they arrive.
  ATTNSCOPE_D void issue_scores(int t) {
    const Slot<C::kStages> slot = slot_of(t);
    const u64 q = k_major_descriptor(shared_address(shared.q));
    const u64 k = k_major_descriptor(shared_address(shared.k[slot.stage]));
    barrier_wait(shared.k_full[slot.stage][kRest], slot.parity);
    wgmma_fence();
#pragma unroll
    for (int k16 = 0; k16 < 4; ++k16) {
      constexpr int kPanel = first_panel(kRest) * C::kPanelBytes;
      Scores::shared_a(s, q + ((kPanel + k16 * 32) >> 4), k + ((kPanel + k16 * 32) >> 4), k16 != 0);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int part = i == 0 ? half : 1 - half;
      barrier_wait(shared.k_full[slot.stage][part], slot.parity);
      wgmma_fence();
      const u32 panel = u32(first_panel(part) * C::kPanelBytes) >> 4;
#pragma unroll
      for (int k16 = 0; k16 < 16; ++k16) {
        const u32 at = panel + (k_major_step_bytes(64, k16) >> 4);
        Scores::shared_a(s, q + at, k + at, 1);
      }
    }
    wgmma_commit();
  }

  ATTNSCOPE_D u64 values_descriptor(int t) {
    return mn_major_descriptor(shared_address(values_of(t) + first_panel(half) * C::kPanelBytes),
                               C::kPanelBytes);
  }
  // The copy engine's writes are seen by who waits for them, so that every warpgroup does.
  ATTNSCOPE_D void wait_for_values_of(int t) {
    if constexpr (C::kAlias)
      barrier_wait(shared.k_full[slot_of(t).stage][half], slot_of(t).parity);
    else
      barrier_wait(shared.v_full[half], u32(before + t) & 1);
  }
  // O += P_t·V_t, asynchronously, with P from shared memory …
  ATTNSCOPE_D void issue_shared_values(int t) {
    const u64 a = k_major_descriptor(shared_address(shared.weights));
    const u64 v = values_descriptor(t);
    wait_for_values_of(t);
    wgmma_fence();
#pragma unroll
    for (int k16 = 0; k16 < C::kKeys / 16; ++k16)
      shared_values<C::kType>(o, a + (k_major_step_bytes(64, k16) >> 4), v + (mn_major_step_bytes(k16) >> 4));
    wgmma_commit();
  }
  // … and from registers.
  ATTNSCOPE_D void issue_own_values(int t) {
    const u64 v = values_descriptor(t);
    wait_for_values_of(t);
    wgmma_fence();
#pragma unroll
    for (int k16 = 0; k16 < C::kKeys / 16; ++k16)
      Values::register_a(o, weights[4 * k16], weights[4 * k16 + 1], weights[4 * k16 + 2],
                         weights[4 * k16 + 3], v + (mn_major_step_bytes(k16) >> 4), 1);
    wgmma_commit();
  }
  ATTNSCOPE_D void finish_values(int t) {
    wgmma_wait<0>();
    pin_registers(o);
    arrive_per_warp(C::kAlias ? shared.k_empty[slot_of(t).stage][half] : shared.v_empty[half]);
  }
  ATTNSCOPE_D void finish_scores(int t) {
    const int stage = slot_of(t).stage;
    arrive_per_warp(shared.k_empty[stage][kRest]);
    if constexpr (!C::kAlias)
      arrive_per_warp(shared.k_empty[stage][0]), arrive_per_warp(shared.k_empty[stage][1]);
  }

  // ---- References ----
  ATTNSCOPE_D static float factor_of(float from, float to) {
    return to == -infinity() ? 1.0f : exp2_unit(from - to);
  }
  ATTNSCOPE_D void scale_output() {
#pragma unroll
    for (int i = 0; i < C::kHalf / 2; ++i) o[i] *= factor[(i / 2) % 2];
  }
  // The other warpgroup's weights are there: O and sum are brought to what they are relative to.
  ATTNSCOPE_D void take_reference() {
    barrier_wait(shared.weights_full[half], taken);
    taken ^= 1;
    bool moved = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float now = shared.reference[row() + 8 * h];
      moved |= now != reference[h];
      factor[h] = factor_of(reference[h], now);
      sum[h] *= factor[h];
      reference[h] = now;
    }
    if (__any_sync(0xFFFFFFFFu, moved)) scale_output();
  }

  // ---- Scores to weights ----
  // Exponents in base 2: scaled, capped, with ALiBi; −∞ where a row does not see a key.
  ATTNSCOPE_D void transform(int t) {
    if (p.softcap_out == 0.0f) {
#pragma unroll
      for (int i = 0; i < C::kKeys / 2; ++i) s[i] *= p.log2_scale;
    } else {  // tanh(y) = 1 − 2 / (e^2y + 1), as in decode
#pragma unroll
      for (int i = 0; i < C::kKeys / 2; ++i)
        s[i] = p.softcap_out * (1.0f - __fdividef(2.0f, exp2_unit(p.softcap_in * s[i]) + 1.0f));
    }
    if (p.alibi != nullptr) add_alibi(t);
    if (!partial(t)) return;
    const decode::Problem& problem = p.problem;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const Interval seen = visible(problem, piece.keys, packed_row(h) % problem.length);
      const int mine = (piece.first + t) * C::kKeys + accumulator_column(thread, 0);
#pragma unroll
      for (int i = 0; i < C::kKeys / 2; ++i) {
        const int key = mine + accumulator_column(0, i);
        if ((i / 2) % 2 == h && (key < seen.begin || key >= seen.end)) s[i] = -infinity();
      }
    }
  }
  ATTNSCOPE_D void add_alibi(int t) {
    const decode::Problem& problem = p.problem;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const decode::Row at = row_of(problem, piece.pack, min(packed_row(h), problem.rows() - 1));
      const float slope =
          decode::kLog2E * p.alibi[piece.batch * p.alibi_strides[0] + at.head * p.alibi_strides[1]];
      const int distance = (piece.first + t) * C::kKeys + accumulator_column(thread, 0) -
                           diagonal_of(problem, piece.keys, at.i);
#pragma unroll
      for (int i = 0; i < C::kKeys / 2; ++i)
        if ((i / 2) % 2 == h) s[i] -= slope * fabsf(float(distance + accumulator_column(0, i)));
    }
  }
  // Is there a row of the tile that does not see all keys of tile t?
  ATTNSCOPE_D bool partial(int t) const {
    const int first = (piece.first + t) * C::kKeys;
    return first < all_begin || first + C::kKeys > all_end;
  }

  // s becomes 2^(s − reference), packed. True in a warp where some reference moved: O is to be scaled by
  // factor.
  ATTNSCOPE_D bool softmax() {
    float top[2] = {-infinity(), -infinity()};
#pragma unroll
    for (int i = 0; i < C::kKeys / 2; ++i) top[(i / 2) % 2] = fmaxf(top[(i / 2) % 2], s[i]);
    const bool moves = __any_sync(
        0xFFFFFFFFu, top[0] > reference[0] + kKeepReference || top[1] > reference[1] + kKeepReference);
    if (moves) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float now = fmaxf(reference[h], quad_max(top[h]));
        factor[h] = factor_of(reference[h], now);
        sum[h] *= factor[h];
        reference[h] = now;
      }
    }
    float base[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) base[h] = reference[h] == -infinity() ? 0.0f : reference[h];
#pragma unroll
    for (int i = 0; i < C::kKeys / 2; ++i) {
      s[i] = exp2_unit(s[i] - base[(i / 2) % 2]);
      sum[(i / 2) % 2] += s[i];
    }
#pragma unroll
    for (int w = 0; w < C::kKeys / 4; ++w) {
      const int i = operand_first_accumulator(w / 4, w % 4);
      weights[w] = pack16<C::kType>(s[i], s[i + 1]);
    }
    return moves;
  }
  // P_t and what it is relative to, for the other warpgroup. Its rows of P are this warp's own to overwrite:
  // only this warp's part of the product that read them before needed them.
  ATTNSCOPE_D void publish() {
    const int warp = thread / 32, at_row = 16 * warp + stmatrix_row(lane());
    const u32 to = shared_address(shared.weights) + at_row * kPanelRowBytes;
#pragma unroll
    for (int c = 0; c < C::kKeys / 16; ++c) {
      const int chunk = (16 * c + stmatrix_column(lane())) / 8;
      stmatrix_x4(to + ((chunk ^ (at_row % 8)) * 16), weights[4 * c], weights[4 * c + 1], weights[4 * c + 2],
                  weights[4 * c + 3]);
    }
    if (lane() % 4 == 0) shared.reference[row()] = reference[0], shared.reference[row() + 8] = reference[1];
    fence_to_async_proxy();
    __syncwarp();
    arrive_per_warp(shared.weights_full[1 - half]);
  }

  // ---- Masked values ----
  // Of a tile that not every row sees whole: keys that no row sees become zeros, and so do values that are
  // not finite of keys that only some rows see; 0 · NaN must not reach the others. The scores have been made.
  ATTNSCOPE_D void clean(int t) {
    if constexpr (!C::kAlias) {
      const u32 parity = u32(before + t) & 1;
      barrier_wait(shared.v_full[0], parity), barrier_wait(shared.v_full[1], parity);
    }
    named_sync(1 + half, kWarpgroup);  // all warps' scores are made
    const decode::Problem& problem = p.problem;
    const int at = thread / 2, key = (piece.first + t) * C::kKeys + at;
    const bool seen = key >= visible(problem, piece.keys, 0).begin &&
                      key < visible(problem, piece.keys, problem.length - 1).end;
    const bool by_all = key >= all_begin && key < all_end;
    u8* from = values_of(t) + (thread % 2) * 4 * C::kPanelBytes + at * kPanelRowBytes;
    bool found = false;
    if (!by_all)
#pragma unroll 1
      for (int chunk = 0; chunk < 4 * 8; ++chunk) {
        uint4* place =
            reinterpret_cast<uint4*>(from + chunk / 8 * C::kPanelBytes + ((chunk % 8) ^ (at % 8)) * 16);
        if (!seen) {
          *place = make_uint4(0, 0, 0, 0);
        } else {
          uint4 v = *place;
          if (not_finite(v.x) | not_finite(v.y) | not_finite(v.z) | not_finite(v.w)) {
            v.x = without(v.x), v.y = without(v.y), v.z = without(v.z), v.w = without(v.w);
            *place = v;
            found = true;
          }
        }
      }
    if (found) shared.noted[turn & 1] = 1;
    fence_to_async_proxy();
    named_sync(1 + half, kWarpgroup);
  }
  static constexpr u32 kExponent = C::kType == Type16::kBf16 ? 0x7F80u : 0x7C00u;
  ATTNSCOPE_D static bool half_not_finite(u32 bits) { return (bits & kExponent) == kExponent; }
  ATTNSCOPE_D static bool not_finite(u32 word) {
    return half_not_finite(word) || half_not_finite(word >> 16);
  }
  ATTNSCOPE_D static u32 without(u32 word) {
    return (half_not_finite(word) ? 0 : word & 0xFFFFu) |
           (half_not_finite(word >> 16) ? 0 : word & 0xFFFF0000u);
  }
  // They are added to the rows that see their keys: what such a sum is does not depend on the weights. V is
  // read again, from where it still is whole.
  ATTNSCOPE_D void add_not_finite() {
    const decode::Problem& problem = p.problem;
    const int begin = max(piece.first * C::kKeys, visible(problem, piece.keys, 0).begin);
    const int end = min(piece.last * C::kKeys, visible(problem, piece.keys, problem.length - 1).end);
    Interval seen[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) seen[h] = visible(problem, piece.keys, packed_row(h) % problem.length);
#pragma unroll 1
    for (int key = begin; key < end; ++key) {
      if (key >= all_begin && key < all_end) {
        key = all_end - 1;
        continue;
      }
      const KeyTile at = key_tile(p, piece, key);
      const u16* v = p.v + at.batch * p.v_strides[0] +
                     piece.pack * problem.pack / problem.v_group * p.v_strides[1] + at.row * p.v_strides[2];
      const bool sees[2] = {key >= seen[0].begin && key < seen[0].end,
                            key >= seen[1].begin && key < seen[1].end};
#pragma unroll
      for (int i = 0; i < C::kHalf / 2; i += 4) {
        const int column = C::kHalf * half + accumulator_column(thread, i);
        const u32 word = column < p.ev ? *reinterpret_cast<const u32*>(v + column) : 0;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const u32 bits = word >> (16 * (c % 2)) & 0xFFFFu;
          if (sees[c / 2] && half_not_finite(bits)) o[i + c] += decode::to_float<C::kType>(u16(bits));
        }
      }
    }
  }

  // ---- Steps ----
  // Waits for all products, behind a branch that all warps take alike: within one basic block ptxas would
  // move the wait up above the exponentials (cuda_flash_sm90/kernel.cuh has the same).
  ATTNSCOPE_D void wait_for_values() {
    if (p.problem.heads > 0) {
      wgmma_wait<0>();
      pin_registers(o);
    } else {
      asm volatile("wgmma.wait_group.sync.aligned 0; // never" ::: "memory");
      pin_registers(o);
    }
  }

  // A tile of this warpgroup. kFirst: of the piece, so that there is none before it.
  template <bool kFirst>
  ATTNSCOPE_D void own_tile(int t) {
    issue_scores(t);
    if constexpr (!kFirst) {
      take_reference();
      issue_shared_values(t - 1);
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
    pin_registers(s);
    if constexpr (!kFirst && !C::kAlias)
      finish_values(t - 1);  // V_t takes its place, and may be cleaned next
    if (partial(t)) clean(t);
    finish_scores(t);
    transform(t);
    const bool moved = softmax();
    if constexpr (!kFirst && C::kAlias) {
      wait_for_values();
      finish_values(t - 1);
    }
    publish();
    if (moved) scale_output();
    issue_own_values(t);
    finish_values(t);
  }
  // The other warpgroup's last tile.
  ATTNSCOPE_D void others_tile(int t) {
    take_reference();
    issue_shared_values(t);
    finish_values(t);
  }

  // ---- A piece ----
  // Q's rows to shared memory; those that do not exist, and columns that the request does not have, become
  // zeros.
  ATTNSCOPE_D void load_q() {
    constexpr int kChunks = C::kE / 8;
    const int first = piece.row_tile * C::kRows;
#pragma unroll 6
    for (int at = int(threadIdx.x) - kWarpgroup; at < C::kRows * kChunks; at += C::kConsumerThreads) {
      const int r = at / kChunks, chunk = at % kChunks;
      u32 words[4] = {};
      if (first + r < p.problem.rows() && 8 * chunk < p.e) {
        const decode::Row of = row_of(p.problem, piece.pack, first + r);
        const u16* from = p.q + piece.batch * p.q_strides[0] + of.head * p.q_strides[1] +
                          of.i * p.q_strides[2] + 8 * chunk * p.q_strides[3];
        if (p.q_vectors) {
          const uint4 v = *reinterpret_cast<const uint4*>(from);
          words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
        } else {
#pragma unroll
          for (int c = 0; c < 8; ++c) words[c / 2] |= u32(from[c * p.q_strides[3]]) << (16 * (c % 2));
        }
      }
      store_shared(shared_address(shared.q) + swizzled_offset(C::kRows, r, 8 * chunk), words);
    }
    fence_to_async_proxy();
  }

  ATTNSCOPE_D void run(const Piece& of) {
    piece = of;
    const decode::Problem& problem = p.problem;
    all_begin = visible(problem, piece.keys, problem.length - 1).begin;
    all_end = visible(problem, piece.keys, 0).end;
    load_q();
#pragma unroll
    for (int h = 0; h < 2; ++h) reference[h] = -infinity(), sum[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < C::kHalf / 2; ++i) o[i] = 0.0f;
    named_sync(3, C::kConsumerThreads);
    const int count = piece.last - piece.first;
    if (count > 0) {
      if (half == 0) own_tile<true>(0);
#pragma unroll 1
      for (int t = half == 0 ? 2 : 1; t < count; t += 2) own_tile<false>(t);
      if ((count - 1) % 2 != half) others_tile(count - 1);
    }
    finish();
    before += count;
    ++turn;
  }

  ATTNSCOPE_D void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float mine = quad_sum(sum[h]);
      if (lane() % 4 == 0) shared.sums[half][row() + 8 * h] = mine;
    }
    named_sync(3, C::kConsumerThreads);
    if (shared.noted[turn & 1] != 0) add_not_finite();
    if (thread == 0) shared.noted[(turn + 1) & 1] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = shared.sums[0][row() + 8 * h] + shared.sums[1][row() + 8 * h];
    if (piece.whole)
      write();
    else
      leave();
  }

  // The piece's result for the second kernel.
  ATTNSCOPE_D void leave() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (packed_row(h) >= p.problem.rows()) continue;
      const i64 at = piece.slot * C::kRows + row() + 8 * h;
      if (half == 0 && lane() % 4 == 0)
        *reinterpret_cast<float2*>(p.partial_state + 2 * at) = make_float2(reference[h], sum[h]);
      float* to = p.partial + at * p.ev;
#pragma unroll
      for (int i = 2 * h; i < C::kHalf / 2; i += 4) {
        const int column = C::kHalf * half + accumulator_column(thread, i);
        if (column < p.ev) *reinterpret_cast<float2*>(to + column) = make_float2(o[i], o[i + 1]);
      }
    }
  }

  ATTNSCOPE_D void write() {
    decode::Row at[2];
    bool there[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      there[h] = packed_row(h) < p.problem.rows();
      at[h] = row_of(p.problem, piece.pack, there[h] ? packed_row(h) : 0);
      State state{reference[h], sum[h]};
      factor[h] = finish_row(p, at[h].head, state);
      if (there[h] && p.lse != nullptr && half == 0 && lane() % 4 == 0)
        store_lse(p, piece.batch, at[h], state);
    }
    scale_output();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      u16* to =
          p.out + piece.batch * p.out_strides[0] + at[h].head * p.out_strides[1] + at[h].i * p.out_strides[2];
      if (out_vectors != 0)
        write_vectors(to, there[h], h);
      else
        write_elements(to, there[h], h);
    }
  }
  // Four lanes that share a row trade words, so that each holds 8 neighbouring columns.
  ATTNSCOPE_D void write_vectors(u16* to, bool there, int h) {
#pragma unroll
    for (int c = 0; c < C::kHalf / 32; ++c) {
      u32 w[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int i = 16 * c + 4 * b + 2 * h;
        w[b] = pack16<C::kType>(o[i], o[i + 1]);
      }
      quad_transpose(w);
      const int column = C::kHalf * half + 32 * c + 8 * (lane() % 4);
      if (there && column < p.ev) *reinterpret_cast<uint4*>(to + column) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
  ATTNSCOPE_D void write_elements(u16* to, bool there, int h) {
#pragma unroll
    for (int i = 2 * h; i < C::kHalf / 2; i += 4) {
      const u32 pair = pack16<C::kType>(o[i], o[i + 1]);
      const int column = C::kHalf * half + accumulator_column(thread, i);
      if (!there || column >= p.ev) continue;
      to[column * p.out_strides[3]] = u16(pair);
      to[(column + 1) * p.out_strides[3]] = u16(pair >> 16);
    }
  }
};

// ---- The kernel ----
template <class C>
ATTNSCOPE_D void init_barriers(SharedStorage<C>& shared) {
  for (int part = 0; part < kParts; ++part)
    for (int stage = 0; stage < C::kStages; ++stage)
      barrier_init(shared.k_full[stage][part], 1), barrier_init(shared.k_empty[stage][part], 4);
  for (int half = 0; half < 2; ++half) {
    barrier_init(shared.v_full[half], 1), barrier_init(shared.v_empty[half], 4);
    barrier_init(shared.weights_full[half], 4);
  }
  barrier_init_fence();
  shared.noted[0] = shared.noted[1] = 0;
}

template <class C>
ATTNSCOPE_D void mla_forward(const Params& p, void* dynamic_shared) {
  SharedStorage<C>& shared = *static_cast<SharedStorage<C>*>(dynamic_shared);
  if (threadIdx.x == 0) init_barriers(shared);
  decode::wait_for_previous_kernel();
  decode::let_next_kernel_start();
  const decode::Problem& problem = p.rest.problem;
  const bool flat = problem.parts == 0;
  decode::FlatRuns<C::kThreads> runs{problem};
  if (flat) runs.start(shared.place);
  __syncthreads();
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, int(threadIdx.x) / kWarpgroup, 0);  // the same in all lanes
  if (warpgroup == 0) {
    keep_registers<C::kProducerRegisters>();
    if (threadIdx.x == 0) produce(p, shared, runs);
  } else {
    take_registers<C::kConsumerRegisters>();
    if (flat && runs.at >= runs.end) return;  // fewer key tiles than blocks
    Consumer<C> me(p, shared, warpgroup - 1);
    do {
      me.run(flat ? runs.next() : decode::even_piece(problem));
    } while (flat && runs.at < runs.end);
  }
}

}  // namespace attnscope::mla
