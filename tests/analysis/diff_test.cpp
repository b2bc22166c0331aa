#include "analysis/diff.h"

#include "support/trace_files.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attnscope {
namespace {

DiffRow row(std::vector<double> a, std::vector<double> b, double threshold = 0.05) {
  DiffRow r;
  r.a = estimate_of(a);
  r.b = estimate_of(b);
  judge(r, {threshold, 1});
  return r;
}

TEST(Judge, NeedsBothTheThresholdAndTheInterval) {
  EXPECT_EQ(row({100, 101, 99}, {110, 111, 109}).verdict, DiffVerdict::kSlower);
  EXPECT_EQ(row({110, 111, 109}, {100, 101, 99}).verdict, DiffVerdict::kFaster);
  EXPECT_EQ(row({100, 101, 99}, {103, 104, 102}).verdict, DiffVerdict::kSame);
  EXPECT_EQ(row({100, 101, 99}, {103, 104, 102}, 0.01).verdict, DiffVerdict::kSlower);
  EXPECT_EQ(row({60, 100, 140}, {80, 110, 150}).verdict, DiffVerdict::kUnsure);
  EXPECT_EQ(row({80, 100, 120}, {82, 102, 122}).verdict, DiffVerdict::kUnsure) << "wide, around no change";
  EXPECT_EQ(row({80, 100, 120}, {82, 102, 122}, 10).verdict, DiffVerdict::kSame)
      << "wide, yet within ten times";
  EXPECT_EQ(row({100}, {120}).verdict, DiffVerdict::kSlower);
  EXPECT_EQ(row({100}, {102}).verdict, DiffVerdict::kSame) << "no interval, nothing to doubt";
  EXPECT_FALSE(row({100}, {120}).low.has_value());
  EXPECT_EQ(row({}, {120}).verdict, DiffVerdict::kNew);
  EXPECT_EQ(row({100}, {}).verdict, DiffVerdict::kGone);
}

TEST(Judge, IntervalIsWelchsOnTheLogarithm) {
  // Means 100 and 110, deviations 1: relative errors 1/100/√3 and 1/110/√3, 3.98 degrees of freedom.
  const DiffRow r = row({99, 100, 101}, {109, 110, 111});
  EXPECT_DOUBLE_EQ(r.ratio, 1.1);
  ASSERT_TRUE(r.low && r.high);
  EXPECT_NEAR(*r.low * *r.high, r.ratio * r.ratio, 1e-12);
  EXPECT_NEAR(*r.low, 1.1 * std::exp(-3.182 * std::sqrt((1e-4 + 1.0 / 12100) / 3)), 1e-6);
}

TEST(DiffTraces, SeesTheCopyThatMaskingInPlaceSaves) {
  const auto naive = support::load_trace("article/naive.json.gz"),
             inplace = support::load_trace("article/inplace.json.gz");
  const Metrics a = compute_metrics(naive->trace, naive->links),
                b = compute_metrics(inplace->trace, inplace->links);
  const Diff better = diff_traces(a, b, {});
  EXPECT_FALSE(better.regressed());
  bool gone = false;
  for (const DiffRow& r : better.rows) {
    gone |= r.name == "Memcpy DtoD (Device -> Device)" && r.verdict == DiffVerdict::kGone;
    if (r.kind == DiffKind::kRange && r.name == "attn_fwd") {
      EXPECT_EQ(r.verdict, DiffVerdict::kFaster);
      EXPECT_EQ(r.a.samples, 3);
      EXPECT_NEAR(r.ratio, 2808.926 / 3191.623, 1e-6);
    }
  }
  EXPECT_TRUE(gone);
  EXPECT_TRUE(diff_traces(b, a, {}).regressed());
  EXPECT_FALSE(diff_traces(b, a, {0.5, 1}).regressed());  // 14 % is within a threshold of 50 %
  EXPECT_FALSE(diff_traces(a, a, {}).regressed());
}

}  // namespace
}  // namespace attnscope
