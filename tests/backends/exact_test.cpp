// Which requests flash on Hopper wants an exact instance for, and which one. Compiles nothing; no GPU is
// needed.
#include "backends/cuda_flash_sm90/exact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace attnscope::flash_sm90 {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Request request_of(int64_t head_dim, int64_t value_dim, bool causal, int64_t rows = 4096) {
  Request r;
  const Device gpu{DeviceType::kCuda, 0};
  r.q = r.k = TensorView::contiguous(nullptr, DType::kBF16, {2, 16, rows, head_dim}, gpu);
  r.v = TensorView::contiguous(nullptr, DType::kBF16, {2, 16, rows, value_dim}, gpu);
  r.causal = causal ? CausalMode::kTopLeft : CausalMode::kNone;
  return r;
}

std::string name_of(const Request& r) {
  const cuda::WantedInstance wanted = wanted_instance(r);
  return wanted.instance ? wanted.instance->name : "";
}

TEST(Exact, HeadSizesThatFitAnEmbeddedImageWantNone) {
  for (const int64_t e : {64, 96, 128, 192, 256, 60, 88, 120, 184, 240, 250})
    for (const bool causal : {false, true}) EXPECT_EQ(name_of(request_of(e, e, causal)), "") << e;
  EXPECT_EQ(name_of(request_of(192, 128, false)), "");
  EXPECT_THAT(wanted_instance(request_of(64, 64, false)).why_not, HasSubstr("fits"));
  EXPECT_THAT(wanted_instance(request_of(240, 240, false)).why_not, HasSubstr("only 3 %"));
  EXPECT_THAT(wanted_instance(request_of(300, 300, false)).why_not, HasSubstr("up to 256"));
}

TEST(Exact, TheOthersGetTheSettingsThatWereMeasured) {
  const auto name = [](int64_t e, bool causal) { return name_of(request_of(e, e, causal)); };
  EXPECT_EQ(name(80, false), "flash_sm90_e80_v80_k112_w3_c0_bf16_exact");
  EXPECT_EQ(name(72, true), "flash_sm90_e80_v80_k112_w3_c1_bf16_exact");
  EXPECT_EQ(name(112, false), "flash_sm90_e112_v112_k144_w2_c0_bf16_exact");
  EXPECT_EQ(name(112, true), "flash_sm90_e112_v112_k128_w2_c1_bf16_exact");
  EXPECT_EQ(name(144, false), "flash_sm90_e144_v160_k112_w2_c0_bf16_exact")
      << "O leaves 32 columns at a time";
  EXPECT_EQ(name(208, true), "flash_sm90_e208_v224_k80_w2_c1_bf16_exact");
  EXPECT_EQ(name(48, false), "flash_sm90_e48_v48_k128_w3_c0_bf16_exact");
}

TEST(Exact, ShortCallsWantNone) {
  EXPECT_THAT(wanted_instance(request_of(80, 80, false, 64)).why_not, HasSubstr("too short"));
  EXPECT_THAT(wanted_instance(request_of(80, 80, true, 1000)).why_not, HasSubstr("fewer than 2048 rows"));
  EXPECT_NE(name_of(request_of(80, 80, false, 1000)), "");
  EXPECT_NE(name_of(request_of(160, 160, true, 1000)), "");
}

TEST(Exact, TheInstanceIsTheEmbeddedOneWithOtherSizes) {
  const auto& all = images();
  const auto embedded = std::find_if(all.begin(), all.end(), [](const EmbeddedImage& i) {
    return i.e == 192 && i.ev == 192 && i.causal && i.dtype == DType::kBF16;
  });
  ASSERT_NE(embedded, all.end());
  const cuda::WantedInstance wanted = exact_instance(request_of(160, 160, true), *embedded);
  ASSERT_TRUE(wanted.instance);
  EXPECT_EQ(wanted.instance->arch, "sm_90a");
  const std::vector<std::string>& defines = wanted.instance->defines;
  for (const char* define :
       {"ATTNSCOPE_E=160", "ATTNSCOPE_EV=160", "ATTNSCOPE_COLUMNS=112", "ATTNSCOPE_CONSUMERS=2",
        "ATTNSCOPE_CAUSAL=1", "ATTNSCOPE_TYPE=kBf16", "ATTNSCOPE_STORE=kDirect"})
    EXPECT_THAT(defines, Contains(define));
  EXPECT_EQ(
      defines.size(),
      static_cast<size_t>(
          std::count(embedded->defines, embedded->defines + std::string_view(embedded->defines).size(), ';') +
          1));
}

// Every source that an instance includes is inside the library.
TEST(Exact, TheSourcesAreComplete) {
  const cuda::WantedInstance wanted = wanted_instance(request_of(80, 80, false));
  ASSERT_TRUE(wanted.instance);
  const auto closure = cuda::closure_of(wanted.instance->entry, wanted.instance->sources);
  ASSERT_TRUE(closure) << closure.error().message;
  for (const cuda::KernelSource& source : *closure) {
    EXPECT_FALSE(source.text.empty()) << source.path;
    EXPECT_EQ(source.text.find("#include <"), std::string_view::npos)
        << source.path << " needs a system header";
  }
}

}  // namespace
}  // namespace attnscope::flash_sm90
