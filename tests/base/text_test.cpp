#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace attnscope {
namespace {

TEST(FormatTime, UsesTheUnitThatNeedsNoZeros) {
  EXPECT_EQ(format_time_us(45.1), "45.1 µs");
  EXPECT_EQ(format_time_us(751.2), "751 µs");
  EXPECT_EQ(format_time_us(2560), "2.56 ms");
  EXPECT_EQ(format_time_us(0.0881), "88.1 ns");
  EXPECT_EQ(format_time_us(3.2e6), "3.20 s");
  EXPECT_EQ(format_time_us(0.0 / 0.0), "unknown");
}

TEST(FormatBytes, DecimalUnits) {
  EXPECT_EQ(format_bytes(67108864), "67 MB");
  EXPECT_EQ(format_bytes(1.94e9), "1.9 GB");
  EXPECT_EQ(format_bytes(4), "4 B");
}

TEST(GroupDigits, ThousandsAndSign) {
  EXPECT_EQ(group_digits(268435456), "268,435,456");
  EXPECT_EQ(group_digits(-1000), "-1,000");
  EXPECT_EQ(group_digits(999), "999");
}

TEST(FormatPercent, NoTrailingZeros) {
  EXPECT_EQ(format_percent(12.5), "12.5 %");
  EXPECT_EQ(format_percent(18.75), "18.75 %");
  EXPECT_EQ(format_percent(100), "100 %");
}

TEST(TerminalSafe, EscapesWhatCouldActOnATerminal) {
  EXPECT_EQ(terminal_safe("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(terminal_safe("a\xff"), "a\\xff");
  EXPECT_EQ(terminal_safe("x\xe2\x80\xaey"), "x\\u{202e}y");
  EXPECT_EQ(terminal_safe("µs"), "µs");
  EXPECT_EQ(terminal_safe("abcdef", 3), "abc…");
}

TEST(Pad, CountsColumnsNotBytes) {
  EXPECT_EQ(pad("µs", 4), "µs  ");
  EXPECT_EQ(pad("µs", 4, true), "  µs");
}

TEST(Closest, SuggestsNearMissesOnly) {
  const std::vector<std::string> known{"naive", "inplace", "flash"};
  EXPECT_EQ(closest("flahs", known), "flash");
  EXPECT_EQ(closest("zzzzzzz", known), "");
}

}  // namespace
}  // namespace attnscope
