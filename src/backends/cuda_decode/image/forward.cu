// One configuration, chosen by macros, as one image with two entries: decode_forward, and
// decode_forward_simple for what is_simple() (params.h) takes; an instance compiled at first use has only the
// first.
#include "backends/cuda_decode/kernel.cuh"

namespace attnscope::decode {
using Chosen = Config<Type16::ATTNSCOPE_TYPE, ATTNSCOPE_E, ATTNSCOPE_EV, ATTNSCOPE_ROW_WARPS, ATTNSCOPE_TEAMS,
                      ATTNSCOPE_UNITS, ATTNSCOPE_STAGES, ATTNSCOPE_BLOCKS_PER_SM>;
}  // namespace attnscope::decode

extern "C" __device__ const int decode_shared_bytes =
    sizeof(attnscope::decode::SharedStorage<attnscope::decode::Chosen>);

extern "C" __global__ void __launch_bounds__(attnscope::decode::Chosen::kThreads,
                                             attnscope::decode::Chosen::kBlocksPerSm)
    decode_forward(const __grid_constant__ attnscope::decode::Params p) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  attnscope::decode::decode_forward<attnscope::decode::Chosen>(p, dynamic_shared);
}
#ifndef __CUDACC_RTC__
extern "C" __global__ void __launch_bounds__(attnscope::decode::Chosen::kThreads,
                                             attnscope::decode::Chosen::kBlocksPerSm)
    decode_forward_simple(const __grid_constant__ attnscope::decode::Params p) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  attnscope::decode::decode_forward_simple<attnscope::decode::Chosen::SimpleToo>(p, dynamic_shared);
}
#endif
