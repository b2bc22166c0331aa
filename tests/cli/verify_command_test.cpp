// attnscope verify on the command line: exit codes, the three outputs, files.
#include "cli/command.h"
#include "support/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace attnscope::cli {
namespace {

using ::testing::HasSubstr;

struct Finished {
  int code;
  std::string out, err;
};

Finished verify(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "verify");
  std::ostringstream out, err;
  Context context{out, err, Terminal{}};
  const int code = run_command_line(context, arguments);
  return {code, out.str(), err.str()};
}

std::string temporary(const char* name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(VerifyCommand, ACaseOfTheBuiltInSet) {
  const Finished run = verify({"--case", "A02", "--backends", "math,flash"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Right: 1 cases ran, none failed."));
  EXPECT_THAT(run.out, HasSubstr("flash"));
}

TEST(VerifyCommand, JsonFitsItsSchema) {
  const Finished run = verify({"--case", "M01", "--case", "X02", "--case", "S11", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto value = nlohmann::json::parse(run.out);
  std::ifstream in(std::string(ATTNSCOPE_SOURCE_DIR) + "/docs/schemas/verify.schema.json");
  const auto schema = nlohmann::json::parse(in);
  EXPECT_EQ(support::schema_mismatch(schema, value, schema), "");
  EXPECT_EQ(value["cases"].size(), 3u);
  EXPECT_TRUE(value["cases"][0]["needs_backward"].get<bool>());
}

TEST(VerifyCommand, AWrongResultIsExitCodeOne) {
  // The statement is wrong on purpose: the mean of 1 and 3 is not 5.
  const std::string file = temporary(
      "wrong.jsonl",
      R"({"id":"W","dtype":"f32","sizes":{"B":1,"H":1,"L":1,"S":2,"E":1},"q":{"constant":0},"k":{"constant":0},"v":{"values":[1,3]},"expect":{"out":[5]}})"
      "\n");
  const Finished run = verify({file});
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.out, HasSubstr("WRONG: 1 of 1 cases failed."));
  EXPECT_THAT(run.out, HasSubstr("out[0,0,0,0] is 2, expected 5"));
}

TEST(VerifyCommand, BadInputHasItsExitCodes) {
  EXPECT_EQ(verify({"--backends", "flahs"}).code, 2);
  EXPECT_EQ(verify({"--case", "nothing"}).code, 2);
  EXPECT_EQ(verify({"/nowhere/cases.jsonl"}).code, 3);
  const Finished broken = verify({temporary("broken.jsonl", "{\"id\":\n")});
  EXPECT_EQ(broken.code, 3);
  EXPECT_THAT(broken.err, HasSubstr("line 1"));
}

}  // namespace
}  // namespace attnscope::cli
