// The appending kernel, one image for every dtype: cache_append.
#include "backends/cuda_append/kernel.cuh"

extern "C" __device__ const int append_shared_bytes = 0;

extern "C" __global__ void __launch_bounds__(attnscope::append::kThreads)
    cache_append(const __grid_constant__ attnscope::append::Params p) {
  attnscope::append::cache_append(p);
}
