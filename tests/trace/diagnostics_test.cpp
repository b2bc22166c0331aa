#include "trace/diagnostics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>

namespace attnscope::trace {
namespace {

TEST(Diagnostics, EveryRowIsCompleteAndItsIdIsUniqueKebabCase) {
  std::set<std::string> ids;
  for (size_t i = 0; i < kDiagCount; ++i) {
    const DiagInfo& info = diag_info(static_cast<Diag>(i));
    EXPECT_TRUE(ids.insert(std::string(info.id)).second) << info.id;
    EXPECT_FALSE(info.what.empty()) << info.id;
    EXPECT_FALSE(info.advice.empty()) << info.id;
    EXPECT_TRUE(std::all_of(info.id.begin(), info.id.end(), [](char c) {
      return c == '-' || std::islower(static_cast<unsigned char>(c)) ||
             std::isdigit(static_cast<unsigned char>(c));
    })) << info.id;
  }
}

// The table is in the order of the enumeration: a few fixed points, first, middle and last.
TEST(Diagnostics, TableFollowsTheEnumeration) {
  EXPECT_EQ(diag_info(Diag::kTruncatedFile).id, "truncated-file");
  EXPECT_EQ(diag_info(Diag::kUnescapedQuote).id, "unescaped-quote");
  EXPECT_EQ(diag_info(Diag::kDamagedEvent).id, "damaged-event");
  EXPECT_EQ(diag_info(Diag::kMemberTooLong).id, "member-too-long");
  EXPECT_EQ(diag_info(Diag::kUtf16).id, "utf-16");
  EXPECT_EQ(diag_info(Diag::kNegativeDuration).id, "negative-duration");
  EXPECT_EQ(diag_info(Diag::kDuplicateCorrelation).id, "duplicate-correlation");
  EXPECT_EQ(diag_info(Diag::kChildOutlivesParent).id, "child-outlives-parent");
}

TEST(Diagnostics, CountsAndTheFirstOrdinal) {
  Diagnostics d;
  d.add(Diag::kTimeZero, 17);
  d.add(Diag::kTimeZero, 3, 4);
  EXPECT_EQ(d.count(Diag::kTimeZero), 5u);
  EXPECT_EQ(d.first_ordinal[static_cast<size_t>(Diag::kTimeZero)], 17u);
  EXPECT_EQ(d.count(Diag::kTimeMissing), 0u);
}

}  // namespace
}  // namespace attnscope::trace
