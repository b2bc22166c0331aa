#include "compare/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace attnscope::compare {
namespace {

using ::testing::HasSubstr;

Problem small() {
  Problem p;
  p.batch = 2;
  p.heads = 6;
  p.kv_heads = 2;
  p.q_len = 10;
  p.kv_len = 7;
  p.head_dim = 4;
  p.value_dim = 3;
  return p;
}

TEST(Problem, DescribesWhatDiffers) {
  Problem p = small();
  p.dtype = DType::kBF16;
  p.window = {5, 0};
  EXPECT_EQ(
      describe(p),
      "causal attention, batch 2, heads 6 over 2 kv heads, 10 queries, 7 keys, head_dim 4 (values 3), bf16, "
      "window 5,0");
  EXPECT_EQ(describe(default_problem(DeviceType::kCuda)),
            "causal attention, batch 8, heads 16, length 1024, head_dim 64, bf16");
}

TEST(Problem, OptionsStateItWhole) {
  EXPECT_EQ(as_options(default_problem(DeviceType::kCuda)), "--shape 8,16,1024,64 --dtype bf16 --causal");
  Problem p = small();
  p.causal = CausalMode::kNone;
  p.mask_kind = MaskKind::kBias;
  p.mask_sizes = {1, 6, 10, 7};
  p.train = true;
  EXPECT_EQ(as_options(p), "--shape 2,6,2,10,7,4,3 --dtype f32 --causal=none --mask bias:1,6,10,7 --train");
}

TEST(Problem, FormulaHasAKernelPerStep) {
  Problem p;
  EXPECT_EQ(formula_kernels(p), 5);  // scores, scale, mask, softmax, values
  p.causal = CausalMode::kNone;
  EXPECT_EQ(formula_kernels(p), 4);
  p.dropout = 0.1;
  p.softcap = 30;
  EXPECT_EQ(formula_kernels(p), 6);
}

TEST(Problem, LayoutsHoldTheSameNumbers) {
  Problem p = small();
  const HostTensors bhsd = make_tensors(p).value();
  p.layout = Layout::kBshd;
  const HostTensors bshd = make_tensors(p).value();
  EXPECT_EQ(bhsd.q.view().stride(2), p.head_dim);
  EXPECT_EQ(bshd.q.view().stride(2), p.heads * p.head_dim);
  EXPECT_EQ(read_element(bhsd.q, 1, 5, 9, 3), read_element(bshd.q, 1, 5, 9, 3));
  EXPECT_EQ(read_element(bhsd.v, 1, 1, 6, 2), read_element(bshd.v, 1, 1, 6, 2));
}

TEST(Problem, BoolMaskKeepsTheFirstKey) {
  Problem p = small();
  p.mask_kind = MaskKind::kBool;
  p.mask_sizes = {2, 1, 10, 7};
  const HostTensors t = make_tensors(p).value();
  int64_t dropped = 0;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(read_element(t.mask, b, 0, i, 0), 1);
      for (int64_t j = 0; j < 7; ++j) dropped += read_element(t.mask, b, 0, i, j) == 0;
    }
  EXPECT_GT(dropped, 0);
}

TEST(Problem, OutputIsPoisoned) {
  const Tensor out = make_output(small()).value();
  EXPECT_TRUE(std::isnan(read_element(out, 1, 5, 9, 2)));
}

TEST(Problem, LengthsAreChecked) {
  Problem p = small();
  p.lengths = {3};
  EXPECT_THAT(request_shape(p).error().message, HasSubstr("each of the 2 batch entries; got 1"));
  p.lengths = {3, 8};
  EXPECT_THAT(request_shape(p).error().message, HasSubstr("8 is outside 0 … 7"));
  p.lengths = {3, 7};
  EXPECT_TRUE(request_shape(p));
}

TEST(Problem, CountsItsBytes) {
  Problem p = small();
  EXPECT_EQ(tensor_bytes(p), 4.0 * (2 * 6 * 10 * 4 + 2 * 2 * 7 * 4 + 2 * 2 * 7 * 3 + 2 * 6 * 10 * 3));
}

}  // namespace
}  // namespace attnscope::compare
