#pragma once
// Attention in f32 at f32 accuracy for Hopper (sm_90a): what f32_kernel.cuh computes, with products of bf16
// pieces (f32_pieces.cuh) by whole warpgroups.
//
//   producer warpgroup    finds the next tile of keys that some row sees, reads its K and V as f32, cuts them
//                         into pieces, writes those to shared memory; says who sees what of the tile
//   consumer warpgroups   64 rows each, Q cut once into shared memory. A tile: S = Q·Kᵀ, softmax, P cut in
//                         registers, T = P·V from zero, O = α·O + T by FMA, since the unit adds by truncation
//
// Operands too large for sums of their products, not finite, or too small for pieces show in the largest
// magnitude of a tile, which the producer passes on; such tiles are computed by FMA from global memory.
// Measurements: docs/kernels/efficient_f32.md.

#include "backends/cuda_efficient/f32_sm90_consumer.cuh"
#include "backends/cuda_efficient/f32_sm90_producer.cuh"

namespace attnscope::efficient_f32 {

template <class C>
ATTNSCOPE_D void hopper_attention(const Params& p, HopperStorage<C>& shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::kStages; ++i) {
      tile::barrier_init(shared.k_full[i], 4), tile::barrier_init(shared.k_empty[i], 4 * C::kConsumers);
      tile::barrier_init(shared.v_full[i], 4), tile::barrier_init(shared.v_empty[i], 4 * C::kConsumers);
    }
    tile::barrier_init_fence();
  }
  __syncthreads();
  const Place place = mma::place_of(p, int(blockIdx.x));
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, int(threadIdx.x) / kWarpgroup, 0);
  if (warpgroup == 0) {
    tile::keep_registers<C::kProducerRegisters>();
    produce<C>(p, shared, place);
  } else {
    tile::take_registers<C::kConsumerRegisters>();
    HopperConsumer<C> me(p, shared, place, warpgroup - 1);
    me.run();
    me.write();
  }
}

}  // namespace attnscope::efficient_f32
