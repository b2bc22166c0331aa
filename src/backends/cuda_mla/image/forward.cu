// One configuration, chosen by macros, as one image with one entry: mla_forward.
#include "backends/cuda_mla/kernel.cuh"

namespace attnscope::mla {
using Chosen = Config<Type16::ATTNSCOPE_TYPE, ATTNSCOPE_ALIAS>;
}  // namespace attnscope::mla

extern "C" __device__ const int mla_shared_bytes =
    sizeof(attnscope::mla::SharedStorage<attnscope::mla::Chosen>);

extern "C" __global__ void __launch_bounds__(attnscope::mla::Chosen::kThreads, 1)
    mla_forward(const __grid_constant__ attnscope::mla::Params p) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  attnscope::mla::mla_forward<attnscope::mla::Chosen>(p, dynamic_shared);
}
