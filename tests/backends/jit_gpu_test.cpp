// Exact instances on a GPU: they give what the embedded image over zeros gives, which the conformance grid
// holds against float64; and what is shown when they are off. First-use time is printed, not judged.
#include "attention/plan_cache.h"
#include "cuda/device.h"
#include "cuda/nvrtc.h"
#include "support/device_case.h"
#include "tensor/convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace attnscope::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class JitOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto nvrtc = cuda::Nvrtc::open(); !nvrtc) GTEST_SKIP() << nvrtc.error().message;
    root_ = fs::temp_directory_path() / ("attnscope-jit-gpu-" + std::to_string(getpid()));
    setenv("ATTNSCOPE_CACHE", root_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("ATTNSCOPE_JIT");
    fs::remove_all(root_);
  }
  fs::path root_;
};

// Elements in the order that compare() takes them.
std::vector<double> values(const TensorView& view) {
  std::vector<double> all;
  for (int64_t b = 0; b < view.size(0); ++b)
    for (int64_t h = 0; h < view.size(1); ++h)
      for (int64_t i = 0; i < view.size(2); ++i)
        for (int64_t c = 0; c < (view.rank == 4 ? view.size(3) : 1); ++c)
          all.push_back(load_f64(view.data, view.dtype,
                                 b * view.stride(0) + h * view.stride(1) + i * view.stride(2) +
                                     (view.rank == 4 ? c * view.stride(3) : 0)));
  return all;
}

CaseSpec spec_of(int64_t head_dim, DType dtype, CausalMode causal) {
  CaseSpec spec;
  spec.Hq = spec.Hk = spec.Hv = 8;  // long enough for an exact instance to be worth compiling
  spec.L = 2100;
  spec.S = 2150;
  spec.E = spec.Ev = head_dim;
  spec.dtype = dtype;
  spec.causal = causal;
  return spec;
}

struct Answer {
  std::vector<double> out, lse;
  std::string described;
};

Answer answer(const char* backend, const char* jit, AttentionCase& host, DeviceCase& device) {
  const auto began = std::chrono::steady_clock::now();
  setenv("ATTNSCOPE_JIT", jit, 1);
  plan_cache().clear();
  const auto planned = DeviceCase::must(plan(device.request(), {{backend}}));
  std::printf("%s, head size %lld, %s: plan in %.2f s\n", backend, static_cast<long long>(host.spec().E), jit,
              std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  device.poison_outputs();
  DeviceCase::must(run(*planned, device.request(), device.outputs(), device.options()));
  DeviceCase::must(device.fetch());
  return {values(host.out().view()), values(host.lse().view()), planned->describe()};
}

// The same request with instances off and on. `off` is what the plan then says of the embedded image.
void expect_same(const char* backend, const CaseSpec& spec, const char* off) {
  AttentionCase host(spec);
  DeviceCase device(host);
  const Answer embedded = answer(backend, "off", host, device);
  EXPECT_THAT(embedded.described, HasSubstr(std::string(off) + ": no exact instance: ATTNSCOPE_JIT=off"));
  const Answer exact = answer(backend, "on", host, device);
  EXPECT_THAT(exact.described, HasSubstr("exact instance "));
  const Tolerance tolerance = tolerance_for(host.request(), false);
  EXPECT_EQ(compare(host.out().view(), embedded.out, 4 * tolerance.out), "") << exact.described;
  EXPECT_EQ(compare(host.lse().view(), embedded.lse, 4 * tolerance.lse + 1e-4), "") << exact.described;
  EXPECT_EQ(host.out().damage(), "");
  const Answer again = answer(backend, "on", host, device);  // kept in the process
  EXPECT_EQ(again.out, exact.out);
}

// Each instance takes a second or so to compile, so that what varies takes turns.
TEST_F(JitOnGpu, FlashOnHopper) {
  const auto info = cuda::device_info(0);
  if (!info || (*info)->sm() != 90) GTEST_SKIP() << "flash's exact instances are for sm_90a";
  int n = 0;
  for (const int64_t head_dim : {48, 80, 112, 160, 224})
    for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft})
      expect_same("flash", spec_of(head_dim, ++n % 2 == 0 ? DType::kF16 : DType::kBF16, causal),
                  "over zeros");
}

TEST_F(JitOnGpu, FlashSm80) {
  for (const int64_t head_dim : {80, 160})
    expect_same("flash_sm80", spec_of(head_dim, DType::kBF16, CausalMode::kTopLeft), "over zeros");
  CaseSpec spec = spec_of(192, DType::kF16, CausalMode::kNone);
  spec.Ev = 128;
  expect_same("flash_sm80", spec, "over zeros");
}

TEST_F(JitOnGpu, FeaturesOfFlashSm80) {
  CaseSpec spec = spec_of(96, DType::kBF16, CausalMode::kLowerRight);
  spec.paged = spec.append = true;
  spec.page_size = 64;
  spec.appended = spec.L;
  spec.softcap = 20;
  expect_same("flash_sm80", spec, "over zeros");
  spec = spec_of(192, DType::kBF16, CausalMode::kLowerRight);
  spec.dropout = 0.2;
  expect_same("flash_sm80", spec, "over zeros");
}

TEST_F(JitOnGpu, Decode) {
  for (const int64_t head_dim : {96, 192}) {
    CaseSpec spec = spec_of(head_dim, DType::kBF16, CausalMode::kLowerRight);
    spec.B = 2;
    spec.L = 1;
    spec.S = 9000;
    spec.Hk = spec.Hv = 4;
    spec.kv_lengths = head_dim == 96;
    expect_same("decode", spec, "in the general loop");
  }
}

}  // namespace
}  // namespace attnscope::testing
