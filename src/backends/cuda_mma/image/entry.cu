// One configuration, chosen by macros, as one image with one entry: attention_forward.
#include "backends/cuda_mma/kernel.cuh"

#ifndef ATTNSCOPE_TYPE
#define ATTNSCOPE_TYPE kBf16
#endif
#ifndef ATTNSCOPE_EV
#define ATTNSCOPE_EV ATTNSCOPE_E
#endif
#ifndef ATTNSCOPE_BLOCKS
#define ATTNSCOPE_BLOCKS 2
#endif
#ifndef ATTNSCOPE_STAGES
#define ATTNSCOPE_STAGES 1
#endif
#ifndef ATTNSCOPE_FEATURES
#define ATTNSCOPE_FEATURES 0
#endif

namespace attnscope::mma {
using Chosen = Config<tile::Type16::ATTNSCOPE_TYPE, ATTNSCOPE_E, ATTNSCOPE_EV, ATTNSCOPE_MTILES,
                      ATTNSCOPE_WARPS, ATTNSCOPE_KEYS, ATTNSCOPE_STAGES, ATTNSCOPE_FEATURES>;
static_assert(sizeof(SharedStorage<Chosen>) <= 99 * 1024 || ATTNSCOPE_STAGES == 2,
              "shared memory that sm_86, sm_89 and sm_120 have");
}  // namespace attnscope::mma

extern "C" __device__ const int attention_shared_bytes =
    sizeof(attnscope::mma::SharedStorage<attnscope::mma::Chosen>);

extern "C" __global__ void __launch_bounds__(attnscope::mma::Chosen::kThreads, ATTNSCOPE_BLOCKS)
    attention_forward(const __grid_constant__ attnscope::mma::Params p) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  attnscope::mma::attention_forward<attnscope::mma::Chosen>(p, dynamic_shared);
}
