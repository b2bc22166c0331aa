#pragma once
// The bulk tensor copy engine (TMA): one thread moves a box between global memory and a swizzled shared
// panel. Elements outside the tensor arrive as zeros and are not stored. PTX ISA, "cp.async.bulk.tensor".

#include "cuda/kernels_tile/barrier.cuh"

namespace attnscope::tile {

// L2 eviction priorities, as createpolicy encodes them for a fraction of 1.
inline constexpr u64 kEvictNormal = 0x1000000000000000ull;
inline constexpr u64 kEvictFirst = 0x12F0000000000000ull;
inline constexpr u64 kEvictLast = 0x14F0000000000000ull;

ATTNSCOPE_D void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads the box at (column, row, head, batch); its bytes count towards `full`'s announced bytes. The
// destination must be free: whoever read it last has arrived on the barrier that the caller waited for.
ATTNSCOPE_D void tma_load(void* panel, const TensorMap& map, Barrier& full, int column, int row, int head,
                          int batch, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(panel)),
      "l"(&map), "r"(shared_address(&full)), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(policy)
      : "memory");
}

// Stores a panel's box. The threads that wrote the panel must have executed fence_to_async_proxy() and met at
// a barrier before; the panel may be written again only after tma_store_wait_read() in the same thread.
ATTNSCOPE_D void tma_store(const TensorMap& map, const void* panel, int column, int row, int head,
                           int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(shared_address(panel)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
ATTNSCOPE_D void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
ATTNSCOPE_D void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
ATTNSCOPE_D void tma_store_wait_done() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Makes this thread's ordinary shared-memory writes visible to the copy engine and the tensor cores.
ATTNSCOPE_D void fence_to_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace attnscope::tile
