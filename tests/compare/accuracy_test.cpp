#include "compare/accuracy.h"

#include <gtest/gtest.h>

#include <limits>

namespace attnscope::compare {
namespace {

class AccuracyOf : public ::testing::Test {
 protected:
  void SetUp() override {
    problem_.batch = 1;
    problem_.heads = problem_.kv_heads = 2;
    problem_.q_len = 6;
    problem_.kv_len = 4;
    problem_.head_dim = problem_.value_dim = 3;
    problem_.causal = CausalMode::kLowerRight;  // 6 queries, 4 keys: the first two rows see nothing
    host_ = make_tensors(problem_).value();
    oracle_ = std::make_unique<Oracle>(problem_, host_.request, 2);
    out_ = make_output(problem_).value();
    const ReferenceResult expected = reference_attention(host_.request);
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < 6; ++i)
        for (int64_t d = 0; d < 3; ++d)
          write_element(out_, expected.out[static_cast<size_t>((h * 6 + i) * 3 + d)], 0, h, i, d);
  }
  Problem problem_;
  HostTensors host_;
  std::unique_ptr<Oracle> oracle_;
  Tensor out_;
};

TEST_F(AccuracyOf, TheRightAnswer) {
  const Accuracy a = oracle_->check(out_);
  EXPECT_TRUE(a.within());
  EXPECT_LT(a.rel_l2, 1e-7);
  EXPECT_EQ(a.rows_checked, 12);
  EXPECT_EQ(a.rows_total, 12);
  EXPECT_EQ(a.empty_rows, 4);
}

TEST_F(AccuracyOf, OneWrongElement) {
  write_element(out_, read_element(out_, 0, 1, 5, 2) + 0.5, 0, 1, 5, 2);
  const Accuracy a = oracle_->check(out_);
  EXPECT_NEAR(a.max_abs, 0.5, 1e-6);
  EXPECT_FALSE(a.within());
}

TEST_F(AccuracyOf, AnUnwrittenElementIsNaN) {
  write_element(out_, std::numeric_limits<double>::quiet_NaN(), 0, 0, 3, 0);
  const Accuracy a = oracle_->check(out_);
  EXPECT_EQ(a.nan_rows, 1);
  EXPECT_FALSE(a.within());
}

TEST_F(AccuracyOf, NaNInAnEmptyRowIsCountedApart) {
  for (int64_t d = 0; d < 3; ++d) write_element(out_, std::numeric_limits<double>::quiet_NaN(), 0, 0, 0, d);
  const Accuracy a = oracle_->check(out_);
  EXPECT_EQ(a.empty_nan_rows, 1);
  EXPECT_EQ(a.nan_rows, 0);
  EXPECT_TRUE(a.within());
}

TEST(Oracle, LooksAtSomeRowsOfALargeProblem) {
  Problem p;
  p.heads = p.kv_heads = 2;
  p.q_len = 1000;
  p.kv_len = 32;
  p.head_dim = p.value_dim = 8;
  const HostTensors host = make_tensors(p).value();
  EXPECT_EQ(Oracle(p, host.request, 2).rows_checked(), 2000);
  EXPECT_EQ(Oracle(p, host.request, 2, 500.0 * 2 * 32 * 16).rows_checked(), 500);
  const Oracle least(p, host.request, 2, 0);
  EXPECT_EQ(least.rows_checked(), 256);
  EXPECT_EQ(least.rows_total(), 2000);
}

}  // namespace
}  // namespace attnscope::compare
