#include "compare/sweep.h"

#include "support/json_schema.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace attnscope::compare {
namespace {

std::vector<SweepAxis> axes_of(std::vector<std::string> words) {
  auto axes = parse_sweep(words);
  EXPECT_TRUE(axes) << (axes ? "" : axes.error().message);
  return axes ? *axes : std::vector<SweepAxis>{};
}

std::string mismatch(const std::string& schema_name, const std::string& text) {
  std::ifstream file(std::string(ATTNSCOPE_SOURCE_DIR) + "/docs/schemas/" + schema_name + ".schema.json");
  const auto schema = nlohmann::json::parse(file, nullptr, false);
  return support::schema_mismatch(schema, nlohmann::json::parse(text, nullptr, false), schema);
}

SweepPoint point(const std::string& variant, int64_t x, double us, const std::string& suffix = "") {
  SweepPoint p;
  p.at = "seq=" + std::to_string(x) + suffix;
  p.series = variant + suffix;
  p.variant = variant;
  p.x = x;
  p.ok = us > 0;
  p.reason = p.ok ? "" : "too big";
  p.device_us = us;
  p.p10_us = p.ok ? us - 0.5 : 0;
  p.p90_us = us + 0.5;
  return p;
}

TEST(ParseSweep, RangesAndLists) {
  const auto axes = axes_of({"seq=512..4096x2", "head_dim=128,64", "batch=1..7+3"});
  ASSERT_EQ(axes.size(), 3u);
  EXPECT_EQ(axes[0].values, (std::vector<int64_t>{512, 1024, 2048, 4096}));
  EXPECT_EQ(axes[1].values, (std::vector<int64_t>{64, 128}));
  EXPECT_EQ(axes[2].values, (std::vector<int64_t>{1, 4, 7}));
}

TEST(ParseSweep, RefusesWithTheWord) {
  for (const char* word : {"seq", "depth=1", "seq=0", "seq=1..8", "seq=8..1x2", "seq=1..8x1", "seq=1,,2",
                           "seq=", "seq=99999999999", "seq=1..1000000+1"}) {
    const std::vector<std::string> words{word};
    const auto axes = parse_sweep(words);
    ASSERT_FALSE(axes) << word;
    EXPECT_EQ(axes.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(axes.error().message.find(word), std::string::npos) << axes.error().message;
  }
  const std::vector<std::string> twice{"seq=1,2", "seq=3"};
  EXPECT_FALSE(parse_sweep(twice));
}

TEST(SweepProblems, FirstAxisVariesFastest) {
  const auto axes = axes_of({"seq=8,16", "head_dim=32,64"});
  const auto problems = sweep_problems(Problem{}, axes);
  ASSERT_EQ(problems.size(), 4u);
  EXPECT_EQ(problems[1].q_len, 16);
  EXPECT_EQ(problems[1].kv_len, 16);
  EXPECT_EQ(problems[1].head_dim, 32);
  EXPECT_EQ(problems[2].q_len, 8);
  EXPECT_EQ(problems[2].value_dim, 64);
  EXPECT_EQ(point_name(axes, 3), "seq=16 head_dim=64");
  EXPECT_EQ(series_suffix(axes, 3), " head_dim=64");
}

TEST(Crossings, WithinOneSetOfTheOtherAxes) {
  SweepResult r;
  r.axes = axes_of({"seq=1,2,4"});
  r.points = {point("naive", 1, 5),
              point("flash", 1, 9),
              point("naive", 2, 10),
              point("flash", 2, 9),
              point("naive", 4, 0),
              point("flash", 4, 20),
              point("naive", 1, 1, " head_dim=2"),
              point("naive", 2, 2, " head_dim=2")};
  const auto crossings = r.crossings();
  ASSERT_EQ(crossings.size(), 1u);
  EXPECT_EQ(crossings[0].from, "naive");
  EXPECT_EQ(crossings[0].to, "flash");
  EXPECT_EQ(crossings[0].after, 1);
  EXPECT_EQ(crossings[0].before, 2);
  const std::string text = render_text(r);
  EXPECT_NE(text.find("flash overtakes naive between seq 1 and 2"), std::string::npos) << text;
  EXPECT_NE(text.find("refused"), std::string::npos);
  const std::string json = render_json(r);
  EXPECT_NE(json.find("\"device_us\": null"), std::string::npos)
      << "a point that did not run is never a number";
  EXPECT_EQ(mismatch("sweep", json), "");
}

TEST(Crossings, EqualsWithinTheirSpreadDoNotCross) {
  SweepResult r;
  r.axes = axes_of({"seq=1,2,4"});
  r.points = {point("flash", 1, 5.0),     point("efficient", 1, 5.2), point("flash", 2, 9.3),
              point("efficient", 2, 9.0), point("flash", 4, 20.0),    point("efficient", 4, 19.0)};
  const auto crossings = r.crossings();
  ASSERT_EQ(crossings.size(), 1u);
  EXPECT_EQ(crossings[0].after, 2);
  EXPECT_EQ(crossings[0].before, 4);
}

class SweepLogTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "/attnscope_sweep_log_test.jsonl";
};

TEST_F(SweepLogTest, GoesOnWhereItStopped) {
  {
    auto log = SweepLog::open(path_, "this sweep");
    ASSERT_TRUE(log);
    ASSERT_TRUE(log->add({point("flash", 1, 3), point("naive", 1, 0)}));
  }
  const auto again = SweepLog::open(path_, "this sweep");
  ASSERT_TRUE(again);
  ASSERT_EQ(again->points().size(), 2u);
  EXPECT_TRUE(again->has("seq=1"));
  EXPECT_FALSE(again->has("seq=2"));
  EXPECT_EQ(again->points()[0].device_us, 3);
  EXPECT_EQ(again->points()[1].reason, "too big");
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) EXPECT_EQ(mismatch("sweep-log", line), "") << line;
}

TEST_F(SweepLogTest, HalfALineIsDroppedAndWrittenAnew) {
  {
    auto log = SweepLog::open(path_, "s");
    ASSERT_TRUE(log && log->add({point("flash", 1, 3)}));
  }
  std::ofstream(path_, std::ios::app) << R"({"at":"seq=2","ser)";
  {
    auto log = SweepLog::open(path_, "s");
    ASSERT_TRUE(log);
    EXPECT_EQ(log->points().size(), 1u);
    ASSERT_TRUE(log->add({point("flash", 2, 4)}));
  }
  const auto log = SweepLog::open(path_, "s");
  ASSERT_TRUE(log);
  EXPECT_EQ(log->points().size(), 2u);
}

TEST_F(SweepLogTest, AHeadOfTheWrongTypesIsRefused) {
  for (const char* head :
       {"{\"schema\": 5}", "{\"schema\": \"attnscope.sweep-log/1\", \"sweep\": []}", "[]"}) {
    std::ofstream(path_) << head << "\n";
    EXPECT_FALSE(SweepLog::open(path_, "one")) << head;
  }
}

TEST_F(SweepLogTest, AnotherSweepsLogIsRefused) {
  ASSERT_TRUE(SweepLog::open(path_, "one"));
  const auto other = SweepLog::open(path_, "two");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kBadInput);
  EXPECT_NE(other.error().message.find("another sweep"), std::string::npos);
  std::ofstream(path_) << "not json\n";
  EXPECT_FALSE(SweepLog::open(path_, "one"));
}

}  // namespace
}  // namespace attnscope::compare
