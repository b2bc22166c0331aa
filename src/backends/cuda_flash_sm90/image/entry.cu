// One configuration, chosen by macros, as one image with one entry: flash_forward.
#include "backends/cuda_flash_sm90/kernel.cuh"

#ifndef ATTNSCOPE_TYPE
#define ATTNSCOPE_TYPE kBf16
#endif
#ifndef ATTNSCOPE_EV
#define ATTNSCOPE_EV ATTNSCOPE_E
#endif
#ifndef ATTNSCOPE_CONSUMERS
#define ATTNSCOPE_CONSUMERS 2
#endif
#ifndef ATTNSCOPE_CAUSAL
#define ATTNSCOPE_CAUSAL 0
#endif
#ifndef ATTNSCOPE_ORDER
#define ATTNSCOPE_ORDER kProducts
#endif
#ifndef ATTNSCOPE_STORE
#define ATTNSCOPE_STORE kStaged
#endif
#ifndef ATTNSCOPE_Q_STAGES
#define ATTNSCOPE_Q_STAGES 1
#endif

namespace attnscope::flash_sm90 {
using Chosen =
    Config<Type16::ATTNSCOPE_TYPE, ATTNSCOPE_E, ATTNSCOPE_EV, ATTNSCOPE_COLUMNS, ATTNSCOPE_CONSUMERS,
           ATTNSCOPE_CAUSAL, Order::ATTNSCOPE_ORDER, Store::ATTNSCOPE_STORE, ATTNSCOPE_Q_STAGES>;
}  // namespace attnscope::flash_sm90

extern "C" __device__ const int flash_shared_bytes =
    sizeof(attnscope::flash_sm90::SharedStorage<attnscope::flash_sm90::Chosen>);

extern "C" __global__ void __launch_bounds__(attnscope::flash_sm90::Chosen::kThreads, 1)
    flash_forward(const __grid_constant__ attnscope::flash_sm90::Params p) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  attnscope::flash_sm90::flash_forward<attnscope::flash_sm90::Chosen>(p, dynamic_shared);
}
