// One configuration of the f32 kernel for Hopper, chosen by macros, as one image with one entry:
// attention_forward.
#include "backends/cuda_efficient/f32_sm90_kernel.cuh"

namespace attnscope::efficient_f32 {
using Chosen = HopperConfig<ATTNSCOPE_E, ATTNSCOPE_CONSUMERS, ATTNSCOPE_STAGES, ATTNSCOPE_FEATURED != 0,
                            ATTNSCOPE_DROPOUT != 0>;
using Storage = HopperStorage<Chosen>;
}  // namespace attnscope::efficient_f32

extern "C" __device__ const int attention_shared_bytes = sizeof(attnscope::efficient_f32::Storage);

extern "C" __device__ const int attention_params_bytes =
    sizeof(attnscope::mma::Params);  // for launchers in other languages

extern "C" __global__ void __launch_bounds__(attnscope::efficient_f32::Chosen::kThreads, 1)
    attention_forward(const __grid_constant__ attnscope::mma::Params p) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  attnscope::efficient_f32::hopper_attention<attnscope::efficient_f32::Chosen>(
      p, *reinterpret_cast<attnscope::efficient_f32::Storage*>(dynamic_shared));
}
