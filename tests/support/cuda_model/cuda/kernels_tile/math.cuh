#pragma once
// The arithmetic of the tile layer's math.cuh in plain C++.

#include "cuda/kernels_tile/types.cuh"
#include "support/cuda_model/model.h"
#include "tensor/convert.h"

#include <cmath>
#include <limits>

namespace attnscope::tile {

inline float infinity() {
  return std::numeric_limits<float>::infinity();
}
inline float exp2_unit(float x) {
  return std::exp2(x);
}
inline float log2_unit(float x) {
  return std::log2(x);
}
template <Type16 T>
u32 pack16(float low, float high) {
  const auto bits = [](float x) -> u32 { return T == Type16::kBf16 ? f32_to_bf16(x) : f32_to_f16(x); };
  return bits(low) | bits(high) << 16;
}
inline float quad_max(float x) {
  x = std::fmax(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return std::fmax(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

}  // namespace attnscope::tile
