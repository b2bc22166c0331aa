#pragma once
// O = softmax(scale · Q·Kᵀ, masked) · V for wide heads that many query heads share: absorbed MLA, E = 576 and
// Ev = 512, where V is K's first 512 columns. For Hopper (sm_90a).
//
// Shapes: Q [batch, heads, L, E] · K [batch, heads / k_group, S, E] · V [batch, heads / v_group, S, Ev] (or
// pages) · O [batch, heads, L, Ev]. Heads that share K and V are packed with their rows into tiles of 64
// rows, and key tiles of 64 keys are shared among the blocks, as in decode (cuda_decode/schedule.h).
//
//   producer warpgroup   one thread issues TMA loads         24 registers a thread
//     K_t ──► sK[2]: nine panels of 64 columns in three parts: the halves of V, and the rest
//   consumer warpgroups  two, for the same 64 rows          240 registers a thread
//     warpgroup w holds columns 256·w … of O (128 registers) and makes the scores of tiles t ≡ w (mod 2):
//       S_t  = Q·K_tᵀ           over the parts of K_t that come first
//       O_w += P_{t−1}·V_{t−1}   weights of the other warpgroup, from shared memory; gives V_{t−1} back
//       S_t += Q·K_tᵀ           over the part that comes last, which the other warpgroup gave back last
//       P_t  = softmax of S_t    to shared memory, for the other warpgroup
//       O_w += P_t·V_t           its own weights, from registers; gives V_t back
//
// So K is loaded once for both products, and the tensor cores have work of one warpgroup while the other is
// at its softmax. All weights are relative to one running reference per row, which travels with P. A V that
// is not K's first columns has a stage of its own, and K one stage instead of two. Bound and measurements:
// docs/kernels/mla.md.

#include "backends/cuda_mla/producer.cuh"
#include "backends/cuda_mla/rows.cuh"

namespace attnscope::mla {

// Weights up to 2^8 relative to the reference are as exact as weights up to 1: it moves only beyond that.
inline constexpr float kKeepReference = 8.0f;  // in log2 units

template <class C>
struct Consumer : RowTile<C> {
  using Base = RowTile<C>;
  using Base::lane, Base::row, Base::packed_row, Base::scale_output, Base::partial, Base::clean, Base::before;
  using Base::p, Base::shared, Base::half, Base::thread, Base::piece, Base::o, Base::reference, Base::sum,
      Base::factor;
  using Scores = Wgmma<C::kKeys, C::kType>;
  using Values = Wgmma<C::kHalf, C::kType>;

  u32 taken = 0;              // parity of weights_full
  float s[C::kKeys / 2];      // scores, then weights, of one tile
  u32 weights[C::kKeys / 4];  // packed P

  ATTNSCOPE_D Consumer(const Params& params, SharedStorage<C>& storage, int w) : Base(params, storage, w) {}

  ATTNSCOPE_D void arrive_per_warp(Barrier& b) {
    if (lane() == 0) barrier_arrive(b);
  }
  ATTNSCOPE_D int stage(int t) const { return stage_of<C>(before + t); }
  ATTNSCOPE_D u32 parity(int t) const { return parity_of<C>(before + t); }

  // ---- Products ----
  // S (+)= Q·K_tᵀ over the columns of a part, asynchronously. kRest comes first.
  template <int kSteps>
  ATTNSCOPE_D void issue_scores(int t, int part) {
    const u64 q = k_major_descriptor(shared_address(shared.q));
    const u64 k = k_major_descriptor(shared_address(shared.k(stage(t))));
    const u32 panel = u32(first_panel(part) * C::kPanelBytes) >> 4;
    barrier_wait(shared.k_full[stage(t)][part], parity(t));
    wgmma_fence();
#pragma unroll
    for (int k16 = 0; k16 < kSteps; ++k16) {
      const u32 at = panel + (k_major_step_bytes(64, k16) >> 4);
      Scores::shared_a(s, q + at, k + at, kSteps > 4 || k16 != 0);
    }
    wgmma_commit();
  }

  ATTNSCOPE_D u64 values_descriptor(int t) {
    return mn_major_descriptor(shared_address(shared.values(before + t) + first_panel(half) * C::kPanelBytes),
                               C::kPanelBytes);
  }
  // The copy engine's writes are seen by who waits for them, so that every warpgroup does.
  ATTNSCOPE_D void wait_for_values(int t) {
    barrier_wait(C::kAlias ? shared.k_full[stage(t)][half] : shared.v_full[half], parity(t));
  }
  // O += P_t·V_t, asynchronously, with P from shared memory …
  ATTNSCOPE_D void issue_shared_values(int t) {
    const u64 a = k_major_descriptor(shared_address(shared.weights)), v = values_descriptor(t);
    wait_for_values(t);
    wgmma_fence();
#pragma unroll
    for (int k16 = 0; k16 < C::kKeys / 16; ++k16)
      shared_values<C::kType>(o, a + (k_major_step_bytes(64, k16) >> 4), v + (mn_major_step_bytes(k16) >> 4));
    wgmma_commit();
  }
  // … and from registers.
  ATTNSCOPE_D void issue_own_values(int t) {
    const u64 v = values_descriptor(t);
    wait_for_values(t);
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
    arrive_per_warp(C::kAlias ? shared.k_empty[stage(t)][half] : shared.v_empty[half]);
  }
  ATTNSCOPE_D void finish_scores(int t) {
    arrive_per_warp(shared.k_empty[stage(t)][kRest]);
    if constexpr (!C::kAlias)
      arrive_per_warp(shared.k_empty[stage(t)][0]), arrive_per_warp(shared.k_empty[stage(t)][1]);
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

  // ---- Steps ----
  // A tile of this warpgroup. kFirst: of the block, so that there is none before it. The other warpgroup's
  // weights come between the parts of the scores: the last part of K_t has come late, if at all, and V_{t−1}
  // is to be given back.
  template <bool kFirst>
  ATTNSCOPE_D void own_tile(int t) {
    // Where K has one stage, the other warpgroup's scores must be made, or the barrier's parity would tell of
    // them.
    if constexpr (!kFirst && !C::kAlias) take_reference();
    issue_scores<4>(t, kRest);
    issue_scores<16>(t, half);
    if constexpr (!kFirst) {
      if constexpr (C::kAlias) take_reference();
      issue_shared_values(t - 1);
      finish_values(t - 1);
    }
    issue_scores<16>(t, 1 - half);
    wgmma_wait<0>();
    pin_registers(s);
    if (partial(t)) clean(t);
    finish_scores(t);
    transform(t);
    const bool moved = softmax();
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

  ATTNSCOPE_D void run(int n) {
    Base::start(n);
    const int count = piece.last - piece.first;
    if (count > 0) {
      if (half == 0) own_tile<true>(0);
#pragma unroll 1
      for (int t = half == 0 ? 2 : 1; t < count; t += 2) own_tile<false>(t);
      if ((count - 1) % 2 != half) others_tile(count - 1);
    }
    Base::finish();
    before += count;
    ++Base::turn;
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
  __syncthreads();
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, int(threadIdx.x) / kWarpgroup, 0);  // the same in all lanes
  if (warpgroup == 0) {
    keep_registers<C::kProducerRegisters>();
    if (threadIdx.x == 0) produce(p, shared);
  } else {
    take_registers<C::kConsumerRegisters>();
    Consumer<C> me(p, shared, warpgroup - 1);
    for (int n = int(blockIdx.x); n < piece_count(p.rest.problem); n += int(gridDim.x)) me.run(n);
  }
}

}  // namespace attnscope::mla
