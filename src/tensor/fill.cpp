#include "tensor/fill.h"

#include "tensor/convert.h"
#include "tensor/tensor.h"

#include <array>
#include <cmath>
#include <numbers>

namespace attnscope {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Calls write(offset, logical index) for every element, rows in parallel.
template <typename Write>
void for_each_element(const TensorView& v, Write write) {
  std::array<int64_t, 4> n{1, 1, 1, 1}, stride{0, 0, 0, 0};
  for (int d = 0; d < v.rank; ++d) {
    const auto place = static_cast<size_t>(4) - static_cast<size_t>(v.rank) + static_cast<size_t>(d);
    n[place] = v.size(d);
    stride[place] = v.stride(d);
  }
  const int64_t rows = n[0] * n[1] * n[2];
#if !defined(__SANITIZE_THREAD__)  // it does not see how GCC's OpenMP runtime synchronises
#pragma omp parallel for schedule(static) if (rows * n[3] > 16384)
#endif
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t c = row % n[2], b = row / n[2] % n[1], a = row / n[2] / n[1];
    const int64_t base = a * stride[0] + b * stride[1] + c * stride[2];
    for (int64_t d = 0; d < n[3]; ++d) write(base + d * stride[3], static_cast<uint64_t>(row * n[3] + d));
  }
}

}  // namespace

uint64_t random_bits(uint64_t seed, uint64_t index) {
  return mix(mix(seed * kGolden + 0x1234567ull) + (index + 1) * kGolden);
}

double random_normal(uint64_t seed, uint64_t index) {
  // Box–Muller; the pair shares its radius.
  const uint64_t a = random_bits(seed, index & ~uint64_t{1});
  const uint64_t b = random_bits(seed, index | uint64_t{1});
  const double u = (static_cast<double>(a >> 11) + 0.5) * 0x1p-53;
  const double angle = 2.0 * std::numbers::pi * static_cast<double>(b >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * std::log(u));
  return radius * ((index & 1) != 0 ? std::sin(angle) : std::cos(angle));
}

void fill_normal(const TensorView& v, uint64_t seed, double scale, double shift) {
  for_each_element(v, [&](int64_t offset, uint64_t index) {
    store_f64(v.data, v.dtype, offset, random_normal(seed, index) * scale + shift);
  });
}

void fill_constant(const TensorView& v, double value) {
  for_each_element(v, [&](int64_t offset, uint64_t) { store_f64(v.data, v.dtype, offset, value); });
}

void fill_bernoulli(const TensorView& v, uint64_t seed, double probability) {
  for_each_element(v, [&](int64_t offset, uint64_t index) {
    const double u = static_cast<double>(random_bits(seed, index) >> 11) * 0x1p-53;
    store_f64(v.data, v.dtype, offset, u < probability ? 1.0 : 0.0);
  });
}

}  // namespace attnscope
