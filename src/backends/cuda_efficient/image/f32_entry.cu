// One configuration of the f32 kernel, chosen by macros, as one image with one entry: attention_forward.
#include "backends/cuda_efficient/f32_kernel.cuh"

#ifndef ATTNSCOPE_BLOCKS
#define ATTNSCOPE_BLOCKS 1
#endif

namespace attnscope::efficient_f32 {
using Chosen =
    Config<ATTNSCOPE_E, ATTNSCOPE_M_TILES, ATTNSCOPE_KEYS, ATTNSCOPE_WARPS, ATTNSCOPE_FEATURED != 0>;
}  // namespace attnscope::efficient_f32

extern "C" __device__ const int attention_shared_bytes =
    sizeof(attnscope::efficient_f32::SharedStorage<attnscope::efficient_f32::Chosen>);

extern "C" __device__ const int attention_params_bytes =
    sizeof(attnscope::mma::Params);  // for launchers in other languages

extern "C" __global__ void __launch_bounds__(attnscope::efficient_f32::Chosen::kThreads, ATTNSCOPE_BLOCKS)
    attention_forward(const __grid_constant__ attnscope::mma::Params p) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  attnscope::efficient_f32::attention<attnscope::efficient_f32::Chosen>(
      p, *reinterpret_cast<attnscope::efficient_f32::SharedStorage<attnscope::efficient_f32::Chosen>*>(
             dynamic_shared));
}
