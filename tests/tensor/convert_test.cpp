#include "tensor/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attnscope {
namespace {

// The nearest of all 65536 values of a 16-bit type to d, ties to the even bit pattern, by exhaustive
// neighbours.
template <typename Widen>
uint16_t nearest(double d, Widen widen, uint16_t infinity) {
  const uint16_t sign = std::signbit(d) ? 0x8000 : 0;
  const double magnitude = std::fabs(d);
  // Positive patterns are ordered like their values: binary search for the largest not above.
  uint32_t low = 0, high = infinity;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (static_cast<double>(widen(static_cast<uint16_t>(middle))) <= magnitude ? low : high) = middle;
  }
  const double below = widen(static_cast<uint16_t>(low));
  // One step past the largest finite value stands where the next value would be.
  const double above = high == infinity
                           ? below + (below - static_cast<double>(widen(static_cast<uint16_t>(low - 1))))
                           : static_cast<double>(widen(static_cast<uint16_t>(high)));
  const double to_below = magnitude - below, to_above = above - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && (low & 1) != 0);
  return static_cast<uint16_t>(sign | (up ? high : low));
}

TEST(Convert, EverySixteenBitValueSurvivesARoundTrip) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    const float bf = bf16_to_f32(bits), f = f16_to_f32(bits);
    if (std::isnan(bf)) {
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(bf))));
    } else {
      EXPECT_EQ(f32_to_bf16(bf), bits);
      EXPECT_EQ(f64_to_bf16(static_cast<double>(bf)), bits);
    }
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
    } else {
      EXPECT_EQ(f32_to_f16(f), bits);
      EXPECT_EQ(f64_to_f16(static_cast<double>(f)), bits);
    }
  }
}

TEST(Convert, NarrowingRoundsToNearestEven) {
  const auto f16 = [](uint16_t h) { return f16_to_f32(h); };
  const auto bf16 = [](uint16_t h) { return bf16_to_f32(h); };
  // Midpoints between neighbours, and the doubles just beside them that float cannot tell from the midpoint.
  for (uint32_t h = 0; h < 0x7bff; h += 7) {
    const double mid =
        (static_cast<double>(f16(static_cast<uint16_t>(h))) + f16(static_cast<uint16_t>(h + 1))) / 2;
    for (const double d : {mid, std::nextafter(mid, 1e9), std::nextafter(mid, -1e9), -mid, mid * (1 + 1e-12)})
      EXPECT_EQ(f64_to_f16(d), nearest(d, f16, 0x7c00)) << d;
    EXPECT_EQ(f32_to_f16(static_cast<float>(mid)), nearest(mid, f16, 0x7c00)) << mid;
  }
  for (uint32_t h = 1; h < 0x7f7f; h += 13) {
    const double mid =
        (static_cast<double>(bf16(static_cast<uint16_t>(h))) + bf16(static_cast<uint16_t>(h + 1))) / 2;
    for (const double d : {mid, std::nextafter(mid, 1e300), std::nextafter(mid, -1e300), -mid})
      EXPECT_EQ(f64_to_bf16(d), nearest(d, bf16, 0x7f80)) << d;
  }
}

TEST(Convert, Extremes) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(f64_to_f16(65519.999), 0x7bff);
  EXPECT_EQ(f64_to_f16(65520.0), 0x7c00);
  EXPECT_EQ(f64_to_f16(-inf), 0xfc00);
  EXPECT_EQ(f64_to_f16(0x1p-25), 0x0000);  // halfway to the smallest subnormal: even is 0
  EXPECT_EQ(f64_to_f16(0x1.8p-25), 0x0001);
  EXPECT_EQ(f64_to_bf16(3.4e38 * 10), 0x7f80);
  EXPECT_EQ(f64_to_bf16(-0.0), 0x8000);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f64_to_bf16(std::nan("")))));
  // A NaN whose payload lives in the low bits only must not become infinity.
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace attnscope
