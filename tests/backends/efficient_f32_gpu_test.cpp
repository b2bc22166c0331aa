// Both f32 kernels of efficient, each by its own images whatever the GPU prefers: features, head sizes,
// layouts, masks, and values that pieces cannot hold. Skipped without a GPU.
#include "attention/backend.h"
#include "backends/cuda_efficient/images.h"
#include "backends/cuda_mma/plan.h"
#include "cuda/device.h"
#include "support/device_case.h"
#include "support/kernel_features.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attnscope::testing {
namespace {

struct Kernel {
  const char* name;
  std::span<const mma::EmbeddedImage> images;
};

std::vector<Kernel> kernels(const Request& r) {
  std::vector<Kernel> all = {{"efficient_forward", efficient::f32_images()}};
  const auto info = cuda::device_info(r.q.device.index);
  if (info && efficient::takes_f32_sm90(r, (*info)->sm()))
    all.push_back({"efficient_forward_f32_sm90", efficient::f32_sm90_images()});
  return all;
}

// `factor`: of the tolerance, for inputs that cost digits.
void check(AttentionCase& host, const std::string& what, double factor = 1) {
  DeviceCase device(host);
  const ReferenceResult& expected = host.reference();
  for (const Kernel& kernel : kernels(device.request())) {
    const auto plan = mma::make_plan(device.request(), kernel.name, kernel.images);
    ASSERT_TRUE(plan) << kernel.name << " " << what << ": " << plan.error().message;
    ASSERT_NE((*plan)->steps().front().find(kernel.name), std::string::npos);
    device.poison_outputs();
    ASSERT_TRUE((*plan)->run(device.request(), device.outputs(), device.options()));
    ASSERT_TRUE(device.fetch());
    Tolerance tolerance = tolerance_for(host.request(), false);
    tolerance.out *= 4 * factor;
    tolerance.lse *= 4 * factor;
    EXPECT_EQ(compare(host.out().view(), expected.out, tolerance.out), "") << kernel.name << " out: " << what;
    EXPECT_EQ(compare(host.lse().view(), expected.lse, tolerance.lse), "") << kernel.name << " lse: " << what;
    EXPECT_EQ(host.out().damage(), "") << kernel.name << " " << what;
  }
}

TEST(EfficientF32Gpu, EveryFeatureAtEveryHeadSize) {
  for (const int64_t head_dim : {8, 40, 64, 77, 128, 192})
    for (const Feature& feature : kFeatures) {
      CaseSpec spec = few_tiles(DType::kF32, head_dim);
      feature.change(spec);
      AttentionCase host(spec);
      check(host, spec.name());
      if (HasFatalFailure()) return;
    }
}

TEST(EfficientF32Gpu, EveryMaskInEveryLayout) {
  for (const int64_t head_dim : {64, 100})
    for (const int64_t keys : {133, 288})  // the second: rows at 16-byte boundaries
      for (const Layout layout :
           {Layout::kDense, Layout::kOddOffset, Layout::kLastStride2, Layout::kHeadStride0})
        for (const MaskSpec mask :
             {MaskSpec::kBoolFull, MaskSpec::kBool2d, MaskSpec::kBoolKeys, MaskSpec::kBoolRows,
              MaskSpec::kBiasF32, MaskSpec::kBiasHeads, MaskSpec::kBiasNegInf, MaskSpec::kBiasTransposed}) {
          CaseSpec spec = few_tiles(DType::kF32, head_dim);
          spec.S = keys;
          spec.layout = layout;
          spec.mask = mask;
          spec.causal = layout == Layout::kDense ? CausalMode::kLowerRight : CausalMode::kNone;
          AttentionCase host(spec);
          check(host, spec.name());
          if (HasFatalFailure()) return;
        }
}

float& element(const TensorView& v, int64_t b, int64_t h, int64_t row, int64_t column) {
  return v.as<float>()[element_offset(v, b, h, row, column)];
}

// A NaN or an infinity in a key or value reaches exactly the rows that see it.
TEST(EfficientF32Gpu, WhatIsNotFiniteStaysBehindTheMask) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t head_dim : {64, 128})
    for (const MaskSpec mask : {MaskSpec::kNone, MaskSpec::kBool2d, MaskSpec::kBiasNegInf})
      for (const bool in_key : {false, true}) {
        CaseSpec spec = few_tiles(DType::kF32, head_dim);
        spec.causal = CausalMode::kTopLeft;
        spec.mask = mask;
        AttentionCase host(spec);
        element(in_key ? host.request().k : host.request().v, 0, 1, 100, 3) = std::nanf("");
        if (!in_key) element(host.request().v, 1, 0, 64, head_dim - 1) = kInfinity;
        check(host, spec.name() + (in_key ? " NaN key" : " NaN value"));
        if (HasFatalFailure()) return;
      }
}

void scale_by(const TensorView& v, float factor) {
  for (int64_t b = 0; b < v.size(0); ++b)
    for (int64_t h = 0; h < v.size(1); ++h)
      for (int64_t row = 0; row < v.size(2); ++row)
        for (int64_t column = 0; column < v.size(3); ++column) element(v, b, h, row, column) *= factor;
}

TEST(EfficientF32Gpu, ValuesNearTheEndsOfTheRange) {
  // The sum of weights times values is divided by the sum of weights only at the end: it must fit f32 too.
  for (const float size : {2e36f, 1e-36f}) {
    AttentionCase host(few_tiles(DType::kF32, 64));
    scale_by(host.request().v, size);
    check(host, "values of size " + std::to_string(size));
    if (HasFatalFailure()) return;
  }
}

TEST(EfficientF32Gpu, ProductsThatOverflowBeforeTheyAreScaled) {
  CaseSpec spec = few_tiles(DType::kF32, 64);
  spec.causal = CausalMode::kTopLeft;
  AttentionCase host(spec);
  scale_by(host.request().q, 1.2e19f);
  scale_by(host.request().k, 1e19f);
  host.request().scale = 1.2e-38;
  check(host, "overflow", 10);  // scores of ±100 have errors of their own
}

}  // namespace
}  // namespace attnscope::testing
