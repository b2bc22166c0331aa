// The kernel after mla_forward: decode's, for 512 columns of V, for one dtype.
#define ATTNSCOPE_MAX_COLUMNS 512
#include "backends/cuda_decode/combine.cuh"

extern "C" __device__ const int mla_shared_bytes = 0;  // beyond what the kernel declares

extern "C" __global__ void __launch_bounds__(attnscope::decode::kCombineThreads)
    mla_combine(const __grid_constant__ attnscope::decode::Params p) {
  attnscope::decode::decode_combine<attnscope::tile::Type16::ATTNSCOPE_TYPE>(p);
}
