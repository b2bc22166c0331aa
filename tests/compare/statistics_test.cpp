#include "compare/statistics.h"

#include <gtest/gtest.h>

namespace attnscope::compare {
namespace {

TEST(Statistics, NothingIsNotZero) {
  EXPECT_EQ(distribution_of({}).samples, 0);
}

TEST(Statistics, OneSampleIsEveryPercentile) {
  const Distribution d = distribution_of({7});
  EXPECT_EQ(d.samples, 1);
  for (const double value : {d.mean, d.p10, d.p50, d.p90, d.p99, d.min, d.max}) EXPECT_EQ(value, 7);
}

TEST(Statistics, PercentilesInterpolateWhateverTheOrder) {
  const Distribution d = distribution_of({40, 10, 30, 20, 50});
  EXPECT_DOUBLE_EQ(d.mean, 30);
  EXPECT_DOUBLE_EQ(d.p10, 14);
  EXPECT_DOUBLE_EQ(d.p50, 30);
  EXPECT_DOUBLE_EQ(d.p90, 46);
  EXPECT_DOUBLE_EQ(d.p99, 49.6);
  EXPECT_EQ(d.min, 10);
  EXPECT_EQ(d.max, 50);
}

}  // namespace
}  // namespace attnscope::compare
