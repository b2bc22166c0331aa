// Case files come from other people: what is wrong with one is named with its line.
#include "verify/verify_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace attnscope::verify {
namespace {

using ::testing::HasSubstr;

std::string message(const std::string& text) {
  const auto cases = parse_cases(text, "f.jsonl");
  return cases ? "accepted" : cases.error().message;
}

// A case of 1 × 1 × 1 × 1 with `more` behind its tensors; k and v are constants.
std::string with(const std::string& more, const std::string& q = R"({"constant":1})",
                 const std::string& sizes = R"("B":1,"H":1,"L":1,"S":1,"E":1)") {
  return R"({"id":"A","dtype":"f32","sizes":{)" + sizes + R"(},"q":)" + q +
         R"(,"k":{"constant":1},"v":{"constant":1})" + more + "}";
}

TEST(Parse, ErrorsNameTheLine) {
  EXPECT_THAT(message("\n{\"id\":"), HasSubstr("f.jsonl line 2"));
  EXPECT_THAT(message(R"({"id":"A","colour":1})"), HasSubstr("unknown key 'colour'"));
  EXPECT_THAT(message(R"({"id":"A","dtype":"f8","sizes":{"B":1,"H":1,"L":1,"S":1,"E":1}})"),
              HasSubstr("unknown dtype 'f8'"));
  EXPECT_THAT(message(with("", R"({"values":[1,2]})")), HasSubstr("2 values for 1 elements"));
  EXPECT_THAT(message(R"({"id":"A","machinery":"x"})"
                      "\n"
                      R"({"id":"A","machinery":"x"})"),
              HasSubstr("the id 'A' is taken"));
  EXPECT_THAT(message(""), HasSubstr("holds no case"));
  EXPECT_EQ(message(with("")), "accepted");
}

TEST(Parse, WhatIsNoIntegerIsNotMadeOne) {
  const std::string sizes = R"("B":1,"H":1,"S":1,"E":1,"L":)";
  EXPECT_THAT(message(with("", R"({"constant":1})", sizes + "1.3e21")),
              HasSubstr("1.3e+21 is no whole number"));
  EXPECT_THAT(message(with("", R"({"constant":1})", sizes + "2.5")), HasSubstr("2.5 is no whole number"));
  EXPECT_THAT(message(with("", R"({"constant":1})", sizes + "true")), HasSubstr("true is no whole number"));
  EXPECT_THAT(message(with("", R"({"constant":1})", sizes + "-1")), HasSubstr("a size is -1"));
  EXPECT_THAT(message(with("", R"({"constant":1})", sizes + "9223372036854775807")), HasSubstr("beyond"));
  EXPECT_THAT(message(with("", R"({"constant":1})", sizes + "18446744073709551615")), HasSubstr("beyond"));
  EXPECT_THAT(message(with("", R"({"normal":-1})")), HasSubstr("-1 is no seed"));
  EXPECT_THAT(message(with("", R"({"normal":1e30})")), HasSubstr("1e+30 is no seed"));
  EXPECT_THAT(message(with("", R"({"constant":1,"nan_from_row":1e30})")), HasSubstr("no whole number"));
  EXPECT_THAT(message(with("", R"({"constant":1,"strides":[1,1,1,-9223372036854775808]})")),
              HasSubstr("beyond"));
  EXPECT_THAT(message(with("", R"({"constant":1,"strides":[1,1,1,1],"offset":-1})")),
              HasSubstr("-1 is negative"));
  EXPECT_THAT(message(with(R"(,"window":[1])")), HasSubstr("window takes 2 numbers; these are 1"));
  EXPECT_THAT(message(with(R"(,"window":7)")), HasSubstr("7 is no list of whole numbers"));
  EXPECT_THAT(message(with(R"(,"dropout":{"p":0.5,"seed":0.5})")), HasSubstr("0.5 is no seed"));
  EXPECT_THAT(message(with(R"(,"kv_lengths":[4294967296])")), HasSubstr("4294967296 does not fit 32 bits"));
  EXPECT_THAT(message(with(R"(,"page_size":1e30,"pages":[0])")), HasSubstr("no whole number"));
}

TEST(Parse, ContentsFitTheirTensors) {
  const std::string mask = R"(,"mask":{"kind":"bool","sizes":[1,1],)";
  // −1 + 1 keys: the remainder of a division by zero, once.
  EXPECT_THAT(message(with(mask + R"("left_padding":-1})")), HasSubstr("-1 is negative"));
  EXPECT_THAT(message(with(mask + R"("last_row_and_column_false":[1]})")),
              HasSubstr("takes 2 numbers; these are 1"));
  EXPECT_THAT(message(with(mask + R"("block":[0,0]})")), HasSubstr("block takes 3 numbers; these are 2"));
  EXPECT_THAT(message(with(R"(,"mask":{"kind":"bool","sizes":[1,1,1,1,1],"constant":1})")),
              HasSubstr("5 dimensions"));
  // A block table of two rows has no place for a third page.
  EXPECT_THAT(message(with(R"(,"page_size":1,"pages":[0,0,0])", R"({"constant":1})",
                           R"("B":2,"H":1,"L":1,"S":1,"E":1,"pages":1)")),
              HasSubstr("3 pages for a batch of 2"));
  EXPECT_THAT(message(with(R"(,"page_size":1,"pages":[0])", R"({"constant":1})",
                           R"("B":0,"H":1,"L":1,"S":1,"E":1,"pages":1)")),
              HasSubstr("1 pages for a batch of 0"));
}

TEST(Parse, MisspeltKeysAreErrorsAtEveryLevel) {
  EXPECT_THAT(message(with(R"(,"dropout":{"p":0.5,"sead":1})")),
              HasSubstr("dropout has the unknown key 'sead'"));
  EXPECT_THAT(message(R"({"id":"A","merge":[{"out":[1],"lse":0,"sum":1}]})"),
              HasSubstr("a state has the unknown key 'sum'"));
}

TEST(Materialise, RowsOfNothingTakeNoTime) {
  const auto cases = parse_cases(
      with("", R"({"constant":1})", R"("B":1,"H":1073741824,"L":65536,"S":1,"E":0,"Ev":0)"), "f.jsonl");
  ASSERT_TRUE(cases) << cases.error().message;
  EXPECT_GE(touched_elements(cases->front()), 0x1p46);  // rows have an LSE even so
  EXPECT_TRUE(materialise(cases->front(), false));
}

TEST(Parse, ListsEndAtTheDepthOfTensors) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(message(with("", R"({"values":)" + deep + "}")), HasSubstr("more than four deep"));
}

}  // namespace
}  // namespace attnscope::verify
