// Masks and biases of efficient on a Hopper GPU, where its own kernel takes them: every broadcast, mode and
// head size, what is not finite behind a mask, and which kernel a plan uses. Skipped without a GPU; a GPU
// that is no Hopper runs the same requests on the other kernel.
#include "attention/backend.h"
#include "cuda/device.h"
#include "support/device_case.h"
#include "tensor/fill.h"
#include "tensor/tensor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace attnscope::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

bool hopper() {
  const auto info = cuda::device_info(0);
  return info && (*info)->sm() == 90;
}

CaseSpec spec_of(DType dtype, int64_t head_dim) {
  CaseSpec spec;
  spec.dtype = dtype;
  spec.B = 2;
  spec.Hq = 4;
  spec.Hk = spec.Hv = 2;
  spec.L = 200;
  spec.S = 400;
  spec.E = spec.Ev = head_dim;
  return spec;
}

// A mask of these sizes (1: it broadcasts); a bias is of the inputs' type, with a fifth of it −∞.
Tensor make_mask(const CaseSpec& spec, bool is_bool, std::array<int64_t, 4> sizes) {
  Tensor mask = DeviceCase::must(
      Tensor::empty(is_bool ? DType::kBool : spec.dtype, {sizes[0], sizes[1], sizes[2], sizes[3]}));
  if (is_bool) {
    fill_bernoulli(mask, spec.seed + 4, 0.7);
    return mask;
  }
  fill_normal(mask, spec.seed + 4);
  for (int64_t b = 0; b < sizes[0]; ++b)
    for (int64_t h = 0; h < sizes[1]; ++h)
      for (int64_t i = 0; i < sizes[2]; ++i)
        for (int64_t j = 0; j < sizes[3]; ++j)
          if ((b + 2 * h + i * 7 + j * 3) % 5 == 0) write_element(mask, -kInf, b, h, i, j);
  return mask;
}

std::string kernel_of(const Request& r) {
  const auto plan = find_backend("efficient", DeviceType::kCuda)->plan(r);
  if (!plan) return plan.error().message;
  const std::string step = (*plan)->steps().front();
  return step.substr(0, step.find("  "));
}

// Runs `host` with `mask`; `own`: on a Hopper GPU by the kernel that is for it.
void check(AttentionCase& host, const Tensor& mask, bool own, const std::string& what) {
  host.request().mask = mask;
  host.request().mask_kind = mask.dtype() == DType::kBool ? MaskKind::kBool : MaskKind::kBias;
  DeviceCase device(host);
  EXPECT_EQ(kernel_of(device.request()),
            own && hopper() ? "kernel efficient_forward_sm90" : "kernel efficient_forward")
      << what;
  const ReferenceResult& expected = host.reference();
  const Status status = sdpa(device.request(), device.outputs(), {{"efficient"}}, device.options());
  ASSERT_TRUE(status) << what << ": " << status.error().message;
  ASSERT_TRUE(device.fetch());
  Tolerance tolerance = tolerance_for(host.request(), false);
  tolerance.out *= 4;
  tolerance.lse = tolerance.lse * 4 + 1e-4;
  EXPECT_EQ(compare(host.out().view(), expected.out, tolerance.out), "") << "out: " << what;
  EXPECT_EQ(compare(host.lse().view(), expected.lse, tolerance.lse), "") << "lse: " << what;
  EXPECT_EQ(host.out().damage(), "") << what;
}

TEST(EfficientSm90Gpu, EveryBroadcast) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int64_t head_dim : {40, 64, 128, 256})
      for (const bool is_bool : {false, true})
        for (const int bits : {0, 1, 2, 3, 4, 7}) {  // which of batch, heads, rows the mask has
          CaseSpec spec = spec_of(dtype, head_dim);
          spec.seed = static_cast<uint64_t>(bits) + 1;
          spec.causal = static_cast<CausalMode>(bits % 3);
          AttentionCase host(spec);
          const Tensor mask = make_mask(
              spec, is_bool, {bits & 1 ? spec.B : 1, bits & 2 ? spec.Hq : 1, bits & 4 ? spec.L : 1, spec.S});
          check(host, mask, true, fmt::format("{} mask {} bool {}", spec.name(), bits, is_bool));
          if (HasFatalFailure()) return;
        }
}

TEST(EfficientSm90Gpu, BesideOtherFeatures) {
  for (const bool is_bool : {false, true})
    for (const int n : {0, 1, 2, 3}) {
      CaseSpec spec = spec_of(DType::kBF16, 64);
      if (n == 0) spec.scale = -0.2;
      if (n == 1) spec.kv_lengths = spec.poison_masked = true;
      if (n == 2) spec.window = {70, 5};
      if (n == 3) spec.L = 1, spec.S = 4096;
      AttentionCase host(spec);
      check(host, make_mask(spec, is_bool, {1, spec.Hq, spec.L, spec.S}), true,
            fmt::format("{} bool {}", spec.name(), is_bool));
      if (HasFatalFailure()) return;
    }
}

// Rows of a mask that 16-byte copies cannot load, columns that are not contiguous, other features.
TEST(EfficientSm90Gpu, TheOtherKernelTakesTheRest) {
  for (const bool is_bool : {false, true})
    for (const int n : {0, 1, 2}) {
      CaseSpec spec = spec_of(DType::kBF16, 64);
      if (n == 0) spec.S = 333;
      if (n == 1) spec.layout = Layout::kLastStride2;
      if (n == 2) spec.softcap = 3;
      AttentionCase host(spec);
      check(host, make_mask(spec, is_bool, {1, 1, spec.L, spec.S}), false,
            fmt::format("{} bool {}", spec.name(), is_bool));
      if (HasFatalFailure()) return;
    }
}

TEST(EfficientSm90Gpu, WhatIsNotFiniteStaysBehindTheMask) {
  for (const int64_t head_dim : {64, 128, 256})
    for (const bool is_bool : {false, true})
      for (const bool in_key : {false, true}) {
        CaseSpec spec = spec_of(DType::kF16, head_dim);
        AttentionCase host(spec);
        const TensorView& v = in_key ? host.request().k : host.request().v;
        write_element(v, std::nan(""), 0, 1, 100, 3);
        if (!in_key) write_element(v, kInf, 1, 0, 64, 17);
        check(host, make_mask(spec, is_bool, {1, 1, spec.L, spec.S}), true,
              fmt::format("{} NaN {}", spec.name(), in_key ? "key" : "value"));
        if (HasFatalFailure()) return;
      }
}

// The lowest number that the type holds is no mask: a row of nothing else is a mean.
TEST(EfficientSm90Gpu, AFiniteMinimumIsNoMask) {
  const CaseSpec spec = spec_of(DType::kBF16, 128);
  AttentionCase host(spec);
  Tensor mask = make_mask(spec, false, {1, 1, spec.L, spec.S});
  const double lowest = -3.3895313892515355e38;
  for (int64_t j = 0; j < spec.S; ++j) {
    write_element(mask, lowest, 0, 0, 5, j);
    write_element(mask, j < 130 ? lowest : 0.5, 0, 0, 6, j);
    write_element(mask, j >= 130 ? lowest : 0.5, 0, 0, 7, j);
    write_element(mask, j == 399 ? lowest : -kInf, 0, 0, 8, j);
    write_element(mask, -kInf, 0, 0, 9, j);
  }
  check(host, mask, true, spec.name());
}

std::vector<double> values_of(const TensorView& v) {
  std::vector<double> values;
  for (int64_t b = 0; b < v.size(0); ++b)
    for (int64_t h = 0; h < v.size(1); ++h)
      for (int64_t i = 0; i < v.size(2); ++i)
        for (int64_t e = 0; e < (v.rank == 4 ? v.size(3) : 1); ++e)
          values.push_back(read_element(v, b, h, i, e));
  return values;
}

// Large enough for the kernel ahead that finds them: a causal mask given as a tensor, against flash_sm80's
// own.
TEST(EfficientSm90Gpu, TilesThatTheMaskRemovesAreLeftOut) {
  CaseSpec spec = spec_of(DType::kBF16, 128);
  spec.B = 1;
  spec.Hq = 16;
  spec.L = spec.S = 2048;
  spec.causal = CausalMode::kTopLeft;
  AttentionCase host(spec);
  std::vector<double> out, lse;
  {
    DeviceCase device(host);
    const Status status = sdpa(device.request(), device.outputs(), {{"flash_sm80"}}, device.options());
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_TRUE(device.fetch());
    out = values_of(host.out().view());
    lse = values_of(host.lse().view());
  }
  Tensor mask = DeviceCase::must(Tensor::empty(DType::kBool, {1, 1, spec.L, spec.S}));
  for (int64_t i = 0; i < spec.L; ++i)
    for (int64_t j = 0; j < spec.S; ++j) write_element(mask, j <= i ? 1 : 0, 0, 0, i, j);
  host.request().causal = CausalMode::kNone;
  host.request().mask = mask;
  host.request().mask_kind = MaskKind::kBool;
  DeviceCase device(host);
  if (hopper()) {
    EXPECT_EQ(kernel_of(device.request()), "kernel mask_tiles");
  }
  const Status status = sdpa(device.request(), device.outputs(), {{"efficient"}}, device.options());
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_TRUE(device.fetch());
  EXPECT_EQ(compare(host.out().view(), out, 0.05), "");
  EXPECT_EQ(compare(host.lse().view(), lse, 1e-3), "");
}

}  // namespace
}  // namespace attnscope::testing
