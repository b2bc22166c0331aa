#include "attention/backend.h"
#include "attnscope/attention.h"
#include "support/attention_case.h"
#include "tensor/fill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace attnscope::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct State {
  Tensor out, lse;
  State(DType dtype, int64_t rows, int64_t width)
      : out(*Tensor::empty(dtype, {1, 1, rows, width})), lse(*Tensor::empty(DType::kF32, {1, 1, rows})) {}
  Outputs outputs() const { return {out, lse}; }
};

TEST(MergeStates, EmptyPartsWeighNothingAndAreNotRead) {
  State empty(DType::kF32, 1, 2), full(DType::kF32, 1, 2), merged(DType::kF32, 1, 2);
  fill_constant(empty.out, std::nan(""));  // whatever an empty part holds
  fill_constant(empty.lse, -kInf);
  fill_constant(full.out, 3.0);
  fill_constant(full.lse, 1.25);
  ASSERT_TRUE(merge_states({empty.outputs(), full.outputs(), empty.outputs()}, merged.outputs()));
  EXPECT_EQ(read_element(merged.out, 0, 0, 0, 1), 3.0);
  EXPECT_EQ(read_element(merged.lse, 0, 0, 0), 1.25);
  ASSERT_TRUE(merge_states({empty.outputs(), empty.outputs()}, merged.outputs()));
  EXPECT_EQ(read_element(merged.out, 0, 0, 0, 0), 0.0);
  EXPECT_EQ(read_element(merged.lse, 0, 0, 0), -kInf);
}

TEST(MergeStates, NanIsNotEmpty) {
  State bad(DType::kF32, 1, 2), full(DType::kF32, 1, 2), merged(DType::kF32, 1, 2);
  fill_constant(bad.out, 1.0);
  fill_constant(bad.lse, std::nan(""));
  fill_constant(full.out, 3.0);
  fill_constant(full.lse, 0.0);
  ASSERT_TRUE(merge_states({full.outputs(), bad.outputs()}, merged.outputs()));
  EXPECT_TRUE(std::isnan(read_element(merged.out, 0, 0, 0, 0)));
  EXPECT_TRUE(std::isnan(read_element(merged.lse, 0, 0, 0)));
}

TEST(MergeStates, HugeLseDoesNotOverflow) {
  State a(DType::kF32, 1, 1), b(DType::kF32, 1, 1), merged(DType::kF32, 1, 1);
  fill_constant(a.out, 1.0);
  fill_constant(a.lse, 524288.0);
  fill_constant(b.out, 3.0);
  fill_constant(b.lse, 524288.0);
  ASSERT_TRUE(merge_states({a.outputs(), b.outputs()}, merged.outputs()));
  EXPECT_NEAR(read_element(merged.out, 0, 0, 0, 0), 2.0, 1e-6);
}

TEST(MergeStates, SplitKeysMergeToTheWhole) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    CaseSpec spec;
    spec.dtype = dtype;
    spec.B = 2;
    spec.Hq = 4;
    spec.Hk = spec.Hv = 2;
    spec.L = 9;
    spec.S = 50;
    spec.E = 16;
    spec.Ev = 24;
    spec.mask = MaskSpec::kBoolRows;
    AttentionCase whole(spec);
    for (const Backend* backend : registered_backends()) {
      if (backend->device() != DeviceType::kCpu || !backend->refusals(whole.request()).empty()) continue;
      const std::string name(backend->name());
      std::vector<Tensor> outs, lses;
      std::vector<Outputs> parts;
      const int64_t cuts[] = {0, 0, 7, 31, 50};  // the first part is empty
      for (size_t p = 0; p + 1 < std::size(cuts); ++p) {
        Request part = whole.request();
        for (TensorView* v : {&part.k, &part.v}) {
          v->data = v->as<std::byte>() + cuts[p] * v->stride(2) * static_cast<int64_t>(dtype_size(dtype));
          v->sizes[2] = cuts[p + 1] - cuts[p];
        }
        part.mask.data = part.mask.as<uint8_t>() + cuts[p] * part.mask.stride(3);
        part.mask.sizes[3] = cuts[p + 1] - cuts[p];
        outs.push_back(*Tensor::empty(dtype, {2, 4, 9, 24}));
        lses.push_back(*Tensor::empty(DType::kF32, {2, 4, 9}));
        ASSERT_TRUE(sdpa(part, {outs.back(), lses.back()}, {{name}})) << name;
      }
      for (size_t p = 0; p < outs.size(); ++p) parts.push_back({outs[p], lses[p]});
      whole.out().poison();
      whole.lse().poison();
      ASSERT_TRUE(merge_states(parts, whole.outputs()));
      const Tolerance tolerance = tolerance_for(whole.request(), false);
      EXPECT_EQ(compare(whole.out().view(), whole.reference().out, tolerance.out * 2), "") << name;
      EXPECT_EQ(compare(whole.lse().view(), whole.reference().lse, tolerance.lse * 2), "") << name;
    }
  }
}

TEST(MergeStates, RefusesPartsThatDoNotFit) {
  State a(DType::kF32, 2, 2), b(DType::kF32, 3, 2), merged(DType::kF32, 2, 2);
  EXPECT_FALSE(merge_states({}, merged.outputs()));
  EXPECT_FALSE(merge_states({a.outputs(), b.outputs()}, merged.outputs()));
  // Parts and results without memory, and one whose rows are one.
  for (TensorView Outputs::* member : {&Outputs::out, &Outputs::lse}) {
    Outputs none = a.outputs(), narrow = merged.outputs();
    (none.*member).data = nullptr;
    EXPECT_FALSE(merge_states({a.outputs(), none}, merged.outputs()));
    EXPECT_FALSE(merge_states({a.outputs()}, none));
    (narrow.*member).strides[2] = 0;
    EXPECT_FALSE(merge_states({a.outputs()}, narrow));
  }
}

}  // namespace
}  // namespace attnscope::testing
