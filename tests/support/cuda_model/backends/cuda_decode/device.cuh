#pragma once
// What src/backends/cuda_decode/device.cuh gives the kernels, modelled.

#include "cuda/kernels_tile/math.cuh"
#include "cuda/kernels_tile/mma.cuh"
#include "cuda/kernels_tile/mma_maps.h"

namespace attnscope::decode {

using namespace attnscope::tile;

inline void sync_some(int id, int threads) {
  cuda_model::wait_some(id, threads);
}
#define ATTNSCOPE_OUT_OF_LINE inline

inline u64 read_once_policy(bool) {
  return 0;
}
inline void copy_once_16(u32 to, const void* from, int bytes, u64) {
  cuda_model::copy_async(to, from, bytes);
}
inline void prefetch_to_l2(const void*) {}
inline int read_only(const int* from) {
  return *from;
}
inline float f16_to_float(u16 bits) {
  return f16_to_f32(bits);
}
inline void wait_for_previous_kernel() {}
inline void let_next_kernel_start() {}
inline void cluster_sync() {
  cuda_model::wait_cluster();
}
inline u32 cluster_address(u32 address, int rank) {
  return cuda_model::address_in_block(address, rank);
}
inline float4 cluster_load4(u32 address) {
  return *static_cast<const float4*>(cuda_model::shared_pointer(address));
}
inline float2 cluster_load2(u32 address) {
  return *static_cast<const float2*>(cuda_model::shared_pointer(address));
}

}  // namespace attnscope::decode
