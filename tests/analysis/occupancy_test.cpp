#include "analysis/occupancy.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace {

BlockDemand demand(int64_t threads, int64_t registers, int64_t shared) {
  BlockDemand d;
  d.threads = threads;
  d.registers = registers;
  d.shared_bytes = shared;
  return d;
}

struct Case {
  const char* arch;
  int64_t threads, registers, shared;
  int blocks, warps;
  double percent;
  const char* limiter;
};
class Occupancies : public testing::TestWithParam<Case> {};

TEST_P(Occupancies, AreTheCalculators) {
  const Case& c = GetParam();
  const Result<SmLimits> sm = parse_arch(c.arch);
  ASSERT_TRUE(sm) << c.arch;
  const Occupancy o = occupancy(*sm, demand(c.threads, c.registers, c.shared));
  EXPECT_EQ(o.blocks_per_sm, c.blocks) << c.arch << " " << occupancy_line(o);
  EXPECT_EQ(o.warps_per_sm, c.warps) << c.arch << " " << occupancy_line(o);
  EXPECT_DOUBLE_EQ(o.percent, c.percent);
  EXPECT_EQ(limiter_text(o.limiters), c.limiter);
}

INSTANTIATE_TEST_SUITE_P(
    ByHand, Occupancies,
    testing::Values(
        // FlashAttention-2, head 64: 255 × 32 = 8160 registers per warp, handed out as 8192; 16384 per
        // sub-partition hold two.
        Case{"sm_80", 128, 255, 49152, 2, 8, 12.5, "registers"},
        Case{"sm_80", 128, 255, 0, 2, 8, 12.5, "registers"},
        // cuDNN on an H200: 168 registers → 5376 per warp, 3 per sub-partition; 134,144 B + 1 KiB once in 228
        // KiB.
        Case{"sm_90", 384, 168, 134144, 1, 12, 18.75, "registers + shared memory"},
        // cuDNN of the article on an A100.
        Case{"sm_80", 256, 240, 0, 1, 8, 12.5, "registers"},
        // Reserved kibibyte: 163 KiB + 1 KiB fills the multiprocessor; 82 KiB does not fit twice.
        Case{"sm_80", 256, 32, 163 * 1024, 1, 8, 12.5, "shared memory"},
        Case{"sm_80", 256, 32, 81 * 1024, 2, 16, 25, "shared memory"},
        Case{"sm_80", 256, 32, 82 * 1024, 1, 8, 12.5, "shared memory"},
        Case{"sm_70", 256, 32, 96 * 1024, 1, 8, 12.5, "shared memory"},
        Case{"sm_75", 256, 64, 0, 4, 32, 100, "registers + warps"},
        Case{"sm_86", 64, 32, 0, 16, 32, 100.0 * 32 / 48, "blocks"},
        Case{"sm_89", 64, 32, 0, 24, 48, 100, "warps + blocks"},
        Case{"sm_120", 1024, 32, 0, 1, 32, 100.0 * 32 / 48, "warps"},
        Case{"sm_100", 33, 16, 0, 32, 64, 100, "warps + blocks"},  // 33 threads are two warps
        Case{"sm_60", 512, 96, 0, 1, 16, 25, "registers"}));

TEST(Occupancy, ReportsWhyNothingFits) {
  const SmLimits sm = *parse_arch("sm_80");
  EXPECT_EQ(occupancy(sm, demand(1025, 32, 0)).cannot_launch, "1025 threads per block; the most is 1024");
  EXPECT_EQ(occupancy(sm, demand(128, 256, 0)).cannot_launch, "256 registers per thread; the most is 255");
  EXPECT_EQ(occupancy(sm, demand(1024, 80, 0)).cannot_launch,
            "81920 registers per block as allocated; the most is 65536");
  EXPECT_EQ(occupancy(sm, demand(128, 32, 166913)).cannot_launch,
            "166,913 B of shared memory per block; the most is 166,912 B");
  EXPECT_EQ(occupancy(sm, demand(128, 32, 166912)).blocks_per_sm, 1);
}

TEST(Occupancy, GridAndBarriers) {
  const SmLimits sm = *parse_arch("sm_90");
  BlockDemand d = demand(384, 168, 134144);
  d.grid_blocks = 66;
  const Occupancy half = occupancy(sm, d);
  EXPECT_DOUBLE_EQ(*half.waves, 0.5);
  EXPECT_DOUBLE_EQ(*half.achieved_percent, 9.375);
  d = demand(64, 16, 0);
  d.barriers = 8;  // 64 barriers per multiprocessor
  const Occupancy barriers = occupancy(sm, d);
  EXPECT_EQ(barriers.blocks_per_sm, 8);
  EXPECT_EQ(limiter_text(barriers.limiters), "barriers");
}

TEST(Occupancy, LineOfTheIssue) {
  EXPECT_EQ(occupancy_line(occupancy(*parse_arch("sm_80"), demand(128, 255, 0))),
            "2 blocks, 8 of 64 warps, 12.5 %, registers");
}

TEST(Occupancy, ArchitecturesAreReadInAnySpelling) {
  for (const char* text : {"sm_90", "sm90", "90", "9.0", "sm_90a", "compute_90"}) {
    const Result<SmLimits> sm = parse_arch(text);
    ASSERT_TRUE(sm) << text;
    EXPECT_EQ(sm->major, 9);
  }
  const Result<SmLimits> none = parse_arch("sm_81");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "unknown architecture 'sm_81'");
  EXPECT_NE(none.error().remedy.find("sm_120"), std::string::npos);
}

trace::DeviceProperties h200() {
  trace::DeviceProperties device;
  device.compute_major = 9;
  device.compute_minor = 0;
  device.max_threads_per_block = 1024;
  device.max_threads_per_sm = 2048;
  device.regs_per_block = device.regs_per_sm = 65536;
  device.shared_per_block = 49152;
  device.shared_per_block_optin = 232448;
  device.shared_per_sm = 233472;
  device.num_sms = 132;
  return device;
}

trace::KernelConfig launch(int threads, int registers, int64_t shared, int grid, double reported) {
  trace::KernelConfig config;
  config.block = {threads, 1, 1};
  config.grid = {grid, 1, 1};
  config.registers = registers;
  config.shared_bytes = shared;
  config.reported_occupancy_pct = reported;
  return config;
}

TEST(Occupancy, KinetoForgetsTheOptInLimit) {
  EXPECT_EQ(kineto_estimate(h200(), launch(128, 255, 49152, 1024, 13)), 13);  // exactly 48 KiB still counts
  EXPECT_EQ(kineto_estimate(h200(), launch(128, 255, 49153, 1024, 0)), 0);
  EXPECT_EQ(kineto_estimate(h200(), launch(384, 168, 134144, 132, 0)), 0);
  EXPECT_EQ(kineto_estimate(h200(), launch(128, 32, 0, 66, 3)), 3);  // half a block per multiprocessor
}

TEST(Occupancy, FalseZeroIsToldFromASmallGrid) {
  EXPECT_EQ(zero_cause(h200(), launch(384, 168, 134144, 132, 0)), ZeroCause::kFalse);
  EXPECT_EQ(zero_cause(h200(), launch(128, 16, 0, 1, 0)), ZeroCause::kSmallGrid);
  EXPECT_EQ(zero_cause(h200(), launch(128, 255, 0, 1024, 13)), ZeroCause::kNotZero);
}

TEST(Occupancy, FiguresThatNoDeviceHasLeaveThoseOfItsKind) {
  trace::DeviceProperties device = h200();
  const double percent = occupancy(*sm_limits(device), demand(128, 32, 0)).percent;
  device.max_threads_per_sm = device.max_threads_per_block = 1;
  EXPECT_EQ(occupancy(*sm_limits(device), demand(128, 32, 0)).percent, percent);
}

TEST(Occupancy, BlocksBeyondAllNumbersFitNowhere) {
  trace::KernelConfig config = launch(INT32_MAX, 32, 0, 1, 0);
  config.block = {INT32_MAX, INT32_MAX, INT32_MAX};
  EXPECT_EQ(block_demand(config)->threads, INT64_MAX);
  EXPECT_EQ(occupancy(*sm_limits(h200()), *block_demand(config)).blocks_per_sm, 0);
}

TEST(Occupancy, AmdNumbersAreNotTakenForNvidias) {
  trace::DeviceProperties device;
  device.compute_major = 9;
  device.compute_minor = 0;
  device.num_sms = 304;
  EXPECT_FALSE(sm_limits(device).has_value());
}

}  // namespace
}  // namespace attnscope
