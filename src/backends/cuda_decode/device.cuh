#pragma once
// What the decode kernels need beyond the tile layer; on sm_90 also thread-block clusters and launches that
// overlap the end of the kernel before. The CPU tests replace this file and the tile layer's math.cuh and
// mma.cuh by a software model (tests/support/cuda_model).

#include "cuda/kernels_tile/math.cuh"
#include "cuda/kernels_tile/mma.cuh"
#include "cuda/kernels_tile/mma_maps.h"

namespace attnscope::decode {

using namespace attnscope::tile;

// Threads of the warps that share barrier `id`.
ATTNSCOPE_D void sync_some(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Rare code that is called, not inlined.
#define ATTNSCOPE_OUT_OF_LINE __device__ __noinline__

// How L2 treats what is read once. first: it gives way first, so that what was there (written by the kernels
// before) need not be written back now; else its lines do not change places, which many megabytes pass
// through faster.
ATTNSCOPE_D u64 read_once_policy(bool first) {
  u64 policy;
  if (first)
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  else
    asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
#ifndef ATTNSCOPE_L2_PREFETCH
#define ATTNSCOPE_L2_PREFETCH ".L2::128B"
#endif
ATTNSCOPE_D void copy_once_16(u32 to, const void* from, int bytes, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint" ATTNSCOPE_L2_PREFETCH
               " [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(bytes), "l"(policy)
               : "memory");
}

ATTNSCOPE_D void prefetch_to_l2(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// Through L1: nobody writes it while the kernel runs.
ATTNSCOPE_D int read_only(const int* from) {
  int value;
  asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(value) : "l"(from));
  return value;
}

ATTNSCOPE_D float f16_to_float(u16 bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define ATTNSCOPE_HAS_CLUSTERS 1
#else
#define ATTNSCOPE_HAS_CLUSTERS 0
#endif

// What the kernel before this one in the stream wrote is there once this returns.
ATTNSCOPE_D void wait_for_previous_kernel() {
#if ATTNSCOPE_HAS_CLUSTERS
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may be put on the device already; it still waits for this one's end before it reads.
ATTNSCOPE_D void let_next_kernel_start() {
#if ATTNSCOPE_HAS_CLUSTERS
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

ATTNSCOPE_D void cluster_sync() {
#if ATTNSCOPE_HAS_CLUSTERS
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// The same shared variable in block `rank` of the cluster.
ATTNSCOPE_D u32 cluster_address(u32 address, int rank) {
  u32 there = address;
#if ATTNSCOPE_HAS_CLUSTERS
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
#endif
  return there;
}
ATTNSCOPE_D float4 cluster_load4(u32 address) {
  float4 v = make_float4(0, 0, 0, 0);
#if ATTNSCOPE_HAS_CLUSTERS
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
#endif
  return v;
}
ATTNSCOPE_D float2 cluster_load2(u32 address) {
  float2 v = make_float2(0, 0);
#if ATTNSCOPE_HAS_CLUSTERS
  asm volatile("ld.shared::cluster.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
#endif
  return v;
}

}  // namespace attnscope::decode
