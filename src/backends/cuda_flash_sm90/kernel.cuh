#pragma once
// O = softmax(scale · Q·Kᵀ + mask) · V, exactly, in one kernel for Hopper (sm_90a).
//
// Shapes: Q [batch, heads, L, E] · K [batch, heads / group, S, E] · V [batch, heads / group, S, Ev] ·
// O [batch, heads, L, Ev] · LSE [batch, heads, L]; any strides that a TMA descriptor can hold.
//
//   one block per multiprocessor, which walks tiles of kRows query rows (schedule: Tile)
//
//   producer warpgroup   one thread issues TMA loads         24 registers a thread
//     Q ──► sQ[kQStages]      K_j ──► sK[2]      V_j ──► sV[2]      (V runs one step behind K)
//   consumer warpgroup   64 rows each, 2 or 3 of them        240 or 160 registers a thread
//     step j:  S_j = Q·K_jᵀ          issued together; the softmax of S_j runs under
//              O  += P_{j−1}·V_{j−1}  the second product and under the other warpgroup's products
//     S, P and O stay in registers: S's accumulator layout is P's operand layout (maps.h)
//
// The last product of a tile is issued with the first of the next one, so its epilogue runs under products
// too. Bound and measurements: docs/kernels/flash_forward.md.

#include "backends/cuda_flash_sm90/params.h"
#include "cuda/kernels_tile/math.cuh"
#include "cuda/kernels_tile/tma.cuh"
#include "cuda/kernels_tile/wgmma.cuh"

namespace attnscope::flash_sm90 {

inline constexpr float kLn2 = 0.6931471805599453f;

using namespace attnscope::tile;

// How the consumer warpgroups take turns.
enum class Order {
  kFree,      // they do not
  kProducts,  // one at a time issues its products
};

// The reference maximum stays while the true one exceeds it by no more than 2^8: weights up to 2^8 are as
// exact as weights up to 1, and O needs no rescaling.
inline constexpr float kKeepReference = 8.0f;  // in log2 units

// How O leaves the registers.
enum class Store {
  kStaged,    // through shared memory and TMA
  kDirect,    // 16 bytes a store, where shared memory has no room
  kElements,  // one element a store, for an O that is not 16-byte aligned throughout
};

template <Type16 kT, int E, int Ev, int Columns, int Consumers, bool Causal, Order kOrderOf, Store kStoreOf,
          int QStages>
struct Config {
  static constexpr Type16 kType = kT;
  static constexpr int kE = E, kEv = Ev;
  static constexpr int kColumns = Columns;  // keys per step
  static constexpr int kConsumers = Consumers;
  static constexpr int kRows = 64 * Consumers;  // query rows per tile
  static constexpr bool kCausal = Causal;
  static constexpr Order kOrder = Consumers == 1 ? Order::kFree : kOrderOf;
  static constexpr Store kStore = kStoreOf;
  static constexpr int kQStages = QStages;
  static constexpr int kKvStages = 2;
  // The softmax takes a thread's two rows one after the other and waits for P·V between them. Only where it
  // was measured: 3 to 9 % at D = 128.
  static constexpr bool kRowByRow = E == 128 && Ev == 128;
  static constexpr int kThreads = kWarpgroup * (1 + Consumers);
  static constexpr int kProducerRegisters = Consumers == 3 ? 32 : 24;
  static constexpr int kConsumerRegisters = Consumers == 3 ? 160 : 240;

  static constexpr int kQBytes = tile_bytes(64, kE);  // of one warpgroup
  static constexpr int kKBytes = tile_bytes(kColumns, kE);
  static constexpr int kVBytes = tile_bytes(kColumns, kEv);

  static_assert(kE % 16 == 0, "wgmma contracts 16 elements at a time");
  static_assert(kColumns % 16 == 0 && kColumns <= 256 && kEv <= 256,
                "wgmma: N up to 256, here in steps of 16");
  static_assert(panel_bytes(kColumns) % kSwizzlePeriodBytes == 0, "panels start on a swizzle period");
  static_assert(Consumers >= 1 && Consumers <= 3, "65536 registers of a multiprocessor");
};

template <class C>
struct alignas(1024) SharedStorage {
  u8 q[C::kQStages][C::kConsumers][C::kQBytes];
  u8 k[C::kKvStages][C::kKBytes];
  u8 v[C::kKvStages][C::kVBytes];
  u8 o[C::kStore == Store::kStaged ? tile_bytes(C::kRows, C::kEv) : 1024];
  // full: the producer announces the bytes, the copy engine delivers them; the consumers wait.
  // empty: every consumer warp arrives once its last product that reads the stage is done; the producer
  // waits.
  Barrier q_full[C::kQStages][C::kConsumers], q_empty[C::kQStages][C::kConsumers];
  Barrier k_full[C::kKvStages], k_empty[C::kKvStages];
  Barrier v_full[C::kKvStages], v_empty[C::kKvStages];
};

// A stage of a ring and the parity that its barriers complete next; `n` counts uses from 0.
template <int kStages>
struct Slot {
  int stage;
  u32 parity;
  ATTNSCOPE_D explicit Slot(int n) : stage(n % kStages), parity((n / kStages) & 1) {}
};

// ---- Schedule -------------------------------------------------------------------------------------------
// Tiles in an order fixed by the request alone: heads in groups whose K and V fit L2; inside a group all
// heads' last (for causal: longest) row blocks first. Blocks take turns forwards and backwards, which evens
// out the lengths. No counter in memory: every role of every block computes its own walk.
template <class C>
struct Tile {
  int row_block, head, batch, steps;
  bool valid;

  ATTNSCOPE_D Tile(const Params& p, int turn) {
    const int place = turn % 2 == 0 ? int(blockIdx.x) : int(gridDim.x) - 1 - int(blockIdx.x);
    const int t = turn * int(gridDim.x) + place;
    valid = t < p.tiles;
    const int group_tiles = p.group_heads * p.row_blocks;
    const int group = t / group_tiles;
    const int in_group = t - group * group_tiles;
    const int all_heads = p.tiles / p.row_blocks;
    const int heads = min(p.group_heads, all_heads - group * p.group_heads);
    row_block = p.row_blocks - 1 - in_group / max(heads, 1);
    const int flat_head = group * p.group_heads + in_group % max(heads, 1);
    batch = flat_head / p.heads;
    head = flat_head - batch * p.heads;
    const int end =
        C::kCausal ? min(p.columns, min((row_block + 1) * C::kRows, p.rows) + p.causal_offset) : p.columns;
    steps = max(1, (end + C::kColumns - 1) / C::kColumns);  // a tile that sees nothing runs one masked step
  }
};

// ---- Producer -------------------------------------------------------------------------------------------
template <int kPanels>
ATTNSCOPE_D void load_tile(u8* to, const TensorMap& map, Barrier& full, int rows, int row, int head,
                           int batch, u64 policy) {
  barrier_expect(full, kPanels * panel_bytes(rows));
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    tma_load(to + panel * panel_bytes(rows), map, full, panel * kPanelColumns, row, head, batch, policy);
}

// One thread. K of step n, then V of step n − 1, then (at a tile's first step) the tile's Q.
template <class C>
ATTNSCOPE_D void produce(const Params& p, SharedStorage<C>& shared) {
  int n = 0;                               // steps over all tiles
  int v_row = 0, v_head = 0, v_batch = 0;  // of the step whose V is still to be loaded
  auto load_v = [&](int step) {
    const Slot<C::kKvStages> slot(step);
    barrier_wait(shared.v_empty[slot.stage], slot.parity ^ 1);
    load_tile<panels(C::kEv)>(shared.v[slot.stage], p.v, shared.v_full[slot.stage], C::kColumns, v_row,
                              v_head, v_batch, kEvictLast);
  };
  for (int turn = 0;; ++turn) {
    const Tile<C> tile(p, turn);
    if (!tile.valid) break;
    for (int j = tile.steps - 1; j >= 0; --j, ++n) {
      const Slot<C::kKvStages> slot(n);
      barrier_wait(shared.k_empty[slot.stage], slot.parity ^ 1);
      load_tile<panels(C::kE)>(shared.k[slot.stage], p.k, shared.k_full[slot.stage], C::kColumns,
                               j * C::kColumns, tile.head / p.k_group, tile.batch, kEvictLast);
      if (n > 0) load_v(n - 1);
      v_row = j * C::kColumns, v_head = tile.head / p.v_group, v_batch = tile.batch;
      if (j != tile.steps - 1) continue;
      const Slot<C::kQStages> q_slot(turn);
      for (int w = 0; w < C::kConsumers; ++w) {
        barrier_wait(shared.q_empty[q_slot.stage][w], q_slot.parity ^ 1);
        load_tile<panels(C::kE)>(shared.q[q_slot.stage][w], p.q, shared.q_full[q_slot.stage][w], 64,
                                 tile.row_block * C::kRows + 64 * w, tile.head, tile.batch, kEvictFirst);
      }
    }
  }
  if (n > 0) load_v(n - 1);
}

// ---- Consumer -------------------------------------------------------------------------------------------
// Running maximum of the raw scores and this thread's part of the sum, for its two rows (r and r + 8).
struct RowState {
  float maximum[2] = {-infinity(), -infinity()};
  float sum[2] = {0.0f, 0.0f};
};

template <class C>
struct Consumer {
  using Scores = Wgmma<C::kColumns, C::kType>;
  using Values = Wgmma<C::kEv, C::kType>;

  const Params& p;
  SharedStorage<C>& shared;
  const int warpgroup, thread;   // consumer index; thread in the warpgroup
  int n = 0;                     // steps over all tiles
  float s[C::kColumns / 2];      // scores, then weights, of one step
  u32 weights[C::kColumns / 4];  // packed P, operand of the product in flight
  float o[C::kEv / 2];
  RowState row;
  float rescale[2];
  float base[2];  // running maximum · log2_per_score

  ATTNSCOPE_D Consumer(const Params& params, SharedStorage<C>& storage, int w)
      : p(params), shared(storage), warpgroup(w), thread(int(threadIdx.x) % kWarpgroup) {}

  ATTNSCOPE_D int lane() const { return thread % 32; }
  // The thread's number, read anew: what only rare code needs is not worth a register through the main loop.
  ATTNSCOPE_D static int thread_again() {
    int t;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(t));
    return t % kWarpgroup;
  }
  ATTNSCOPE_D void arrive_per_warp(Barrier& b) {
    if (lane() == 0) barrier_arrive(b);
  }

  // Turns: warpgroup w waits for its number, the one before it hands over. One arrival is left at the end,
  // which `finish_turns` takes.
  ATTNSCOPE_D void take_turn() { named_sync(1 + warpgroup, 2 * kWarpgroup); }
  ATTNSCOPE_D void pass_turn() { named_arrive(1 + (warpgroup + 1) % C::kConsumers, 2 * kWarpgroup); }
  ATTNSCOPE_D void start_turns() {
    if constexpr (C::kOrder != Order::kFree)
      if (warpgroup == C::kConsumers - 1) pass_turn();
  }
  ATTNSCOPE_D void finish_turns() {
    if constexpr (C::kOrder != Order::kFree)
      if (warpgroup == 0) take_turn();
  }

  // S = Q·K_nᵀ, asynchronously.
  ATTNSCOPE_D void issue_scores(int q_stage, int k_stage) {
    const u64 q = k_major_descriptor(shared_address(shared.q[q_stage][warpgroup]));
    const u64 k = k_major_descriptor(shared_address(shared.k[k_stage]));
#pragma unroll
    for (int k16 = 0; k16 < C::kE / 16; ++k16)
      Scores::shared_a(s, q + (k_major_step_bytes(64, k16) >> 4),
                       k + (k_major_step_bytes(C::kColumns, k16) >> 4), k16 != 0);
    wgmma_commit();
  }

  // O (+)= P·V, asynchronously.
  ATTNSCOPE_D void issue_values(int v_stage, int accumulate) {
    const u64 v = mn_major_descriptor(shared_address(shared.v[v_stage]), panel_bytes(C::kColumns));
#pragma unroll
    for (int k16 = 0; k16 < C::kColumns / 16; ++k16)
      Values::register_a(o, weights[4 * k16], weights[4 * k16 + 1], weights[4 * k16 + 2],
                         weights[4 * k16 + 3], v + (mn_major_step_bytes(k16) >> 4),
                         k16 == 0 ? accumulate : 1);
    wgmma_commit();
  }

  // −∞ where the key does not exist or may not be seen. A scale that is not positive is applied here, so that
  // the largest score is the largest weight.
  ATTNSCOPE_D void mask(const Tile<C>& tile, int j) {
    const int first_column = j * C::kColumns;
    const int first_row = tile.row_block * C::kRows + 64 * warpgroup;
    const int seen = C::kCausal ? min(p.columns, first_row + 1 + p.causal_offset) : p.columns;
    if (first_column + C::kColumns <= seen && p.scale_scores == 0) return;
    if (p.scale_scores != 0) {
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i) s[i] *= p.score_scale;
    }
    const int t = thread_again();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = first_row + accumulator_row(t, 2 * half);
      const int end = C::kCausal ? min(p.columns, r + 1 + p.causal_offset) : p.columns;
      const int limit = end - first_column - accumulator_column(t, 0);
#pragma unroll
      for (int i = 0; i < C::kColumns / 2; ++i)
        if ((i / 2) % 2 == half && accumulator_column(0, i) >= limit) s[i] = -infinity();
    }
  }

  // s becomes exp(scale · s − running maximum); row and rescale are updated. True in a warp where some row's
  // reference maximum moved, so that O needs rescaling.
  ATTNSCOPE_D bool softmax() {
    const float c = p.log2_per_score;
    float top[2][2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half][0] = s[2 * half], top[half][1] = s[2 * half + 1];
#pragma unroll
      for (int i = 1; i < C::kColumns / 8; ++i) {
        top[half][0] = fmaxf(top[half][0], s[4 * i + 2 * half]);
        top[half][1] = fmaxf(top[half][1], s[4 * i + 2 * half + 1]);
      }
    }
    bool moved = false;
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float before = row.maximum[half];
      float now = fmaxf(before, quad_max(fmaxf(top[half][0], top[half][1])));
      if ((now - before) * c <= kKeepReference) now = before;
      moved |= now != before;
      row.maximum[half] = now;
      base[half] = now == -infinity() ? 0.0f : now * c;  // nothing seen yet: every weight is 0, not NaN
      rescale[half] = exp2_unit(before * c - base[half]);
    }
    float sum[2][2] = {};
#pragma unroll
    for (int i = 0; i < C::kColumns / 2; ++i) {
      const int half = (i / 2) % 2;
      const float x = fmaf(s[i], c, -base[half]);
      s[i] = exp2_unit(x);
      sum[half][i % 2] += s[i];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      row.sum[half] = row.sum[half] * rescale[half] + (sum[half][0] + sum[half][1]);
    return __any_sync(0xFFFFFFFFu, moved);
  }

  // ---- The same, one of the thread's two rows at a time -------------------------------------------------
  // Maximum, base and rescale of one row. True where the row's reference maximum moved.
  ATTNSCOPE_D bool move_reference(int half) {
    const float c = p.log2_per_score;
    float top[2] = {s[2 * half], s[2 * half + 1]};
#pragma unroll
    for (int i = 1; i < C::kColumns / 8; ++i) {
      top[0] = fmaxf(top[0], s[4 * i + 2 * half]);
      top[1] = fmaxf(top[1], s[4 * i + 2 * half + 1]);
    }
    const float before = row.maximum[half];
    float now = fmaxf(before, quad_max(fmaxf(top[0], top[1])));
    if ((now - before) * c <= kKeepReference) now = before;
    row.maximum[half] = now;
    base[half] = now == -infinity() ? 0.0f : now * c;  // nothing seen yet: every weight is 0, not NaN
    rescale[half] = exp2_unit(before * c - base[half]);
    return now != before;
  }

  // The scores of one row become weights, which the row's sum takes in, in kChains chains of additions.
  template <int kChains>
  ATTNSCOPE_D void weigh(int half) {
    float sum[kChains] = {};
#pragma unroll
    for (int i = 0; i < C::kColumns / 8; ++i)
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        float& x = s[4 * i + 2 * half + b];
        x = exp2_unit(fmaf(x, p.log2_per_score, -base[half]));
        sum[b % kChains] += x;
      }
    row.sum[half] = row.sum[half] * rescale[half] + (kChains == 1 ? sum[0] : sum[0] + sum[kChains - 1]);
  }

  ATTNSCOPE_D void pack_weights(int half) {
#pragma unroll
    for (int w = half; w < C::kColumns / 4; w += 2) {
      const int i = operand_first_accumulator(w / 4, w % 4);
      weights[w] = pack16<C::kType>(s[i], s[i + 1]);
    }
  }

  // Softmax and packing with the wait for P·V between the two rows: by then the product is about done, and
  // the packing, which must follow it, runs in the gaps that the second row's exponentials leave, where after
  // all of them it would be the tail of a chain that the next products wait for. Rescaling is rare and comes
  // last.
  template <bool kHead>
  ATTNSCOPE_D void softmax_around_values(Barrier& v_empty) {
    bool moved = move_reference(0);
    weigh<1>(0);
    moved |= move_reference(1);
    wait_for_values();
    arrive_per_warp(v_empty);
    pack_weights(0);
    weigh<2>(1);
    pack_weights(1);
    moved = __any_sync(0xFFFFFFFFu, moved);
    if (moved && !kHead) rescale_output();
  }

  ATTNSCOPE_D void rescale_output() {
#pragma unroll
    for (int i = 0; i < C::kEv / 2; ++i) o[i] *= rescale[(i / 2) % 2];
  }

  ATTNSCOPE_D void pack_weights() {
#pragma unroll
    for (int w = 0; w < C::kColumns / 4; ++w) {
      const int i = operand_first_accumulator(w / 4, w % 4);
      weights[w] = pack16<C::kType>(s[i], s[i + 1]);
    }
  }

  // Waits for P·V. Behind a branch: within one basic block ptxas would move the wait up, above the
  // exponentials, and nothing would run under the product. The branch is one that all warps of the warpgroup
  // take alike, as wgmma asks for, and the arms differ in their text, or they would be made one again.
  ATTNSCOPE_D void wait_for_values() {
    if (p.heads > 0) {
      wgmma_wait<0>();
      pin_registers(o);
    } else {
      asm volatile("wgmma.wait_group.sync.aligned 0; // never" ::: "memory");
      pin_registers(o);
    }
  }

  // The first product of the block's first tile; nothing runs beside it.
  ATTNSCOPE_D void first_step(const Tile<C>& tile) {
    barrier_wait(shared.q_full[0][warpgroup], 0);
    barrier_wait(shared.k_full[0], 0);
    if (C::kOrder == Order::kProducts) take_turn();
    wgmma_fence();
    issue_scores(0, 0);
    if (C::kOrder == Order::kProducts) pass_turn();
    wgmma_wait<0>();
    pin_registers(s);
    arrive_per_warp(shared.k_empty[0]);
    if (tile.steps == 1) arrive_per_warp(shared.q_empty[0][warpgroup]);
    mask(tile, tile.steps - 1);
    softmax();
    pack_weights();
    n = 1;
  }

  // S_n, with the product of step n − 1 in flight under its softmax. `accumulate`: that product adds to O.
  // `between` runs when O is final up to step n − 1. kHead: this is a tile's first step, so that O still
  // belongs to the tile before.
  template <bool kHead, class Between>
  ATTNSCOPE_D void step(const Tile<C>& tile, int j, int turn, int accumulate, Between between) {
    const Slot<C::kKvStages> k_slot(n), v_slot(n - 1);
    const int q_stage = turn % C::kQStages;
    barrier_wait(shared.k_full[k_slot.stage], k_slot.parity);
    if (C::kOrder == Order::kProducts) take_turn();
    wgmma_fence();
    issue_scores(q_stage, k_slot.stage);
    barrier_wait(shared.v_full[v_slot.stage], v_slot.parity);
    wgmma_fence();
    issue_values(v_slot.stage, accumulate);
    if (C::kOrder == Order::kProducts) pass_turn();
    wgmma_wait<1>();
    pin_registers(s);
    arrive_per_warp(shared.k_empty[k_slot.stage]);
    if (j == 0) arrive_per_warp(shared.q_empty[q_stage][warpgroup]);
    mask(tile, j);
    if constexpr (C::kRowByRow) {
      softmax_around_values<kHead>(shared.v_empty[v_slot.stage]);
      between();
    } else {
      const bool moved = softmax();
      wait_for_values();
      if (moved && !kHead) rescale_output();
      arrive_per_warp(shared.v_empty[v_slot.stage]);
      between();
      pack_weights();
    }
    ++n;
  }

  ATTNSCOPE_D void last_values(int accumulate) {
    const Slot<C::kKvStages> slot(n - 1);
    barrier_wait(shared.v_full[slot.stage], slot.parity);
    wgmma_fence();
    issue_values(slot.stage, accumulate);
    wgmma_wait<0>();
    pin_registers(o);
    arrive_per_warp(shared.v_empty[slot.stage]);
  }

  // O / sum to global memory, and the LSE. Each warp stores its own 16 rows.
  ATTNSCOPE_D void epilogue(int turn, const RowState& r) {
    asm volatile("" : "+r"(turn));  // computed again rather than kept in registers since the tile's start
    const Tile<C> tile(p, turn);
    const int t = thread_again();
    const int row_in_warpgroup = accumulator_row(t, 0);
    const int first = tile.row_block * C::kRows + 64 * warpgroup;
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = quad_sum(r.sum[half]);
      inverse[half] = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
      const int at = first + row_in_warpgroup + 8 * half;
      if (p.lse != nullptr && t % 4 == 0 && at < p.rows)
        p.lse[tile.batch * p.lse_strides[0] + tile.head * p.lse_strides[1] + at * p.lse_strides[2]] =
            sum == 0.0f ? -infinity() : r.maximum[half] * p.log2_per_score * kLn2 + log2_unit(sum) * kLn2;
    }
    if constexpr (C::kStore == Store::kStaged)
      store_staged(tile, first, inverse);
    else if constexpr (C::kStore == Store::kDirect)
      store_direct(tile, first, inverse);
    else
      store_elements(tile, first, inverse);
  }

  ATTNSCOPE_D u32 output_pair(int i, const float (&inverse)[2]) const {
    const float scale = inverse[(i / 2) % 2];
    return pack16<C::kType>(o[i] * scale, o[i + 1] * scale);
  }

  // For an O that neither TMA nor 16-byte stores can write.
  ATTNSCOPE_D void store_elements(const Tile<C>& tile, int first, const float (&inverse)[2]) {
    const int t = thread_again();
    u16* base = p.out + tile.batch * p.out_strides[0] + tile.head * p.out_strides[1];
#pragma unroll
    for (int i = 0; i < C::kEv / 2; i += 2) {
      const int at = first + accumulator_row(t, i), column = accumulator_column(t, i);
      const u32 pair = output_pair(i, inverse);
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (at < p.rows && column + c < p.out_columns)
          base[at * p.out_strides[2] + (column + c) * p.out_strides[3]] = u16(pair >> (16 * c));
    }
  }

  ATTNSCOPE_D void store_staged(const Tile<C>& tile, int first, const float (&inverse)[2]) {
    const int t = thread_again(), warp = t / 32;
    u8* stage = shared.o + (64 * warpgroup + 16 * warp) * kPanelRowBytes;  // this warp's rows of panel 0
    if ((t % 32) == 0) tma_store_wait_read();  // its previous tile has left the stage
    __syncwarp();
    const u32 to = shared_address(stage);
#pragma unroll
    for (int c = 0; c < C::kEv / 16; ++c) {
      const int row_at = stmatrix_row((t % 32));
      const int chunk = (16 * c + stmatrix_column((t % 32))) % kPanelColumns / 8;
      const u32 at = to + (16 * c / kPanelColumns) * panel_bytes(C::kRows) + row_at * kPanelRowBytes +
                     ((chunk ^ (row_at % 8)) * 16);
      stmatrix_x4(at, output_pair(8 * c, inverse), output_pair(8 * c + 2, inverse),
                  output_pair(8 * c + 4, inverse), output_pair(8 * c + 6, inverse));
    }
    fence_to_async_proxy();
    __syncwarp();
    if ((t % 32) != 0) return;
#pragma unroll
    for (int panel = 0; panel < panels(C::kEv); ++panel)
      tma_store(p.o, stage + panel * panel_bytes(C::kRows), panel * kPanelColumns, first + 16 * warp,
                tile.head, tile.batch);
    tma_store_commit();
  }

  // Four lanes that share a row trade words, so that each holds 8 neighbouring columns, and store 16 bytes.
  ATTNSCOPE_D void store_direct(const Tile<C>& tile, int first, const float (&inverse)[2]) {
    const int thread_now = thread_again(), t = thread_now % 4;
    const int row_in_tile = first + accumulator_row(thread_now, 0);
    u16* base =
        p.out + tile.batch * p.out_strides[0] + tile.head * p.out_strides[1] + row_in_tile * p.out_strides[2];
#pragma unroll
    for (int c = 0; c < C::kEv / 32; ++c)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 w[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) w[b] = output_pair(16 * c + 4 * b + 2 * half, inverse);
        quad_transpose(w);
        const int column = 32 * c + 8 * t;
        if (row_in_tile + 8 * half < p.rows && column < p.out_columns)
          *reinterpret_cast<uint4*>(base + 8 * half * p.out_strides[2] + column) =
              make_uint4(w[0], w[1], w[2], w[3]);
      }
  }
};

template <class C>
ATTNSCOPE_D void consume(const Params& p, SharedStorage<C>& shared, int warpgroup) {
  Consumer<C> me(p, shared, warpgroup);
  Tile<C> tile(p, 0);
  if (!tile.valid) return;
  me.start_turns();
  me.first_step(tile);
  int accumulate = 0, turn = 0;
  for (;;) {
    for (int j = tile.steps - 2; j >= 0; --j) {
      me.template step<false>(tile, j, turn, accumulate, [] {});
      accumulate = 1;
    }
    const Tile<C> next(p, ++turn);
    if (!next.valid) break;
    const RowState finished = me.row;
    me.row = RowState();
    const Slot<C::kQStages> q_slot(turn);
    barrier_wait(shared.q_full[q_slot.stage][warpgroup], q_slot.parity);
    me.template step<true>(next, next.steps - 1, turn, accumulate, [&] { me.epilogue(turn - 1, finished); });
    tile = next;
    accumulate = 0;
  }
  me.last_values(accumulate);
  me.epilogue(turn - 1, me.row);
  me.finish_turns();
  if (C::kStore == Store::kStaged && me.lane() == 0) tma_store_wait_done();
}

// ---- The kernel ---------------------------------------------------------------------------------
template <class C>
ATTNSCOPE_D void flash_forward(const Params& p, void* dynamic_shared) {
  SharedStorage<C>& shared = *static_cast<SharedStorage<C>*>(dynamic_shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kQStages; ++i)
      for (int w = 0; w < C::kConsumers; ++w)
        barrier_init(shared.q_full[i][w], 1), barrier_init(shared.q_empty[i][w], 4);
    for (int i = 0; i < C::kKvStages; ++i) {
      barrier_init(shared.k_full[i], 1), barrier_init(shared.k_empty[i], 4 * C::kConsumers);
      barrier_init(shared.v_full[i], 1), barrier_init(shared.v_empty[i], 4 * C::kConsumers);
    }
    barrier_init_fence();
  }
  __syncthreads();
  // From one lane, the compiler sees that it is the same in all: Q's descriptors then stay in uniform
  // registers.
  const int warpgroup = C::kRowByRow ? __shfl_sync(0xFFFFFFFFu, int(threadIdx.x) / kWarpgroup, 0)
                                     : int(threadIdx.x) / kWarpgroup;
  if (warpgroup == 0) {
    keep_registers<C::kProducerRegisters>();
    if (threadIdx.x == 0) produce(p, shared);
  } else {
    take_registers<C::kConsumerRegisters>();
    consume(p, shared, warpgroup - 1);
  }
}

}  // namespace attnscope::flash_sm90
