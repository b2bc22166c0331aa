#include "formats/chrome/scan.h"

#include "formats/chrome/keys.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace attnscope::formats::chrome {
namespace {

struct Time {
  int64_t ns;
  uint8_t flags;
};
Time time_of(const std::string& text) {
  Time t{-12345, 0};
  EXPECT_TRUE(micros_to_ns(text, t.ns, t.flags)) << text;
  return t;
}

TEST(MicrosToNs, IsExactWhereDoublesAreNot) {
  EXPECT_EQ(time_of("1234.567").ns, 1234567);
  EXPECT_EQ(time_of("5104687564188.301").ns, 5104687564188301);
  EXPECT_EQ(time_of("1606910596288081").ns, 1606910596288081000);
  EXPECT_EQ(time_of("1606910596288081.123").ns, 1606910596288081123);
  EXPECT_EQ(time_of("9007199254740993.001").ns, 9007199254740993001);
  EXPECT_EQ(time_of("0").ns, 0);
  EXPECT_EQ(time_of("0.001").ns, 1);
  EXPECT_EQ(time_of("-2.5").ns, -2500);
  EXPECT_EQ(time_of("12.").ns, 12000);
}

TEST(MicrosToNs, RoundsBelowANanosecondAndSaysSo) {
  EXPECT_EQ(time_of("37.502999999999986").ns, 37503);
  EXPECT_TRUE(time_of("37.502999999999986").flags & kSubNanoFlag);
  EXPECT_EQ(time_of("1.0004").ns, 1000);
  EXPECT_EQ(time_of("1.0005").ns, 1001);
  EXPECT_FALSE(time_of("1.000000").flags & (kSubNanoFlag | kFractionFlag));
  EXPECT_TRUE(time_of("1.25").flags & kFractionFlag);
}

TEST(MicrosToNs, UnderstandsExponents) {
  EXPECT_EQ(time_of("1.5e3").ns, 1500000);
  EXPECT_EQ(time_of("5.104687564188301E12").ns, 5104687564188301);
  EXPECT_EQ(time_of("25e-3").ns, 25);
  EXPECT_EQ(time_of("1e-9").ns, 0);
  EXPECT_EQ(time_of("0e99999999999").ns, 0);
}

TEST(MicrosToNs, ClampsWhatDoesNotFit) {
  EXPECT_EQ(time_of("99999999999999999999").ns, std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(time_of("1e300").flags & kRangeFlag);
  EXPECT_EQ(time_of("-1e300").ns, -std::numeric_limits<int64_t>::max());
}

TEST(MicrosToNs, RefusesWhatIsNoNumber) {
  int64_t ns = 0;
  uint8_t flags = 0;
  for (const char* text : {"", "-", "N/A", "nan", "Infinity", "1.2.3", "12abc", "0x10", "1e", "e5", ".5."})
    EXPECT_FALSE(micros_to_ns(text, ns, flags)) << text;
}

TEST(ParseUnsigned, KnowsItsLimits) {
  uint64_t v = 0;
  uint8_t flags = 0;
  EXPECT_TRUE(parse_unsigned("18446744073709551615", v, flags));
  EXPECT_EQ(v, UINT64_MAX);
  EXPECT_TRUE(parse_unsigned("12345678901234567", v, flags));
  EXPECT_EQ(v, 12345678901234567u);
  EXPECT_TRUE(parse_unsigned("0x7fda0e810200", v, flags));
  EXPECT_EQ(v, 0x7fda0e810200u);
  EXPECT_EQ(flags, 0);
  EXPECT_FALSE(parse_unsigned("18446744073709551616", v, flags));
  EXPECT_EQ(flags, kHugeFlag);
  int64_t s = 0;
  flags = 0;
  EXPECT_TRUE(parse_signed("-42", s, flags));
  EXPECT_EQ(s, -42);
  EXPECT_FALSE(parse_signed("10159970886766084423", s, flags));
  EXPECT_EQ(flags, kHugeFlag);
}

std::string padded(std::string s) {
  s.append(kPadding, '\0');
  return s;
}

// Every length and every place of the closing bracket or quote, across the sixteen-byte blocks.
TEST(Values, EndsAreFoundAtEveryOffset) {
  for (size_t n = 0; n < 70; ++n) {
    const std::string text = "\"" + std::string(n, 'x') + "\"";
    const std::string bytes = padded(text);
    Token token;
    const char* behind = nullptr;
    ASSERT_TRUE(read_value(bytes.data(), bytes.data() + text.size(), token, behind));
    EXPECT_EQ(token.length, n);
    EXPECT_EQ(behind, bytes.data() + text.size());
    ASSERT_FALSE(read_value(bytes.data(), bytes.data() + text.size() - 1, token, behind)) << n;

    const std::string box = "[" + std::string(n, ' ') + "{\"a]\": \"\\\"}\"}" + std::string(n, '1') + "]";
    const std::string box_bytes = padded(box);
    ASSERT_TRUE(read_value(box_bytes.data(), box_bytes.data() + box.size(), token, behind)) << n;
    EXPECT_EQ(behind, box_bytes.data() + box.size()) << n;
    for (size_t cut = 1; cut < box.size(); cut += 7)
      ASSERT_FALSE(read_value(box_bytes.data(), box_bytes.data() + box.size() - cut, token, behind)) << n;
  }
}

TEST(Values, DepthCostsNoStackAndIsFlagged) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const std::string bytes = padded(deep);
  Token token;
  const char* behind = nullptr;
  ASSERT_TRUE(read_value(bytes.data(), bytes.data() + deep.size(), token, behind));
  EXPECT_EQ(token.length, deep.size());
  EXPECT_TRUE(token.flags & kTooDeepFlag);
}

TEST(Decode, EscapesSurrogatesAndDamage) {
  std::string out;
  bool bad_escape = false, bad_utf8 = false;
  decode_string(R"(a\n\"\\\/\u00e9\ud83d\ude00)", out, bad_escape, bad_utf8);
  EXPECT_EQ(out, "a\n\"\\/é😀");
  EXPECT_FALSE(bad_escape || bad_utf8);
  decode_string(R"(C:\Users\python)", out, bad_escape, bad_utf8);
  EXPECT_EQ(out, R"(C:\Users\python)");
  EXPECT_TRUE(bad_escape);
  decode_string("\\ud83d!", out, bad_escape, bad_utf8);
  EXPECT_EQ(out, "\xEF\xBF\xBD!");
  EXPECT_TRUE(bad_utf8);
  for (const char* bad : {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xE2\x82", "\x80"}) {
    EXPECT_FALSE(valid_utf8(bad));
    decode_string(bad, out, bad_escape, bad_utf8);
    EXPECT_TRUE(valid_utf8(out)) << out;
  }
}

template <typename Table, typename Spellings>
void expect_all_found(const Table& table, const Spellings& spellings) {
  for (const auto& s : spellings) {
    const std::string bytes = padded(std::string(s.text) + "\"");
    const uint8_t row = table.find({bytes.data(), s.text.size()});
    ASSERT_NE(row, table.kUnknown) << s.text;
    EXPECT_EQ(table.key(row), s.key) << s.text;
    const std::string longer = padded(std::string(s.text) + "x\"");
    EXPECT_EQ(table.find({longer.data(), s.text.size() + 1}), table.kUnknown) << s.text;
  }
}
TEST(Keys, EachIsFoundAndNothingElse) {
  expect_all_found(kEventTable, detail::kEventKeys);
  expect_all_found(kArgTable, detail::kArgKeys);
}

}  // namespace
}  // namespace attnscope::formats::chrome
