#include "formats/chrome/strict.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>
#include <string>

namespace attnscope::formats::chrome {
namespace {

std::string strict(std::string_view raw) {
  std::string out;
  append_strict(raw, out);
  return out;
}

TEST(Strict, StrictTextIsKept) {
  for (const char* text :
       {"[[8, 16, 1024, 64], []]", R"({"a": [1, -2.5e3, true, null], "b": {"c": "x \"y\" \\z"}})",
        "[\"\", \"-2\", \"[8, 16]\"]", "12", "\"s\"", "[]", "{}"})
    EXPECT_EQ(strict(text), text);
}

TEST(Strict, WhatIsOddIsMadeStrict) {
  EXPECT_EQ(strict("[1,2 3]"), "[1, 2, 3]");
  EXPECT_EQ(strict("{\"a\": N/A, \"b\": inf, \"c\": -Infinity}"),
            R"({"a": "N/A", "b": "inf", "c": "-Infinity"})");
  EXPECT_EQ(strict("[01, 1., .5, +1, 0x1F]"), R"(["01", "1.", ".5", "+1", "0x1F"])");
  EXPECT_EQ(strict("[\"two\nlines\", \"C:\\Users\"]"), R"(["two\u000alines", "C:\\Users"])");
  EXPECT_EQ(strict("[\"\xFF\"]"), "[\"\xEF\xBF\xBD\"]");
  EXPECT_EQ(strict("[[1, 2}, {\"a\": 1]"), R"([[1, 2], {"a": 1}])");
  EXPECT_EQ(strict("{\"a\": }"), R"({"a": null})");
  EXPECT_EQ(strict("{[1]}"), R"({"": [1]})");
  EXPECT_EQ(strict(""), "null");
  EXPECT_EQ(strict("[1] [2]"), "[1]");
}

TEST(Strict, AnythingAtAllBecomesValidJson) {
  std::mt19937 random(7);
  const std::string alphabet = "[]{}\",:\\ \n1.e-nN/Atrue\xFF\xC3\x01";
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 24, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    const std::string out = strict(text);
    ASSERT_TRUE(nlohmann::json::accept(out)) << testing::PrintToString(text) << " became " << out;
    ASSERT_EQ(strict(out), out) << "strict text is kept";
    ASSERT_TRUE(is_strict(out)) << out;
    ASSERT_EQ(is_strict(text), nlohmann::json::accept(text)) << testing::PrintToString(text);
  }
}

TEST(Strict, WhatStrictTextIs) {
  for (const char* text :
       {"{\"a\": [1, -0.5e+3, true, null, {}], \"b\\u00e9\\n\": \"\\ud83d\\ude00\"}", " [ ] ", "0"})
    EXPECT_TRUE(is_strict(text)) << text;
  for (const char* text :
       {"",         "{",     "[1,]",    "{\"a\" 1}",   "{\"a\": 1,}", "{1: 2}",      "[1 2]",
        "01",       "NaN",   "\"\\x\"", "\"\\u12g4\"", "\"\\ud83d\"", "\"\\ude00\"", "\"a\nb\"",
        "\"\xff\"", "[1] 2", "\"open",  "[1}",         "1e999",       "-1E+400",     "\"\\u12"})
    EXPECT_FALSE(is_strict(text)) << text;
  EXPECT_EQ(strict("[1e999, 1e-999]"), R"(["1e999", 1e-999])");
  EXPECT_TRUE(is_strict(std::string(200, '[') + std::string(200, ']')));
  EXPECT_FALSE(is_strict(std::string(2000, '[') + std::string(2000, ']'))) << "deeper than parsers go";
}

}  // namespace
}  // namespace attnscope::formats::chrome
