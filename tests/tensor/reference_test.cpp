// The oracle against values worked out by hand: it judges everything else.
#include "tensor/reference.h"

#include "attention/dropout_bits.h"
#include "tensor/fill.h"
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace attnscope {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor column(const std::vector<double>& values) {
  Tensor t = *Tensor::empty(DType::kF64, {1, 1, static_cast<int64_t>(values.size()), 1});
  for (size_t i = 0; i < values.size(); ++i) write_element(t, values[i], 0, 0, static_cast<int64_t>(i), 0);
  return t;
}

struct Small {
  Tensor q, k, v;
  Request request;
  Small(const std::vector<double>& qs, const std::vector<double>& ks, const std::vector<double>& vs)
      : q(column(qs)), k(column(ks)), v(column(vs)) {
    request.q = q;
    request.k = k;
    request.v = v;
    request.scale = 1.0;
  }
};

TEST(Reference, SoftmaxOfTwoScores) {
  Small s({1.0}, {0.0, 1.0}, {0.0, 1.0});
  s.request.scale = -1.0;
  const ReferenceResult r = reference_attention(s.request);
  EXPECT_NEAR(r.out[0], 0.26894142137, 1e-10);
  EXPECT_NEAR(r.lse[0], 0.313261687518, 1e-10);
}

TEST(Reference, LowerRightAndTopLeft) {
  Small s({0, 0, 0, 0, 0}, {0, 0}, {1, 3});
  s.request.causal = CausalMode::kLowerRight;
  ReferenceResult r = reference_attention(s.request);
  EXPECT_EQ(r.out, (std::vector<double>{0, 0, 0, 1, 2}));
  EXPECT_EQ(r.lse[0], -kInf);
  EXPECT_NEAR(r.lse[4], std::log(2.0), 1e-12);
  s.request.causal = CausalMode::kTopLeft;
  r = reference_attention(s.request);
  EXPECT_EQ(r.out, (std::vector<double>{1, 2, 2, 2, 2}));
}

TEST(Reference, WindowOfTwoToTheLeft) {
  Small s({0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {1, 2, 3, 4, 5, 6});
  s.request.causal = CausalMode::kTopLeft;
  s.request.window = {2, 0};
  const std::vector<double> expected{1, 1.5, 2, 3, 4, 5}, out = reference_attention(s.request).out;
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-12);
}

TEST(Reference, AlibiFallsWithTheDistanceFromTheDiagonal) {
  Small s({0.0, 0.0}, {0.0, 0.0, 0.0}, {1.0, 10.0, 100.0});
  static float slope = 0.5f;
  s.request.alibi_slopes.data = &slope;
  s.request.alibi_slopes.dtype = DType::kF32;
  s.request.alibi_slopes.rank = 1;
  s.request.alibi_slopes.sizes[0] = s.request.alibi_slopes.strides[0] = 1;
  const double e1 = std::exp(-0.5), e2 = std::exp(-1.0);
  ReferenceResult r = reference_attention(s.request);  // query 1: distances 1, 0, 1
  EXPECT_NEAR(r.out[1], (1 * e1 + 10 + 100 * e1) / (1 + 2 * e1), 1e-12);
  s.request.causal = CausalMode::kLowerRight;  // query 0 is at key 1
  r = reference_attention(s.request);
  EXPECT_NEAR(r.out[0], (1 * e1 + 10) / (1 + e1), 1e-12);
  EXPECT_NEAR(r.out[1], (1 * e2 + 10 * e1 + 100) / (1 + e1 + e2), 1e-12);
}

TEST(Reference, BoolMaskSelectsAndFiniteMinimumDoesNot) {
  Small s({1.0, 2.0}, {1.0, std::nan("")}, {5.0, std::nan("")});
  Tensor mask = *Tensor::empty(DType::kBool, {1, 2});
  write_element(mask, 1, 0, 0);
  write_element(mask, 0, 0, 1);
  s.request.mask = mask;
  s.request.mask_kind = MaskKind::kBool;
  EXPECT_EQ(reference_attention(s.request).out, (std::vector<double>{5, 5}));

  Small t({0.5}, {1, 2, 3}, {1, 2, 3});
  Tensor bias = *Tensor::empty(DType::kF32, {1, 3});
  fill_constant(bias, static_cast<double>(std::numeric_limits<float>::lowest()));
  t.request.mask = bias;
  t.request.mask_kind = MaskKind::kBias;
  EXPECT_NEAR(reference_attention(t.request).out[0], 2.0, 1e-12);
}

TEST(Reference, ANanScoreIsNanAndNotEmpty) {
  Small s({std::nan("")}, {1, 2}, {1, 2});
  const ReferenceResult r = reference_attention(s.request);
  EXPECT_TRUE(std::isnan(r.out[0]));
  EXPECT_TRUE(std::isnan(r.lse[0]));
}

TEST(Reference, DropoutBitsAreThoseOfTheSharedGenerator) {
  // Weights 1/S and v = one-hot in turn show each weight: kept ones are 1/S/(1−p).
  constexpr int64_t kKeys = 40;
  Tensor q = *Tensor::empty(DType::kF64, {2, 3, 4, 1}), k = *Tensor::empty(DType::kF64, {2, 3, kKeys, 1});
  Tensor v = *Tensor::empty(DType::kF64, {2, 3, kKeys, kKeys});
  fill_constant(q, 0);
  fill_constant(k, 0);
  fill_constant(v, 0);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 3; ++h)
      for (int64_t j = 0; j < kKeys; ++j) write_element(v, 1, b, h, j, j);
  Request request;
  request.q = q;
  request.k = k;
  request.v = v;
  request.dropout = {0.25, 0xdeadbeefcafe1234ull, (1ull << 40) + 5};
  const ReferenceResult r = reference_attention(request);
  for (int64_t row = 0; row < 24; ++row)
    for (int64_t j = 0; j < kKeys; ++j) {
      const bool kept =
          dropout_keeps(request.dropout.seed, request.dropout.offset, static_cast<uint64_t>(row),
                        static_cast<uint64_t>(j), dropout_threshold(0.25));
      EXPECT_NEAR(r.out[static_cast<size_t>(row * kKeys + j)], kept ? 1.0 / kKeys / 0.75 : 0.0, 1e-12);
    }
}

TEST(DropoutBits, KnownAnswersOfPhilox) {
  // Published test vectors of Philox-4x32-10.
  const Philox4 zero = philox_4x32_10({{0, 0, 0, 0}}, 0, 0);
  EXPECT_EQ(zero.x[0], 0x6627e8d5u);
  EXPECT_EQ(zero.x[1], 0xe169c58du);
  EXPECT_EQ(zero.x[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.x[3], 0x9b00dbd8u);
  const Philox4 ones = philox_4x32_10({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u);
  EXPECT_EQ(ones.x[0], 0x408f276du);
  EXPECT_EQ(ones.x[1], 0x41c83b0eu);
  EXPECT_EQ(ones.x[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.x[3], 0x6d5451fdu);
}

TEST(Fill, ValuesDependOnTheLogicalIndexOnly) {
  Tensor dense = *Tensor::empty(DType::kF64, {2, 3, 4, 5});
  Tensor strided = *Tensor::strided(DType::kF64, {2, 3, 4, 5}, {60, 5, 15, 1}, 3);
  fill_normal(dense, 9);
  fill_normal(strided, 9);
  double sum = 0, squares = 0;
  for (int64_t a = 0; a < 2; ++a)
    for (int64_t b = 0; b < 3; ++b)
      for (int64_t c = 0; c < 4; ++c)
        for (int64_t d = 0; d < 5; ++d) {
          EXPECT_EQ(read_element(dense, a, b, c, d), read_element(strided, a, b, c, d));
          sum += read_element(dense, a, b, c, d);
          squares += read_element(dense, a, b, c, d) * read_element(dense, a, b, c, d);
        }
  EXPECT_NEAR(sum / 120, 0.0, 0.4);
  EXPECT_NEAR(squares / 120, 1.0, 0.5);
}

TEST(Tensor, RejectsNegativeAndOverflowingExtents) {
  EXPECT_FALSE(Tensor::empty(DType::kF32, {-1}));
  EXPECT_FALSE(Tensor::strided(DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}, {int64_t{1} << 40, 1}));
  const auto huge = Tensor::empty(DType::kF32, {int64_t{1} << 48});
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kOutOfMemory);
}

}  // namespace
}  // namespace attnscope
