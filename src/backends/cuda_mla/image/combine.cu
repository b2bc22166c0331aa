// The kernel after mla_forward, for one dtype: mla_combine.
#include "backends/cuda_mla/combine.cuh"

extern "C" __device__ const int mla_shared_bytes = 0;  // beyond what the kernel declares

extern "C" __global__ void __launch_bounds__(attnscope::mla::kCombineThreads)
    mla_combine(const __grid_constant__ attnscope::mla::Params p) {
  attnscope::mla::mla_combine<attnscope::tile::Type16::ATTNSCOPE_TYPE>(p);
}
