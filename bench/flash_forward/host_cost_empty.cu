#include <cuda_runtime_api.h>

namespace attnscope {

__global__ void empty_kernel() {}

cudaError_t launch_empty(cudaStream_t stream) {
  empty_kernel<<<132, 384, 0, stream>>>();
  return cudaGetLastError();
}

}  // namespace attnscope
