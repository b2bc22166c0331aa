#pragma once
// O = softmax(scale · Q·Kᵀ, masked) · V for few query rows and many keys: bound by reading K and V once.
//
// Shapes: Q [batch, heads, L, E] · K [batch, heads / k_group, S, E] · V [batch, heads / v_group, S, Ev] (or
// pages) · O [batch, heads, L, Ev]. The query rows that share K and V are packed into tiles of kRows rows
// (schedule.h).
//
//   team = kRowWarps warps (one per 16 query rows) that read the same keys; kTeams teams in a block take
//   turns with chunks of kChunk keys, each with its own ring of stages and its own softmax: nothing in the
//   main loop waits for another team. A team loads what it uses:
//
//     stage s of a team:  K chunk │ V chunk, as units of 16 keys (maps.h: panels of 64 columns, swizzled)
//     step:  wait K_s · S = Q·K_sᵀ · weights · wait V_s · refill K_s · O += P·V_s · (next step) refill V_s
//
//   in flight per multiprocessor: all stages but the half stage in use, ~190 KB; 35 KB per multiprocessor
//   would cover the latency of device memory at 4.3 TB/s, the rest covers that all teams wait for the same
//   memory.
//
// At the end of a run the teams' states are merged in shared memory; pieces of one row tile are then joined
// through the cluster or by the second kernel (combine.cuh). Measurements: docs/kernels/decode.md.

#include "backends/cuda_decode/output.cuh"
#include "backends/cuda_decode/runs.cuh"
#include "backends/cuda_decode/selected.cuh"

namespace attnscope::decode {

// Weights up to 2^8 relative to the reference maximum are as exact as weights up to 1: the reference moves
// only when a score exceeds it by more, and then O is rescaled.
inline constexpr float kKeepReference = 8.0f;  // in log2 units

// Simple: of the requests, only those that is_simple() (params.h) takes; the kernel has less code, which
// matters more than what the code does, as a kernel of a few microseconds waits for its own instructions.
template <Type16 kT, int E, int Ev, int RowWarps, int Teams, int Units, int Stages, int BlocksPerSm,
          bool Simple = false>
struct Config {
  using SimpleToo = Config<kT, E, Ev, RowWarps, Teams, Units, Stages, BlocksPerSm, true>;
  static constexpr bool kSimple = Simple;
  static constexpr Type16 kType = kT;
  static constexpr int kE = E, kEv = Ev;
  static constexpr int kRowWarps = RowWarps;
  static constexpr int kRows = 16 * RowWarps;
  static constexpr int kTeams = Teams;
  static constexpr int kUnits = Units;                    // of 16 keys, per chunk
  static constexpr int kChunk = 16 * Units;               // keys per step of a team
  static constexpr int kTile = kChunk * Teams;            // keys per step of the block
  static constexpr int kUnitsPerWarp = Units / RowWarps;  // that one warp loads
  static constexpr int kStages = Stages;
  static constexpr int kTeamThreads = 32 * RowWarps;
  static constexpr int kThreads = kTeamThreads * Teams;
  static constexpr int kBlocksPerSm = BlocksPerSm;
  static constexpr bool kQInRegisters = E <= 128 && Units <= 2;  // else read anew at every step

  static constexpr int kKBytes = tile_bytes(16, E);  // of a unit
  static constexpr int kVBytes = tile_bytes(16, Ev);
  static constexpr int kStageBytes = Units * (kKBytes + kVBytes);
  static constexpr int kSumColumns = Ev + 8;  // floats; 8 spread the rows over the banks

  static_assert(E % 16 == 0 && Ev % 16 == 0 && E <= 256 && Ev <= 256, "mma contracts 16, registers hold 256");
  static_assert(Units % RowWarps == 0, "every warp of a team loads as many units");
  static_assert(Units <= 4, "the mask of a step is 32 bits a thread");
  static_assert(Stages >= 2);
};

// Sums and states of one team, and of the block: they take the place of the stages when a run has ended.
template <class C>
struct Merge {
  float sums[C::kTeams][C::kRows][C::kSumColumns];
  float total[C::kRows][C::kSumColumns];
};
template <class C>
struct alignas(1024) SharedStorage {
  union {
    u8 stages[C::kTeams][C::kStages][C::kStageBytes];
    Merge<C> merge;
  };
  u8 q[C::kRowWarps][tile_bytes(16, C::kE)];
  float2 state[C::kTeams][C::kRows];  // maximum, sum of each team's rows
  float2 total_state[C::kRows];
  PlaceStorage place;
};

template <class C>
struct Block {
  const Params& p;
  SharedStorage<C>& shared;
  const int lane, row_warp, team;
  const u64 policy;  // of K and V in L2
  Piece piece;
  // Addresses of the piece's first key and value (not paged), of the lane's parts in a unit.
  const u16 *k_base, *v_base;
  int key_begin, key_end;  // that any row sees: others are never read

  float s[C::kUnits][2][4];
  u32 weights[C::kUnits][4];
  u32 kept;  // bit 8·unit + 4·half + i: score i of that mma tile is not masked
  float o[C::kEv / 8][4];
  float maximum[2], sum[2];  // reference and this thread's part of the sum, for rows lane / 4 and + 8
  u32 q[C::kQInRegisters ? C::kE / 16 : 1][4];
  Interval mine[2];  // keys that this thread's two rows see
  Interval all;      // keys that every row sees
  // Pages of this warp's units in the next V to load, the next K, and the K after that.
  int page_v[C::kUnitsPerWarp], page_k[C::kUnitsPerWarp], page_next[C::kUnitsPerWarp];

  ATTNSCOPE_D Block(const Params& params, SharedStorage<C>& storage)
      : p(params),
        shared(storage),
        lane(int(threadIdx.x % 32u)),  // unsigned: divisions of what is not negative are shifts
        row_warp(int(threadIdx.x / 32u % unsigned(C::kRowWarps))),
        team(int(threadIdx.x / unsigned(C::kTeamThreads))),
        policy(read_once_policy(params.spare_l2)) {}

  ATTNSCOPE_D void sync_team() {
    if constexpr (C::kRowWarps == 1)
      __syncwarp();
    else if constexpr (C::kTeams == 1)
      __syncthreads();
    else
      sync_some(1 + team, C::kTeamThreads);
  }

  // ---- Loading ----
  // First key
  // of the team's chunk in its step n; of the unit that this warp loads.
  ATTNSCOPE_D int chunk_begin(int n) const { return (piece.first + n) * C::kTile + team * C::kChunk; }
  ATTNSCOPE_D int unit_begin(int n, int u) const {
    return chunk_begin(n) + 16 * (row_warp + u * C::kRowWarps);
  }

  ATTNSCOPE_D int page_at(int key) const {
    return read_only(p.table + piece.batch * p.table_strides[0] + (key / p.page_size) * p.table_strides[1]);
  }
  // The page of a unit, when the whole unit lies on one; read a step ahead of its use.
  template <bool kPlain>
  ATTNSCOPE_D int page_of_unit(int n, int u) const {
    const int key = unit_begin(n, u);
    if (p.page_size == 0 || key >= key_end || key + 16 <= key_begin) return 0;
    if constexpr (kPlain)
      return read_only(p.table + piece.batch * p.table_strides[0] +
                       (key >> p.page_shift) * p.table_strides[1]);
    else
      return p.page_size % 16 == 0 ? page_at(key) : 0;
  }

  // 16 rows of a unit, from column kFirst on, as many columns at a time as make whole rows of up to 512
  // bytes: device memory is read in pieces as long as can be. Keys that nobody sees and columns that the
  // request does not have become zeros. kPlain: see is_plain().
  template <bool kPlain, int kColumns, int kFirst = 0>
  ATTNSCOPE_D void load_columns(u32 to, const u16* unit, const u16* base, const i64* strides, int columns,
                                int key) {
    if constexpr (kFirst < kColumns) {
      constexpr int kWidth = kColumns - kFirst >= 256 ? 256 : kColumns - kFirst >= 128 ? 128 : 64;
      constexpr int kLanes = kWidth / 8, kRowsAtOnce = 32 / kLanes;
      const int row = lane / kLanes, column = kFirst + 8 * (lane % kLanes);
      const u32 start = to + swizzled_offset(16, row, column);
      const u16* from = unit + row * strides[2] + column;
      // Further down, the chunk's place changes by the row's low bits: an exclusive or, as `row` has none of
      // them.
      const auto place = [&](int i) {
        const int down = i * kRowsAtOnce;
        return (start ^ u32(down % 8 * 16)) + down * kPanelRowBytes;
      };
      if (kPlain && key >= key_begin && key + 16 <= key_end) {
#pragma unroll
        for (int i = 0; i < 16 / kRowsAtOnce; ++i, from += kRowsAtOnce * strides[2])
          copy_once_16(place(i), from, kFirst + kWidth <= kColumns || column < kColumns ? 16 : 0, policy);
      } else {
        const bool whole_page = p.page_size % 16 == 0;  // … or none
#pragma unroll 1
        for (int i = 0; i < 16 / kRowsAtOnce; ++i, from += kRowsAtOnce * strides[2]) {
          const int at = key + row + i * kRowsAtOnce;
          const bool there = at >= key_begin && at < key_end && column < columns;
          const u16* source = from;
          if (!kPlain && !whole_page && there)
            source = base + page_at(at) * strides[0] + (at % p.page_size) * strides[2] + column;
          copy_once_16(place(i), there ? source : base, there ? 16 : 0, policy);
        }
      }
      load_columns<kPlain, kColumns, kFirst + kWidth>(to, unit, base, strides, columns, key);
    }
  }
  template <bool kPlain, int kColumns>
  ATTNSCOPE_D void load_unit(u32 to, const u16* base, const i64* strides, int columns, int key, int page) {
    const u16* unit = base;
    if (p.page_size == 0)
      unit += key * strides[2];
    else if (kPlain)
      unit += page * strides[0] + (key & (p.page_size - 1)) * strides[2];
    else if (p.page_size % 16 == 0)
      unit += page * strides[0] + (key % p.page_size) * strides[2];
    load_columns<kPlain, kColumns>(to, unit, base, strides, columns, key);
  }
  // Stages by their place in the ring: step n uses place n mod kStages, and so does its successor n +
  // kStages.
  ATTNSCOPE_D u32 k_address(int place, int unit) const {
    return shared_address_of(shared.stages[team][0]) + place * C::kStageBytes + unit * C::kKBytes;
  }
  ATTNSCOPE_D u32 v_address(int place, int unit) const {
    return k_address(place, C::kUnits) + unit * C::kVBytes;
  }
  // Steps past the run's end load nothing; the group is committed all the same, so that counting stays
  // simple.
  template <bool kPlain>
  ATTNSCOPE_D void load_k(int n, int place, const int (&page)[C::kUnitsPerWarp]) {
    if (n < piece.last - piece.first)
#pragma unroll
      for (int u = 0; u < C::kUnitsPerWarp; ++u)
        load_unit<kPlain, C::kE>(k_address(place, row_warp + u * C::kRowWarps), k_base, p.k_strides, p.e,
                                 unit_begin(n, u), page[u]);
  }
  template <bool kPlain>
  ATTNSCOPE_D void load_v(int n, int place, const int (&page)[C::kUnitsPerWarp]) {
    if (n >= 0 && n < piece.last - piece.first)
#pragma unroll
      for (int u = 0; u < C::kUnitsPerWarp; ++u)
        load_unit<kPlain, C::kEv>(v_address(place, row_warp + u * C::kRowWarps), v_base, p.v_strides, p.ev,
                                  unit_begin(n, u), page[u]);
  }
  template <bool kPlain>
  ATTNSCOPE_D void pages_of_step(int n, int (&page)[C::kUnitsPerWarp]) const {
#pragma unroll
    for (int u = 0; u < C::kUnitsPerWarp; ++u) page[u] = page_of_unit<kPlain>(n, u);
  }
  template <bool kPlain>
  ATTNSCOPE_D void next_pages(int n) {
#pragma unroll
    for (int u = 0; u < C::kUnitsPerWarp; ++u) page_v[u] = page_k[u], page_k[u] = page_next[u];
    pages_of_step<kPlain>(n + C::kStages + 2, page_next);
  }

  // Rows of the row tile from global memory, any strides; rows and columns that do not exist become zeros.
  ATTNSCOPE_D void load_q() {
    constexpr int kChunks = C::kE / 8;
    const int first_row = piece.row_tile * C::kRows;
    for (int at = int(threadIdx.x); at < C::kRows * kChunks; at += C::kThreads) {
      const int r = at / kChunks, chunk = at % kChunks;
      u32 words[4] = {};
      if (first_row + r < p.problem.rows() && 8 * chunk < p.e) {
        const Row row = row_of(p.problem, piece.pack, first_row + r);
        const u16* from = p.q + piece.batch * p.q_strides[0] + row.head * p.q_strides[1] +
                          row.i * p.q_strides[2] + 8 * chunk * p.q_strides[3];
#pragma unroll
        for (int c = 0; c < 8; ++c) words[c / 2] |= u32(from[c * p.q_strides[3]]) << (16 * (c % 2));
      }
      store_shared(shared_address_of(shared.q[r / 16]) + swizzled_offset(16, r % 16, 8 * chunk), words);
    }
  }
  ATTNSCOPE_D void read_q(u32 (&words)[4], int c16) {
    ldmatrix(words, shared_address_of(shared.q[row_warp]) + block_offset(16, ldmatrix_a(lane), 0, c16));
  }

  // ---- One step ----
  // Contracted columns in batches, so that several ldmatrix and several chains of products are under way.
  ATTNSCOPE_D void scores(int place) {
    constexpr int kBatch = 4 / C::kUnits < C::kE / 16 ? 4 / C::kUnits : C::kE / 16;
    constexpr int kChains = C::kUnits == 1 ? 2 : 1;
    float part[kChains][C::kUnits][2][4] = {};
#pragma unroll
    for (int first = 0; first < C::kE / 16; first += kBatch) {
      u32 b[kBatch][C::kUnits][4];
#pragma unroll
      for (int c = 0; c < kBatch && first + c < C::kE / 16; ++c)
#pragma unroll
        for (int u = 0; u < C::kUnits; ++u)
          ldmatrix(b[c][u], k_address(place, u) + block_offset(16, ldmatrix_b(lane), 0, first + c));
#pragma unroll
      for (int c = 0; c < kBatch && first + c < C::kE / 16; ++c) {
        if constexpr (!C::kQInRegisters) read_q(q[0], first + c);
        const u32(&a)[4] = q[C::kQInRegisters ? first + c : 0];
#pragma unroll
        for (int u = 0; u < C::kUnits; ++u)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            mma_16816<C::kType>(part[c % kChains][u][half], a, b[c][u][2 * half], b[c][u][2 * half + 1]);
      }
    }
#pragma unroll
    for (int u = 0; u < C::kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        s[u][i / 4][i % 4] = part[0][u][i / 4][i % 4];
        if (kChains > 1) s[u][i / 4][i % 4] += part[kChains - 1][u][i / 4][i % 4];
      }
  }

  // Scores to exponents in base 2: scaled, capped.
  template <bool kPlain>
  ATTNSCOPE_D void scale_scores() {
#pragma unroll
    for (int u = 0; u < C::kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& x = s[u][i / 4][i % 4];
        if (kPlain || p.softcap_out == 0.0f)
          x *= p.log2_scale;
        else  // tanh(y) = 1 − 2 / (e^2y + 1); absolute error 2^-23, which is what a score needs
          x = p.softcap_out * (1.0f - __fdividef(2.0f, exp2_unit(p.softcap_in * x) + 1.0f));
      }
  }

  ATTNSCOPE_D void add_alibi(int n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = piece.row_tile * C::kRows + 16 * row_warp + mma_row(lane, 2 * half);
      const Row row = row_of(p.problem, piece.pack, min(r, p.problem.rows() - 1));
      const float slope = kLog2E * p.alibi[piece.batch * p.alibi_strides[0] + row.head * p.alibi_strides[1]];
      const int distance = chunk_begin(n) - diagonal_of(p.problem, piece.keys, row.i);
#pragma unroll
      for (int u = 0; u < C::kUnits; ++u)
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (i % 4 / 2 == half)
            s[u][i / 4][i % 4] -=
                slope * fabsf(float(distance + 16 * u + 8 * (i / 4) + mma_column(lane, i % 4)));
    }
  }

  // −∞ where a row does not see a key. True when rows of the tile see different keys of this chunk.
  ATTNSCOPE_D bool mask(int n) {
    const int first = chunk_begin(n);
    if (first >= all.begin && first + C::kChunk <= all.end) return false;
    kept = 0;
#pragma unroll
    for (int u = 0; u < C::kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int key = first + 16 * u + 8 * (i / 4) + mma_column(lane, i % 4);
        const Interval& row = mine[i % 4 / 2];
        if (key >= row.begin && key < row.end)
          kept |= 1u << (8 * u + i);
        else
          s[u][i / 4][i % 4] = -infinity();
      }
    return !C::kSimple && p.problem.length > 1;
  }

  // s becomes weights 2^(s − reference), packed as the operand of the next product.
  ATTNSCOPE_D void softmax() {
    float top[2] = {-infinity(), -infinity()};
#pragma unroll
    for (int u = 0; u < C::kUnits; ++u)
#pragma unroll
      for (int i = 0; i < 8; ++i) top[i % 4 / 2] = fmaxf(top[i % 4 / 2], s[u][i / 4][i % 4]);
    const bool moves = top[0] > maximum[0] + kKeepReference || top[1] > maximum[1] + kKeepReference;
    if (__any_sync(0xFFFFFFFFu, moves)) move_reference(top);
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) base[half] = maximum[half] == -infinity() ? 0.0f : maximum[half];
#pragma unroll
    for (int u = 0; u < C::kUnits; ++u) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& x = s[u][i / 4][i % 4];
        x = exp2_unit(x - base[i % 4 / 2]);
        sum[i % 4 / 2] += x;
      }
#pragma unroll
      for (int w = 0; w < 4; ++w)
        weights[u][w] =
            pack16<C::kType>(s[u][mma_a_tile(w)][mma_a_first(w)], s[u][mma_a_tile(w)][mma_a_first(w) + 1]);
    }
  }
  ATTNSCOPE_D void move_reference(const float (&top)[2]) {
    float rescale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float now = fmaxf(maximum[half], quad_max(top[half]));
      rescale[half] = now == -infinity() ? 1.0f : exp2_unit(maximum[half] - now);
      maximum[half] = now;
      sum[half] *= rescale[half];
    }
#pragma unroll
    for (int c = 0; c < C::kEv / 8; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) o[c][i] *= rescale[i / 2];
  }

  ATTNSCOPE_D void values(int place, bool rows_differ) {
    constexpr int kBatch = 4;
#pragma unroll
    for (int u = 0; u < C::kUnits; ++u) {
      const u32 unit = v_address(place, u);
      if (rows_differ && holds_non_finite(unit)) {
        values_selected(unit, u);
        continue;
      }
#pragma unroll
      for (int first = 0; first < C::kEv / 16; first += kBatch) {
        u32 b[kBatch][4];
#pragma unroll
        for (int c = 0; c < kBatch && first + c < C::kEv / 16; ++c)
          ldmatrix_transposed(b[c], unit + block_offset(16, ldmatrix_b_transposed(lane), 0, first + c));
#pragma unroll
        for (int c = 0; c < kBatch && first + c < C::kEv / 16; ++c) {
          mma_16816<C::kType>(o[2 * (first + c)], weights[u], b[c][0], b[c][1]);
          mma_16816<C::kType>(o[2 * (first + c) + 1], weights[u], b[c][2], b[c][3]);
        }
      }
    }
  }

  // ---- Masked keys with values that are not finite: 0 · NaN must not reach a row that does not see the key
  ATTNSCOPE_D bool holds_non_finite(u32 unit) {
    constexpr u32 kExponent = exponent_bits(C::kType);
    bool found = false;
#pragma unroll 1
    for (int c16 = 0; c16 < C::kEv / 16; ++c16) {
      u32 b[4];
      ldmatrix_transposed(b, unit + block_offset(16, ldmatrix_b_transposed(lane), 0, c16));
#pragma unroll
      for (int w = 0; w < 4; ++w)
        found |= (b[w] & kExponent) == kExponent || (b[w] >> 16 & kExponent) == kExponent;
    }
    return __any_sync(0xFFFFFFFFu, found);
  }
  // Through a copy of O, so that O stays in registers everywhere else.
  ATTNSCOPE_D void values_selected(u32 unit, int u) {
    Selected<C> selected;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const u32 bits = kept >> (8 * u + 4 * mma_a_tile(w) + mma_a_first(w));
      selected.seen[w] = (bits & 1u ? one_bits(C::kType) : 0u) | (bits & 2u ? one_bits(C::kType) << 16 : 0u);
      selected.weights[w] = weights[u][w];
    }
#pragma unroll
    for (int i = 0; i < C::kEv / 2; ++i) selected.o[i / 4][i % 4] = o[i / 4][i % 4];
    add_selected(selected, unit, lane);
#pragma unroll
    for (int i = 0; i < C::kEv / 2; ++i) o[i / 4][i % 4] = selected.o[i / 4][i % 4];
  }

  // ---- A run ----
  ATTNSCOPE_D Interval seen_by(int i) const {
    if constexpr (C::kSimple) return {0, piece.keys};
    return visible(p.problem, piece.keys, i);
  }

  // kPlain: see is_plain().
  template <bool kPlain>
  ATTNSCOPE_D void start_run(const Piece& run) {
    piece = run;
    const Problem& problem = p.problem;
    const int head = piece.pack * problem.pack;
    const int k_head = C::kSimple ? piece.pack : head / problem.k_group;
    const int v_head = C::kSimple ? piece.pack : head / problem.v_group;
    const bool paged = p.page_size != 0;
    k_base = p.k + (paged ? 0 : piece.batch * p.k_strides[0]) + k_head * p.k_strides[1];
    v_base = p.v + (paged ? 0 : piece.batch * p.v_strides[0]) + v_head * p.v_strides[1];
    const Interval first = seen_by(0), last = seen_by(problem.length - 1);
    key_begin = first.begin, key_end = last.end;
    all = {last.begin, first.end};
    pages_of_step<kPlain>(0, page_k);
    pages_of_step<kPlain>(1, page_next);
  }

  // With the first chunk of K, in its group of copies.
  ATTNSCOPE_D void copy_q() {
    constexpr int kChunks = C::kE / 8;
    const int first_row = piece.row_tile * C::kRows, there = rows_here();
#pragma unroll 1
    for (unsigned at = threadIdx.x; at < unsigned(C::kRows * kChunks); at += C::kThreads) {
      const int r = int(at / unsigned(kChunks)), column = int(8 * (at % unsigned(kChunks)));
      const Row row = row_of(p.problem, piece.pack, first_row + min(r, there - 1));
      const u16* from =
          p.q + piece.batch * p.q_strides[0] + row.head * p.q_strides[1] + row.i * p.q_strides[2];
      const bool real = r < there && column < p.e;
      copy_async_16(shared_address_of(shared.q[r / 16]) + swizzled_offset(16, r % 16, column),
                    from + (real ? column : 0), real ? 16 : 0);
    }
  }

  // What the first step needs beyond K; while K and V are on their way.
  ATTNSCOPE_D void prepare_rows() {
    if (C::kSimple || p.q_vectors)
      copy_async_wait<2 * C::kStages - 2>();
    else
      load_q();
    const Problem& problem = p.problem;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = piece.row_tile * C::kRows + 16 * row_warp + mma_row(lane, 2 * half);
      mine[half] = seen_by(problem.length == 1 ? 0 : r % problem.length);
      maximum[half] = -infinity(), sum[half] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < C::kEv / 2; ++i) o[i / 4][i % 4] = 0.0f;
    __syncthreads();
    if constexpr (C::kQInRegisters)
#pragma unroll
      for (int c16 = 0; c16 < C::kE / 16; ++c16) read_q(q[c16], c16);
  }

  // One loop fills the ring (n < 0) and works through the steps: a kernel that runs for a few microseconds
  // waits for its own instructions, so that each is there once.
  template <bool kPlain>
  ATTNSCOPE_D void steps() {
    constexpr int kPending = 2 * C::kStages - 2;
    const int count = piece.last - piece.first;
    int place = 0, before = C::kStages - 1;  // of this step and of the one before
    bool rows_differ = false;
#pragma unroll 1
    for (int n = -C::kStages; n < count; ++n) {
      if (n >= 0) {
        copy_async_wait<kPending>();
        sync_team();  // K_n is there for all; V_{n−1} has been used by all
      }
      load_v<kPlain>(n + C::kStages - 1, before, page_v);
      copy_async_commit();
      if (n >= 0) {
        scores(place);
        scale_scores<kPlain>();
        if (!kPlain && p.alibi != nullptr) add_alibi(n);
        rows_differ = mask(n);
        softmax();
        copy_async_wait<kPending>();
        sync_team();  // V_n is there; K_n has been used
      }
      load_k<kPlain>(n + C::kStages, place, page_k);
      if (n == -C::kStages && (C::kSimple || p.q_vectors)) copy_q();
      copy_async_commit();
      next_pages<kPlain>(n);
      if (n >= 0)
        values(place, rows_differ);
      else if (n == -1)
        prepare_rows();
      before = place;
      place = place + 1 == C::kStages ? 0 : place + 1;
    }
  }

  // ---- The end of a run ----
  ATTNSCOPE_D int rows_here() const { return min(C::kRows, p.problem.rows() - piece.row_tile * C::kRows); }

  ATTNSCOPE_D void leave_sums() {
    const int rows = rows_here();
    __syncthreads();  // no team reads its stages any more
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * row_warp + mma_row(lane, 2 * half);
      const float all_sum = quad_sum(sum[half]);
      if (row >= rows) continue;
      if (lane % 4 == 0) shared.state[team][row] = make_float2(maximum[half], all_sum);
      float* to = &shared.merge.sums[team][row][mma_column(lane, 0)];
#pragma unroll
      for (int c = 0; c < C::kEv / 8; ++c)
        *reinterpret_cast<float2*>(to + 8 * c) = make_float2(o[c][2 * half], o[c][2 * half + 1]);
    }
    __syncthreads();
  }

  // Calls take(row, column, sums of 4 columns, state) for all that the block has, teams merged.
  template <class Take>
  ATTNSCOPE_D void merge_teams(Take take) {
    constexpr int kGroups = C::kEv / 4;
    for (unsigned at = threadIdx.x; at < unsigned(rows_here() * kGroups); at += C::kThreads) {
      const int row = int(at / unsigned(kGroups)), column = int(4 * (at % unsigned(kGroups)));
      State state{-infinity(), 0.0f};
#pragma unroll 2
      for (int t = 0; t < C::kTeams; ++t) state.maximum = fmaxf(state.maximum, shared.state[t][row].x);
      float total[4] = {};
#pragma unroll 2
      for (int t = 0; t < C::kTeams; ++t) {
        const float w = weight_of(shared.state[t][row].x, state.maximum);
        const float4 v = *reinterpret_cast<const float4*>(&shared.merge.sums[t][row][column]);
        state.sum += w * shared.state[t][row].y;
        total[0] += w * v.x, total[1] += w * v.y, total[2] += w * v.z, total[3] += w * v.w;
      }
      if (column < p.ev) take(row, column, total, state);
    }
  }

  ATTNSCOPE_D void write(int row, int column, const float (&total)[4], State state) {
    const Row at = row_of(p.problem, piece.pack, piece.row_tile * C::kRows + row);
    const float scale = finish_row(p, at.head, state);
    const float v[4] = {total[0] * scale, total[1] * scale, total[2] * scale, total[3] * scale};
    store_output<C::kType>(p, piece.batch, at, column, v);
    if (column == 0 && p.lse != nullptr) store_lse(p, piece.batch, at, state);
  }

  ATTNSCOPE_D void finish_run() {
    leave_sums();
    const i64 first = piece.slot * C::kRows;
    merge_teams([&](int row, int column, const float(&v)[4], State of) {
      if (piece.whole) return write(row, column, v, of);
      const bool to_memory = p.join == Join::kWorkspace;
      float* sums = to_memory ? p.partial + (first + row) * p.ev + column : &shared.merge.total[row][column];
      float* state = to_memory ? p.partial_state + 2 * (first + row) : &shared.total_state[row].x;
      *reinterpret_cast<float4*>(sums) = make_float4(v[0], v[1], v[2], v[3]);
      if (column == 0) *reinterpret_cast<float2*>(state) = make_float2(of.maximum, of.sum);
    });
    if (!piece.whole && p.join == Join::kCluster) join_cluster();
  }

  // The blocks of a cluster share the row tile's output among them. As many neighbouring lanes as there are
  // blocks read four columns, one block's sums each, so that it takes the time of one read.
  ATTNSCOPE_D void join_cluster() {
    constexpr int kGroups = C::kEv / 4;
    const int blocks = p.problem.parts, all_groups = rows_here() * kGroups;
    const int rank = C::kSimple ? int(blockIdx.x) - divided(int(blockIdx.x), p.problem.by_parts) * blocks
                                : int(blockIdx.x) % blocks;
    const int shift = blocks > 4 ? 3 : blocks > 2 ? 2 : 1, from = lane & ((1 << shift) - 1);
    const int at_once = C::kThreads >> shift;
    cluster_sync();
#pragma unroll 1
    for (int first = rank * at_once; first < all_groups; first += blocks * at_once) {
      const int at = first + int(threadIdx.x >> shift);
      const int row = at < all_groups ? int(unsigned(at) / unsigned(kGroups)) : 0;
      const int column = int(4 * (unsigned(at) % unsigned(kGroups)));
      float2 part = make_float2(-infinity(), 0.0f);
      float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (from < blocks && column < p.ev) {
        part = cluster_load2(cluster_address(shared_address_of(&shared.total_state[row]), from));
        v = cluster_load4(cluster_address(shared_address_of(&shared.merge.total[row][column]), from));
      }
      State state{part.x, 0.0f};
#pragma unroll 1
      for (int d = (1 << shift) / 2; d > 0; d /= 2)
        state.maximum = fmaxf(state.maximum, __shfl_xor_sync(0xFFFFFFFFu, state.maximum, d));
      const float w = weight_of(part.x, state.maximum);
      state.sum = w * part.y;
      float total[4] = {w * v.x, w * v.y, w * v.z, w * v.w};
#pragma unroll 1
      for (int d = (1 << shift) / 2; d > 0; d /= 2) {
        state.sum += __shfl_xor_sync(0xFFFFFFFFu, state.sum, d);
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i] += __shfl_xor_sync(0xFFFFFFFFu, total[i], d);
      }
      if (from == 0 && at < all_groups && column < p.ev) write(row, column, total, state);
    }
    cluster_sync();  // nobody leaves while another reads its sums
  }

  template <bool kPlain>
  ATTNSCOPE_D void run(const Piece& run) {
    start_run<kPlain>(run);
    steps<kPlain>();
    finish_run();
  }
};

// ---- The kernel ----
// One call for both ways to share the keys, so that its code is there once.
template <class C, bool kPlain>
ATTNSCOPE_D void run_pieces(Block<C>& block, SharedStorage<C>& shared) {
  const Problem& problem = block.p.problem;
  const bool flat = problem.parts == 0;
  FlatRuns<C::kThreads> runs{problem};
  if (flat) {
    runs.start(shared.place);
    if (runs.at >= runs.end) return;  // fewer key tiles than blocks
  }
  do {
    block.template run<kPlain>(flat ? runs.next() : even_piece(problem));
    __syncthreads();  // the next run's loads overwrite what this one leaves in shared memory
  } while (flat && runs.at < runs.end);
}

template <class C>
ATTNSCOPE_D void decode_forward(const Params& p, void* dynamic_shared) {
  SharedStorage<C>& shared = *static_cast<SharedStorage<C>*>(dynamic_shared);
  wait_for_previous_kernel();
  let_next_kernel_start();
  Block<C> block(p, shared);
  if (is_plain(p, C::kE, C::kEv))
    run_pieces<C, true>(block, shared);
  else
    run_pieces<C, false>(block, shared);
}

// A batch entry's part of the block table, as far as `threads` lines go, while its length is read.
ATTNSCOPE_D void prefetch_table(const Params& p, int batch, int threads) {
  constexpr int kLine = 32;  // entries
  const int entries = p.problem.keys >> p.page_shift;
  if (p.table_strides[1] != 1) return;
#pragma unroll 1
  for (int at = kLine * int(threadIdx.x); at < entries; at += kLine * threads)
    prefetch_to_l2(p.table + batch * p.table_strides[0] + at);
}

// For what is_simple(); C::kSimple.
template <class C>
ATTNSCOPE_D void decode_forward_simple(const Params& p, void* dynamic_shared) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (p.page_size != 0) prefetch_table(p, quick_batch(p.problem), C::kThreads);
  Block<C> block(p, *static_cast<SharedStorage<C>*>(dynamic_shared));
  block.template run<true>(quick_piece<C::kTile>(p.problem));
}

}  // namespace attnscope::decode
