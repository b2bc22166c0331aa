// flash_sm80 and efficient beyond the conformance grid: every feature at every head size that has images,
// sinks and slopes, values and keys that are not finite behind a mask, biases of every type. Skipped without
// a GPU.
#include "attention/backend.h"
#include "support/device_case.h"
#include "support/kernel_features.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace attnscope::testing {
namespace {

const char* const kBoth[] = {"flash_sm80", "efficient"};

void check(AttentionCase& host, const std::string& backend, const std::string& what) {
  DeviceCase device(host);
  const ReferenceResult& expected = host.reference();
  const Status status = sdpa(device.request(), device.outputs(), {{backend}}, device.options());
  ASSERT_TRUE(status) << backend << " " << what << ": " << status.error().message;
  ASSERT_TRUE(device.fetch());
  Tolerance tolerance = tolerance_for(host.request(), false);
  tolerance.out *= 4;
  tolerance.lse = tolerance.lse * 4 + 1e-4;
  EXPECT_EQ(compare(host.out().view(), expected.out, tolerance.out), "") << backend << " out: " << what;
  EXPECT_EQ(compare(host.lse().view(), expected.lse, tolerance.lse), "") << backend << " lse: " << what;
  EXPECT_EQ(host.out().damage(), "") << backend << " " << what;
}

TEST(MmaGpu, EveryFeatureAtEveryHeadSize) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int64_t head_dim : {40, 64, 96, 128, 192, 256})
      for (const Feature& feature : kFeatures)
        for (const char* backend : kBoth) {
          CaseSpec spec = few_tiles(dtype, head_dim);
          feature.change(spec);
          AttentionCase host(spec);
          check(host, backend, spec.name());
          if (HasFatalFailure()) return;
        }
}

TEST(MmaGpu, SinksAndSlopes) {
  std::vector<float> sinks = {0.5f, -2.0f, 3.0f, 0.0f}, slopes = {0.5f, 0.1f, 0.01f, 1.0f};
  for (const bool packed : {false, true})
    for (const char* backend : kBoth) {
      CaseSpec spec = few_tiles(DType::kBF16, 64);
      spec.causal = CausalMode::kLowerRight;
      spec.packed = packed;
      if (packed) spec.B = 1;
      AttentionCase host(spec);
      TensorView heads;
      heads.rank = 1;
      heads.sizes = {4, 1, 1, 1};
      heads.data = sinks.data();
      host.request().sinks = heads;
      heads.data = slopes.data();
      host.request().alibi_slopes = heads;
      check(host, backend, spec.name() + " with sinks and slopes");
      if (HasFatalFailure()) return;
    }
}

TEST(MmaGpu, EfficientTakesAnyHeadSizeLayoutAndMask) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int64_t head_dim : {1, 13, 77, 130, 255})
      for (const Layout layout :
           {Layout::kOddOffset, Layout::kLastStride2, Layout::kSeqMajor, Layout::kHeadStride0})
        for (const MaskSpec mask : {MaskSpec::kBool2d, MaskSpec::kBoolKeys, MaskSpec::kBiasF32,
                                    MaskSpec::kBiasHeads, MaskSpec::kBiasNegInf, MaskSpec::kBiasTransposed}) {
          CaseSpec spec = few_tiles(dtype, head_dim);
          spec.B = 1;
          spec.L = 70;
          spec.S = 133;
          spec.layout = layout;
          spec.mask = mask;
          AttentionCase host(spec);
          check(host, "efficient", spec.name());
          if (HasFatalFailure()) return;
        }
}

// A NaN or an infinity in a key or value reaches exactly the rows that see it.
TEST(MmaGpu, WhatIsNotFiniteStaysBehindTheMask) {
  const uint16_t kNan = 0x7FC0, kInfinity = 0x7F80;  // bf16
  for (const char* backend : kBoth)
    for (const MaskSpec mask : {MaskSpec::kNone, MaskSpec::kBool2d, MaskSpec::kBiasNegInf}) {
      if (mask != MaskSpec::kNone && std::string(backend) == "flash_sm80") continue;
      for (const bool in_key : {false, true}) {
        CaseSpec spec = few_tiles(DType::kBF16, 128);
        spec.causal = CausalMode::kTopLeft;
        spec.mask = mask;
        AttentionCase host(spec);
        const TensorView& v = in_key ? host.request().k : host.request().v;
        v.as<uint16_t>()[element_offset(v, 0, 1, 100, 3)] = kNan;
        if (!in_key) v.as<uint16_t>()[element_offset(v, 1, 0, 64, 127)] = kInfinity;
        check(host, backend, spec.name() + (in_key ? " NaN key" : " NaN value"));
        if (HasFatalFailure()) return;
      }
    }
}

}  // namespace
}  // namespace attnscope::testing
