#pragma once
// Reproducible contents. A value depends on the seed and the logical index only, so the same tensor in
// another layout or dtype holds the same numbers (rounded to its dtype).

#include "attnscope/tensor_view.h"

#include <cstdint>

namespace attnscope {

// Counter-based 64 random bits.
uint64_t random_bits(uint64_t seed, uint64_t index);
// Standard normal value number `index` of stream `seed`.
double random_normal(uint64_t seed, uint64_t index);

void fill_normal(const TensorView& v, uint64_t seed, double scale = 1.0, double shift = 0.0);
void fill_constant(const TensorView& v, double value);
// Bool tensors: 1 with the given probability.
void fill_bernoulli(const TensorView& v, uint64_t seed, double probability);

}  // namespace attnscope
