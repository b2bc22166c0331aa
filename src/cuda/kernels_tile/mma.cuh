#pragma once
// The instructions of the sm_80 tile layer: mma.sync, ldmatrix, cp.async. Later architectures run them too.

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::tile {

// d (16 × 8, f32) += a (16 × 16) · b (16 × 8).
template <Type16 T>
ATTNSCOPE_D void mma_16816(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (T == Type16::kBf16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

ATTNSCOPE_D u32 shared_address_of(const void* p) {
  return u32(__cvta_generic_to_shared(p));
}

// Four 8 × 8 matrices; `address` is this lane's row (mma_maps.h).
ATTNSCOPE_D void ldmatrix(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
ATTNSCOPE_D void ldmatrix_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Asynchronous copy of 16 bytes to shared memory, around L1; only the first `bytes` are read, the rest is 0.
ATTNSCOPE_D void copy_async_16(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// 4 or 8 bytes.
template <int kBytes>
ATTNSCOPE_D void copy_async_small(u32 to, const void* from, int bytes) {
  static_assert(kBytes == 4 || kBytes == 8, "the sizes cp.async.ca takes");
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes), "r"(bytes)
               : "memory");
}
ATTNSCOPE_D void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
ATTNSCOPE_D void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Shared memory by address.
ATTNSCOPE_D void store_shared(u32 to, u32 word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
ATTNSCOPE_D void store_shared(u32 to, const u32 (&w)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]),
               "r"(w[3])
               : "memory");
}
ATTNSCOPE_D void load_shared(u32 (&w)[4], u32 from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "r"(from)
               : "memory");
}
ATTNSCOPE_D u32 load_shared(u32 from) {
  u32 w;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w) : "r"(from) : "memory");
  return w;
}

}  // namespace attnscope::tile
