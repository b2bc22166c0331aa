// The small kernels, for one dtype: decode_combine and decode_append.
#include "backends/cuda_decode/combine.cuh"

extern "C" __device__ const int decode_shared_bytes = 0;  // beyond what the kernels declare

extern "C" __global__ void __launch_bounds__(attnscope::decode::kCombineThreads)
    decode_combine(const __grid_constant__ attnscope::decode::Params p) {
  attnscope::decode::decode_combine<attnscope::tile::Type16::ATTNSCOPE_TYPE>(p);
}

extern "C" __global__ void __launch_bounds__(attnscope::decode::kCombineThreads)
    decode_append(const __grid_constant__ attnscope::decode::Params p) {
  attnscope::decode::decode_append(p);
}
