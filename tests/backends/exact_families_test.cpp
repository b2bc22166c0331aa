// Which requests flash_sm80, efficient and decode want an instance of their own for, on which GPU; and that
// NVRTC makes it without spilling. No GPU is needed; where there is no NVRTC the last test is skipped.
#include "backends/cuda_decode/exact.h"
#include "backends/cuda_decode/heuristics.h"
#include "backends/cuda_mma/exact.h"
#include "cuda/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace attnscope {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

char g_memory[16];  // looked for, never read

Request request_of(int64_t head_dim, int64_t value_dim, int64_t rows, int64_t keys) {
  Request r;
  const Device gpu{DeviceType::kCuda, 0};
  r.q = TensorView::contiguous(nullptr, DType::kBF16, {4, 16, rows, head_dim}, gpu);
  r.k = TensorView::contiguous(nullptr, DType::kBF16, {4, 4, keys, head_dim}, gpu);
  r.v = TensorView::contiguous(nullptr, DType::kBF16, {4, 4, keys, value_dim}, gpu);
  return r;
}
Request prefill(int64_t head_dim, int64_t value_dim) {
  return request_of(head_dim, value_dim, 2048, 2048);
}
Request decoding(int64_t head_dim, int64_t value_dim) {
  return request_of(head_dim, value_dim, 1, 8192);
}

const cuda::GpuTarget kHopper = cuda::gpu_target(90), kAmpere = cuda::gpu_target(80),
                      kAda = cuda::gpu_target(89), kBlackwell = cuda::gpu_target(120);

std::string name_of(const cuda::WantedInstance& wanted) {
  return wanted.instance ? wanted.instance->name : "";
}
std::string mma_name(const Request& r, const cuda::GpuTarget& gpu = kHopper) {
  return name_of(mma::wanted_by_flash(r, gpu));
}
std::string decode_name(const Request& r, const cuda::GpuTarget& gpu = kHopper) {
  return name_of(decode::wanted_instance(r, gpu));
}

TEST(GpuTarget, NamesAreThoseOfTheCudaTools) {
  EXPECT_EQ(cuda::gpu_target_named("sm_90a")->sm, 90);
  EXPECT_EQ(cuda::gpu_target_named("sm_86")->arch(), "sm_86");
  EXPECT_EQ(cuda::gpu_target_named("sm_120a")->shared_per_block, 101376);
  EXPECT_EQ(cuda::gpu_target(89).code_arch(), "sm_80") << "one machine code for all of 8.x";
  EXPECT_EQ(kBlackwell.code_arch(), "sm_120");
  EXPECT_EQ(kHopper.shared_per_block, 232448);
  EXPECT_EQ(cuda::gpu_target(99).shared_per_block, 101376) << "not known: the least";
  for (const char* wrong : {"", "90", "sm_", "sm_35", "sm_900", "sm_90aa", "volta"})
    EXPECT_FALSE(cuda::gpu_target_named(wrong)) << wrong;
}

TEST(MmaExact, SizesBetweenTwoImages) {
  for (const int64_t e : {64, 96, 128, 192, 256}) EXPECT_EQ(mma_name(prefill(e, e)), "") << e;
  EXPECT_EQ(mma_name(prefill(240, 240)), "") << "6 % are not worth it";
  EXPECT_EQ(mma_name(prefill(80, 80)), "mma_e80_v80_r128_k64_s2_bf16_exact");
  EXPECT_EQ(mma_name(prefill(112, 112)), "mma_e112_v112_r128_k64_s2_bf16_exact");
  EXPECT_EQ(mma_name(prefill(192, 128)), "mma_e192_v128_r64_k64_s1_bf16_exact") << "E and Ev apart";
  EXPECT_EQ(mma_name(prefill(72, 72)), mma_name(prefill(80, 80)));
  EXPECT_EQ(mma_name(prefill(80, 80), kAda), "mma_e80_v80_r128_k64_s1_bf16_exact") << "100 KB: one stage";
  EXPECT_THAT(mma::wanted_by_flash(request_of(80, 80, 16, 16), kHopper).why_not, HasSubstr("too short"));
  EXPECT_THAT(mma::wanted_by_flash(prefill(64, 64), kHopper).why_not, HasSubstr("fits"));
  EXPECT_FALSE(mma::wanted_by_flash(prefill(300, 300), kHopper).serves);
}

TEST(MmaExact, FeaturedImagesHaveFewerSizes) {
  Request r = prefill(96, 96);
  r.softcap = 3;
  EXPECT_EQ(mma_name(r), "mma_e96_v96_r128_k64_s1_bf16_featured_exact");
  r.mask_kind = MaskKind::kBool;
  EXPECT_FALSE(mma::wanted_by_flash(r, kHopper).serves);
  EXPECT_EQ(name_of(mma::wanted_by_efficient(r, kHopper)), "mma_e96_v96_r128_k64_s1_bf16_featured_exact");
  Request slower = prefill(112, 112);
  slower.softcap = 3;
  EXPECT_THAT(mma::wanted_by_flash(slower, kHopper).why_not, HasSubstr("faster over zeros"));
  Request wide = prefill(192, 192);
  wide.softcap = 3;
  EXPECT_EQ(mma_name(wide), "mma_e192_v192_r64_k64_s1_bf16_featured_exact")
      << "not the 32 keys a step of 256";
  r.dropout.p = 0.5;
  EXPECT_THAT(name_of(mma::wanted_by_efficient(r, kHopper)), HasSubstr("_dropout_exact"));
  Request f32 = prefill(80, 80);
  f32.q.dtype = f32.k.dtype = f32.v.dtype = DType::kF32;
  EXPECT_FALSE(mma::wanted_by_efficient(f32, kHopper).serves);
}

TEST(MmaExact, AGpuWithoutMachineCodeGetsItsOwn) {
  const auto wanted = mma::wanted_by_flash(request_of(64, 64, 16, 16), kBlackwell);
  ASSERT_TRUE(wanted.instance) << "however short";
  EXPECT_EQ(wanted.instance->arch, "sm_120");
  for (const cuda::GpuTarget& gpu : {kHopper, kAmpere, kAda})
    EXPECT_EQ(mma_name(prefill(64, 64), gpu), "") << gpu.sm;
}

TEST(DecodeExact, SizesThatNoImageHas) {
  for (const auto& [e, ev] : {std::pair{64, 64}, {128, 128}, {192, 128}, {256, 256}})
    EXPECT_EQ(decode_name(decoding(e, ev)), "") << e;
  EXPECT_EQ(decode_name(decoding(96, 96)), "decode_e96_v96_r1_t8_u1_s3_bf16_exact");
  EXPECT_EQ(decode_name(decoding(192, 192)), "decode_e192_v192_r1_t4_u1_s4_bf16_exact")
      << "what a smaller head size leaves of shared memory becomes stages";
  EXPECT_FALSE(decode::wanted_instance(prefill(96, 96), kHopper).serves);
}

TEST(DecodeExact, WhatTheFastLoopDoesNotTakeStays) {
  EXPECT_THAT(decode::wanted_instance(decoding(72, 72), kHopper).why_not, HasSubstr("multiple of 16"));
  Request r = decoding(96, 96);
  r.softcap = 5;
  EXPECT_THAT(decode::wanted_instance(r, kHopper).why_not, HasSubstr("softcap"));
  r = decoding(96, 96);
  r.paging.block_table.data = g_memory;
  r.paging.block_table.sizes = {4, 512, 1, 1};
  r.paging.page_size = 24;
  EXPECT_THAT(decode::wanted_instance(r, kHopper).why_not, HasSubstr("pages of 24"));
  r.paging.page_size = 16;
  EXPECT_NE(decode_name(r), "");
  EXPECT_THAT(decode::wanted_instance(request_of(96, 96, 1, 200), kHopper).why_not, HasSubstr("too short"));
}

TEST(DecodeExact, AGpuWithoutMachineCodeGetsItsOwn) {
  const auto wanted = decode::wanted_instance(decoding(128, 128), kBlackwell);
  ASSERT_TRUE(wanted.instance);
  EXPECT_EQ(wanted.instance->arch, "sm_120");
  EXPECT_EQ(decode_name(decoding(128, 128), kAmpere), "");
}

// Every source that an instance includes is inside the library and needs no other.
TEST(ExactFamilies, TheSourcesAreComplete) {
  for (const cuda::WantedInstance& wanted :
       {mma::wanted_by_flash(prefill(80, 80), kHopper), decode::wanted_instance(decoding(96, 96), kHopper)}) {
    ASSERT_TRUE(wanted.instance);
    const auto closure = cuda::closure_of(wanted.instance->entry, wanted.instance->sources);
    ASSERT_TRUE(closure) << closure.error().message;
    for (const cuda::KernelSource& source : *closure)
      EXPECT_EQ(source.text.find("#include <"), std::string_view::npos) << source.path;
  }
}

// NVRTC takes the sources and what it makes spills nothing (jit_kernel refuses it else).
TEST(ExactFamilies, NvrtcCompilesThem) {
  const auto nvrtc = cuda::Nvrtc::open();
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message;
  Request featured = prefill(80, 80);
  featured.softcap = 3;
  const Result<cuda::KernelCache> no_cache = fail(ErrorCode::kUnavailable, "none");
  for (const cuda::WantedInstance& wanted :
       {mma::wanted_by_flash(prefill(112, 112), kHopper), mma::wanted_by_efficient(featured, kAda),
        decode::wanted_instance(decoding(96, 96), kHopper)}) {
    ASSERT_TRUE(wanted.instance);
    const auto kernel = cuda::jit_kernel(*wanted.instance, cuda::JitMode::kOn, nvrtc, no_cache);
    ASSERT_TRUE(kernel) << wanted.instance->name << ": " << kernel.error().message;
    EXPECT_EQ(kernel->cubin.substr(1, 3), "ELF");
  }
}

}  // namespace
}  // namespace attnscope
