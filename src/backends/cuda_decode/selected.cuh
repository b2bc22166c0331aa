#pragma once
// P·V where rows of a tile see different keys and V is not finite: rare, and far from the main loop's code.

#include "backends/cuda_decode/device.cuh"

namespace attnscope::decode {

ATTNSCOPE_HD constexpr u32 exponent_bits(Type16 type) {
  return type == Type16::kBf16 ? 0x7F80u : 0x7C00u;
}
ATTNSCOPE_HD constexpr u32 one_bits(Type16 type) {
  return type == Type16::kBf16 ? 0x3F80u : 0x3C00u;
}
// Two values: ones where they are of a class, zeros elsewhere; 1 NaN, 2 +∞, 3 −∞; of class 0, the finite
// ones, the values themselves.
template <Type16 T>
ATTNSCOPE_D u32 of_class(u32 word, int which) {
  u32 result = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const u32 bits = word >> (16 * half) & 0xFFFFu, exponent = exponent_bits(T);
    const bool finite = (bits & exponent) != exponent;
    const int is = finite ? 0 : (bits & ~(exponent | 0x8000u)) != 0 ? 1 : (bits & 0x8000u) != 0 ? 3 : 2;
    if (is == which) result |= (which == 0 ? bits : one_bits(T)) << (16 * half);
  }
  return result;
}
template <class C>
struct Selected {
  float o[C::kEv / 8][4];
  u32 weights[4], seen[4];  // operands: P, and ones where a row sees a key
};
// O += P·V with V's finite values; then, where a row sees a key whose value is not finite, that value.
template <class C>
ATTNSCOPE_OUT_OF_LINE void add_selected(Selected<C>& selected, u32 unit, int lane) {
#pragma unroll 1
  for (int c8 = 0; c8 < C::kEv / 8; ++c8) {
    u32 b[4];
    ldmatrix_transposed(b, unit + block_offset(16, ldmatrix_b_transposed(lane), 0, c8 / 2));
    const u32 low = c8 % 2 == 0 ? b[0] : b[2], high = c8 % 2 == 0 ? b[1] : b[3];
    float to[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = selected.o[c8][i];
    mma_16816<C::kType>(to, selected.weights, of_class<C::kType>(low, 0), of_class<C::kType>(high, 0));
#pragma unroll 1
    for (int which = 1; which < 4; ++which) {
      float count[4] = {};
      mma_16816<C::kType>(count, selected.seen, of_class<C::kType>(low, which),
                          of_class<C::kType>(high, which));
      const float value = which == 1 ? infinity() - infinity() : which == 2 ? infinity() : -infinity();
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (count[i] > 0.0f) to[i] += value;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) selected.o[c8][i] = to[i];
  }
}

}  // namespace attnscope::decode
