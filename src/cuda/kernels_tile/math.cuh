#pragma once
// Register arithmetic of the softmax: base-2 exponentials, packing to 16 bits, reductions over a quad (the
// four lanes that share a row of an accumulator).

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::tile {

ATTNSCOPE_D float infinity() {
  return __int_as_float(0x7F800000);
}

// 2^x on the special-function unit: 16 results per clock and multiprocessor, relative error 2^-22.
ATTNSCOPE_D float exp2_unit(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

ATTNSCOPE_D float log2_unit(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats to one word of 16-bit values, `low` in the lower half, rounded to nearest even.
template <Type16 T>
ATTNSCOPE_D u32 pack16(float low, float high) {
  u32 word;
  if constexpr (T == Type16::kBf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

ATTNSCOPE_D float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
ATTNSCOPE_D float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

// Transposes a 4×4 matrix of words held by a quad: word j of lane t becomes word t of lane j.
ATTNSCOPE_D void quad_transpose(u32 (&w)[4]) {
  const int t = int(threadIdx.x) % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      if (b & bit) continue;
      const u32 received = __shfl_xor_sync(0xFFFFFFFFu, (t & bit) ? w[b] : w[b | bit], bit);
      if (t & bit)
        w[b] = received;
      else
        w[b | bit] = received;
    }
}

// Stores 16 rows × 16 columns of 16-bit values from the words of an accumulator pair; `row_address` is this
// lane's row (maps.h, stmatrix_row). PTX ISA, "stmatrix".
ATTNSCOPE_D void stmatrix_x4(u32 row_address, u32 w0, u32 w1, u32 w2, u32 w3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(w0),
               "r"(w1), "r"(w2), "r"(w3)
               : "memory");
}

}  // namespace attnscope::tile
