// attnscope occupancy, rules and check as a person runs them: texts, exit codes, and JSON that fits
// docs/schemas.
#include "cli/command.h"
#include "support/json_schema.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace attnscope::cli {
namespace {

struct Outcome {
  int code = 0;
  std::string out, err;
};

Outcome attnscope(const Arguments& arguments) {
  std::ostringstream out, err;
  Context context{out, err, Terminal{}};
  const int code = run_command_line(context, arguments);
  return {code, out.str(), err.str()};
}

std::string fixture(std::string_view name) {
  return std::string(ATTNSCOPE_SOURCE_DIR) + "/tests/analysis/rules/" + std::string(name);
}

std::string guess_file(std::string_view content) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("attnscope-" + std::to_string(::getpid()) + "-guess.toml");
  std::ofstream(path) << content;
  return path.string();
}

void expect_fits(std::string_view schema_name, const std::string& text) {
  std::ifstream in(std::string(ATTNSCOPE_SOURCE_DIR) + "/docs/schemas/" + std::string(schema_name) +
                   ".schema.json");
  const auto schema = nlohmann::json::parse(in, nullptr, false);
  const auto value = nlohmann::json::parse(text, nullptr, false);
  ASSERT_FALSE(schema.is_discarded()) << schema_name;
  ASSERT_FALSE(value.is_discarded()) << text.substr(0, 200);
  EXPECT_EQ(support::schema_mismatch(schema, value, schema), "");
}

TEST(OccupancyCommand, AnswersTheIssuesQuestion) {
  const Outcome o = attnscope({"occupancy", "--arch", "sm_80", "--threads", "128", "--registers", "255"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.substr(0, o.out.find('\n')), "2 blocks, 8 of 64 warps, 12.5 %, registers");
}

TEST(OccupancyCommand, JsonFitsItsSchema) {
  const Outcome o = attnscope({"occupancy", "--arch", "sm_90", "--threads", "384", "--registers", "168",
                               "--shared-memory", "134144", "--grid", "132", "--json", "-"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_fits("occupancy", o.out);
  const auto j = nlohmann::json::parse(o.out, nullptr, false);
  EXPECT_EQ(j["kernels"][0]["occupancy_pct"], 18.75);
  EXPECT_EQ(j["kernels"][0]["limiters"], nlohmann::json::array({"registers", "shared_memory"}));
  EXPECT_EQ(j["kernels"][0]["waves"], 1.0);
}

TEST(OccupancyCommand, ReadsKernelsFromATrace) {
  const Outcome o = attnscope({"occupancy", "--kernel-from", fixture("false-zero-occupancy/fires.json")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("1 block, 12 of 64 warps, 18.75 %, registers + shared memory"), std::string::npos)
      << o.out;
  EXPECT_NE(
      o.out.find("the trace reports 0 %: wrong, 134,144 B is above the 49,152 B that Kineto calculates with"),
      std::string::npos)
      << o.out;
  const Outcome json =
      attnscope({"occupancy", "--kernel-from", fixture("false-zero-occupancy/fires.json"), "--json", "-"});
  expect_fits("occupancy", json.out);
}

TEST(OccupancyCommand, SaysWhatIsWrong) {
  EXPECT_EQ(attnscope({"occupancy"}).code, 2);
  const Outcome arch = attnscope({"occupancy", "--arch", "sm_81", "--threads", "128"});
  EXPECT_EQ(arch.code, 2);
  EXPECT_NE(arch.err.find("unknown architecture 'sm_81'"), std::string::npos);
  EXPECT_NE(arch.err.find("sm_80"), std::string::npos);
  EXPECT_EQ(attnscope({"occupancy", "--arch", "sm_80", "--threads", "-5"}).code, 2);
  EXPECT_EQ(attnscope({"occupancy", "--kernel-from", "no-such-file.json"}).code, 3);
  const Outcome big = attnscope({"occupancy", "--arch", "sm_80", "--threads", "2048"});
  EXPECT_EQ(big.code, 0);
  EXPECT_NE(big.out.find("0 blocks: 2048 threads per block; the most is 1024"), std::string::npos) << big.out;
}

TEST(RulesCommand, ListsAndExplains) {
  const Outcome list = attnscope({"rules"});
  EXPECT_EQ(list.code, 0);
  EXPECT_NE(list.out.find("hidden-copy"), std::string::npos);
  const Outcome page = attnscope({"rules", "hidden-copy"});
  EXPECT_EQ(page.code, 0);
  EXPECT_NE(page.out.find("## Remedy"), std::string::npos);
  const Outcome kinds = attnscope({"rules", "sequence-kinds"});
  EXPECT_NE(kinds.out.find("softmax"), std::string::npos);
  expect_fits("rules", attnscope({"rules", "--json", "-"}).out);
  expect_fits("rules", attnscope({"rules", "hidden-copy", "--json", "-"}).out);
  expect_fits("rules", attnscope({"rules", "sequence-kinds", "--json", "-"}).out);
  const Outcome wrong = attnscope({"rules", "hidden-copi"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("did you mean 'hidden-copy'?"), std::string::npos);
}

TEST(CheckCommand, BrokenIsExitCodeOne) {
  const std::string guess = guess_file("[\"attn_fwd\"]\nkernels = 5\ncopies = 0\ntensor_cores = true\n");
  const Outcome o = attnscope({"check", fixture("hidden-copy/fires.json"), guess});
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_NE(o.out.find("copies = 0           BROKEN   1 per call × 3 calls: Memcpy DtoD, 268,435,456 B, "
                       "under aten::masked_fill"),
            std::string::npos)
      << o.out;
  EXPECT_NE(o.out.find("(events "), std::string::npos);
  EXPECT_NE(o.out.find("1 of 3 broken\n"), std::string::npos);
  const Outcome json = attnscope({"check", fixture("hidden-copy/fires.json"), guess, "--json", "-"});
  EXPECT_EQ(json.code, 1);
  expect_fits("check", json.out);
  std::filesystem::remove(guess);
}

TEST(CheckCommand, HeldIsExitCodeZero) {
  const std::string guess = guess_file("[\"attn_fwd\"]\nkernels = 5\ncopies = 1\n");
  const Outcome o = attnscope({"check", fixture("hidden-copy/fires.json"), guess});
  EXPECT_EQ(o.code, 0) << o.out << o.err;
  EXPECT_NE(o.out.find("all 2 held"), std::string::npos);
  std::filesystem::remove(guess);
}

TEST(CheckCommand, BadFilesAreExitCodeThree) {
  const std::string guess = guess_file("[attn_fwd]\nkernls = 5\n");
  const Outcome o = attnscope({"check", fixture("hidden-copy/fires.json"), guess});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find(":2: unknown key 'kernls'"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("did you mean 'kernels'?"), std::string::npos) << o.err;
  EXPECT_EQ(attnscope({"check", fixture("hidden-copy/fires.json"), "no-such-guess.toml"}).code, 3);
  EXPECT_EQ(attnscope({"check", "only-one"}).code, 2);
  std::filesystem::remove(guess);
}

}  // namespace
}  // namespace attnscope::cli
