#pragma once
// Barriers in shared memory (mbarrier) and by number (bar), and register reallocation between warpgroups.

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::tile {

ATTNSCOPE_D u32 shared_address(const void* p) {
  return static_cast<u32>(__cvta_generic_to_shared(p));
}

// One phase completes when `arrivals` arrivals and all announced bytes are in. PTX ISA, "mbarrier".
struct Barrier {
  u64 word;
};

ATTNSCOPE_D void barrier_init(Barrier& b, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&b)), "r"(arrivals) : "memory");
}

// After the inits, before any other thread or the copy engine touches the barriers (then a __syncthreads).
ATTNSCOPE_D void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

ATTNSCOPE_D void barrier_arrive(Barrier& b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&b)) : "memory");
}

// Arrives and announces `bytes` that TMA loads will bring.
ATTNSCOPE_D void barrier_expect(Barrier& b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&b)), "r"(bytes)
               : "memory");
}

// Waits until the phase of this parity has completed. Acquires: what the arrivals released is visible.
ATTNSCOPE_D void barrier_wait(Barrier& b, u32 parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}\n" ::"r"(shared_address(&b)),
      "r"(parity)
      : "memory");
}

// Numbered barriers 1…15 (0 is __syncthreads). `threads` counts those that sync and those that only arrive.
ATTNSCOPE_D void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
ATTNSCOPE_D void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Moves registers between warpgroups. Every warp of the warpgroup executes it, once, at the top of its role;
// the kernel needs __launch_bounds__(threads, 1). PTX ISA, "setmaxnreg".
template <int N>
ATTNSCOPE_D void keep_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
ATTNSCOPE_D void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

}  // namespace attnscope::tile
