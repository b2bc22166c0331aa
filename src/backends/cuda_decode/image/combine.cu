// The joining kernel, for one dtype: decode_combine.
#include "backends/cuda_decode/combine.cuh"

extern "C" __device__ const int decode_shared_bytes = 0;  // beyond what the kernel declares

extern "C" __global__ void __launch_bounds__(attnscope::decode::kCombineThreads)
    decode_combine(const __grid_constant__ attnscope::decode::Params p) {
  attnscope::decode::decode_combine<attnscope::tile::Type16::ATTNSCOPE_TYPE>(p);
}
