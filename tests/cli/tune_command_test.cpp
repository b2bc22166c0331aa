// What `compare --tune` refuses; what it measures is in tests/compare/tune_test.cpp.
#include "cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace attnscope::cli {
namespace {

using ::testing::HasSubstr;

std::string error_of(const Arguments& arguments) {
  std::ostringstream out, err;
  Context context{out, err, {}};
  Arguments all{"compare"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  EXPECT_EQ(run_command_line(context, all), 2);
  return err.str();
}

TEST(TuneCommand, WhatDoesNotGoTogetherIsSaid) {
  EXPECT_THAT(error_of({"--tune", "--shape", "1,1,8,8"}), HasSubstr("--tune does not go with --shape"));
  EXPECT_THAT(error_of({"--tune", "--sweep", "seq=8,16"}), HasSubstr("--tune does not go with --sweep"));
  EXPECT_THAT(error_of({"--tune", "--backends", "flash"}), HasSubstr("--tune does not go with --backends"));
  EXPECT_THAT(error_of({"--tune-output", "here.order"}), HasSubstr("there is no --tune"));
}

}  // namespace
}  // namespace attnscope::cli
