#pragma once
// The f32 kernel's tiles: how they lie in shared memory, how they get there, and products of f32 operands on
// tensor cores that multiply tf32.
//
// A tile is rows of E floats in 16-byte chunks; row r keeps chunk c at position c XOR f(r), so that the
// 128-bit reads of the fragments meet no bank conflict: eight lanes read two neighbouring rows of Q or K at
// four chunks, or four rows of V, two apart, at two chunks.

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::efficient_f32 {

using tile::i64;
using tile::u32;
using tile::u64;

ATTNSCOPE_HD constexpr int swizzle_qk(int row) {
  return (row & 1) * 4;
}
ATTNSCOPE_HD constexpr int swizzle_v(int row) {
  return ((row >> 1) & 3) * 2;
}

// Fragments of one product C[16×8] += A[16×8]·B[8×8] (PTX ISA, "mma.m16n8k8", tf32), lane = 4·g + t:
//   A: a0 (g, t) · a1 (g+8, t) · a2 (g, t+4) · a3 (g+8, t+4)   B: b0 (t, g) · b1 (t+4, g)
//   C: c0 (g, 2t) · c1 (g, 2t+1) · c2 (g+8, 2t) · c3 (g+8, 2t+1)
// The contracted index may be permuted when A and B agree, the columns when C is read accordingly:
//   S = Q·Kᵀ: in step s a lane reads columns 16s+4t … +3 of its rows as one chunk; the first of two products
//     contracts words 0 and 1 of it (as t and t+4), the second words 2 and 3.
//   O = P·V: t stands for key 8n+2t, t+4 for key 8n+2t+1, which makes C of S the A of P as it is; column g of
//     product m is column 32w+4g+m of V, so that one chunk serves four products, and a lane ends up with
//     columns 32w+8t … +7 of its rows.

// Where in its row a lane finds the chunk of step s (Q and K; row ≡ g mod 8), and of columns group w (V; its
// rows are 8n+2t and 8n+2t+1).
ATTNSCOPE_HD constexpr int chunk_qk(int s, int g, int t) {
  return (4 * s + t) ^ swizzle_qk(g);
}
ATTNSCOPE_HD constexpr int chunk_v(int w, int g, int t) {
  return (8 * w + g) ^ swizzle_v(2 * t);
}

// x = big + small + at most one unit in x's last place. The unit reads the upper 19 bits of a word and drops
// the rest, so `big` needs no masking for it. Infinity, NaN and what rounds to infinity give a non-finite sum
// of products: the caller looks for that and takes another way.
struct Split {
  u32 big, small;
};
ATTNSCOPE_HD Split split(float x) {
  const u32 big = __builtin_bit_cast(u32, x) + 0x1000u;
  return {big, __builtin_bit_cast(u32, x - __builtin_bit_cast(float, big & 0xFFFFE000u))};
}

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

ATTNSCOPE_D u32 shared_address(const void* pointer) {
  return u32(__cvta_generic_to_shared(pointer));
}

// Copies that run while the block computes; the bytes past `valid` become 0.
ATTNSCOPE_D void copy16(u32 to, const void* from, int valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
}
ATTNSCOPE_D void copy4(u32 to, const void* from, int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
}
ATTNSCOPE_D void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
ATTNSCOPE_D void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

ATTNSCOPE_D void mma_tf32(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct SplitA {
  u32 big[4], small[4];
  ATTNSCOPE_D void set(int i, float x) {
    const Split s = split(x);
    big[i] = s.big, small[i] = s.small;
  }
};

#endif

}  // namespace attnscope::efficient_f32
