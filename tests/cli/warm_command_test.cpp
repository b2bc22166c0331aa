// attnscope warm as a person runs it. Compiling needs NVRTC; where there is none those tests are skipped.
#include "cli/command.h"
#include "cuda/device.h"
#include "cuda/nvrtc.h"
#include "support/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace attnscope::cli {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

struct Outcome {
  int code = 0;
  std::string out, err;
};

Outcome warm(Arguments arguments) {
  std::ostringstream out, err;
  Context context{out, err, {}};
  arguments.insert(arguments.begin(), "warm");
  const int code = run_command_line(context, arguments);
  return {code, out.str(), err.str()};
}

nlohmann::json json_of(const Arguments& arguments, int code = 0) {
  Arguments all = arguments;
  all.insert(all.end(), {"--arch", "sm_90a", "--json", "-"});
  const Outcome run = warm(all);
  EXPECT_EQ(run.code, code) << run.err << run.out;
  const auto document = nlohmann::json::parse(run.out, nullptr, false);
  EXPECT_FALSE(document.is_discarded()) << run.out;
  std::ifstream file(fs::path(ATTNSCOPE_SOURCE_DIR) / "docs/schemas/warm.schema.json");
  const auto schema = nlohmann::json::parse(file, nullptr, false);
  EXPECT_FALSE(schema.is_discarded());
  EXPECT_EQ(support::schema_mismatch(schema, document, schema), "");
  return document;
}

class Warm : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("attnscope-warm-" + std::to_string(getpid()));
    setenv("ATTNSCOPE_CACHE", root_.c_str(), 1);
    unsetenv("ATTNSCOPE_JIT");
  }
  void TearDown() override {
    unsetenv("ATTNSCOPE_CACHE");
    unsetenv("ATTNSCOPE_JIT");
    fs::remove_all(root_);
  }
  fs::path root_;
};

TEST_F(Warm, WhatFitsAnEmbeddedImageNeedsNothing) {
  const auto document = json_of({"2,16,4096,128", "2,16,4096,124", "1,1,64,80"});
  ASSERT_EQ(document["kernels"].size(), 3U);
  for (const auto& kernel : document["kernels"]) EXPECT_EQ(kernel["state"], "not needed");
  EXPECT_THAT(document["kernels"][0]["note"].get<std::string>(), HasSubstr("fits"));
  EXPECT_THAT(document["kernels"][2]["note"].get<std::string>(), HasSubstr("too short"));
  EXPECT_FALSE(fs::exists(root_)) << "nothing was written";
}

TEST_F(Warm, FeaturesGpusAndBackendsDecideWhichKernel) {
  setenv("ATTNSCOPE_JIT", "off", 1);  // names the instance all the same
  const auto instance = [](const Arguments& arguments) {
    Arguments all = arguments;
    all.insert(all.end(), {"--json", "-"});
    const auto document = nlohmann::json::parse(warm(all).out, nullptr, false);
    const auto& kernels = document["kernels"];
    return kernels.size() != 1 || kernels[0]["instance"].is_null()
               ? std::string()
               : kernels[0]["backend"].get<std::string>() + " " + kernels[0]["instance"].get<std::string>();
  };
  const std::string shape = "2,16,4096,96";
  EXPECT_EQ(instance({shape, "--arch", "sm_90a"}), "") << "flash has an image";
  EXPECT_EQ(instance({shape, "--arch", "sm_90a", "--with", "window"}), "") << "embedded images only";
  EXPECT_EQ(instance({shape, "--arch", "sm_90a", "--with", "bool"}), "") << "the same, of efficient";
  EXPECT_EQ(instance({shape, "--arch", "sm_80", "--with", "bool"}),
            "efficient mma_e96_v96_r128_k64_s1_bf16_featured_exact");
  EXPECT_EQ(instance({shape, "--arch", "sm_90a", "--with", "pages,softcap"}),
            "flash_sm80 mma_e96_v96_r128_k64_s1_bf16_featured_exact");
  EXPECT_EQ(instance({"16,32,8,1,8192,96,96", "--arch", "sm_90a"}),
            "decode decode_e96_v96_r1_t8_u1_s3_bf16_exact");
  EXPECT_EQ(instance({shape, "--arch", "sm_120a"}), "flash_sm80 mma_e96_v96_r128_k64_s1_bf16_exact")
      << "no embedded machine code fits it";
  EXPECT_EQ(instance({"2,16,4096,80", "--arch", "sm_90a", "--backends", "flash_sm80"}),
            "flash_sm80 mma_e80_v80_r128_k64_s2_bf16_exact");
}

TEST_F(Warm, SwitchedOffItFailsWithTheReason) {
  setenv("ATTNSCOPE_JIT", "off", 1);
  const auto document = json_of({"2,16,4096,80"}, 4);
  EXPECT_EQ(document["kernels"][0]["state"], "failed");
  EXPECT_THAT(document["kernels"][0]["note"].get<std::string>(), HasSubstr("ATTNSCOPE_JIT=off"));
  EXPECT_EQ(document["kernels"][0]["bytes"], nullptr);
}

TEST_F(Warm, WrongArgumentsAreUsage) {
  EXPECT_EQ(warm({}).code, 2);
  EXPECT_EQ(warm({"1,2,3", "--arch", "sm_90a"}).code, 2);
  const Outcome arch = warm({"2,16,4096,80", "--arch", "sm_35"});
  EXPECT_EQ(arch.code, 2);
  EXPECT_THAT(arch.err, HasSubstr("no kernel is compiled at run time for sm_35"));
  EXPECT_THAT(arch.err, HasSubstr("sm_90a"));
  EXPECT_EQ(warm({"2,16,4096,80", "--arch", "sm_90a", "--dtype", "int"}).code, 2);
  const Outcome feature = warm({"2,16,4096,80", "--arch", "sm_90a", "--with", "windows"});
  EXPECT_EQ(feature.code, 2);
  EXPECT_THAT(feature.err, HasSubstr("no feature 'windows'"));
  const Outcome backend = warm({"2,16,4096,80", "--arch", "sm_90a", "--backends", "math"});
  EXPECT_EQ(backend.code, 2);
  EXPECT_THAT(backend.err, HasSubstr("math compiles no kernels at run time"));
}

TEST_F(Warm, WithoutAGpuOneMustBeNamed) {
  if (cuda::unavailable_reason().empty()) GTEST_SKIP() << "there is a GPU";
  const Outcome run = warm({"2,16,4096,80"});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, HasSubstr("--arch sm_90a"));
}

TEST_F(Warm, CompilesOnce) {
  if (const auto nvrtc = cuda::Nvrtc::open(); !nvrtc) GTEST_SKIP() << nvrtc.error().message;
  const auto first = json_of({"2,16,4096,80"});
  const auto& kernel = first["kernels"][0];
  EXPECT_EQ(kernel["state"], "compiled");
  EXPECT_GT(kernel["compile_s"].get<double>(), 0);
  EXPECT_EQ(fs::file_size(kernel["path"].get<std::string>()) > kernel["bytes"].get<size_t>(), true);
  EXPECT_TRUE(kernel["path"].get<std::string>().starts_with(root_.string()));
  const auto second = json_of({"2,16,4096,72"});  // the same instance
  EXPECT_EQ(second["kernels"][0]["state"], "cached");
  EXPECT_EQ(second["kernels"][0]["path"], kernel["path"]);
  const Outcome text = warm({"2,16,4096,80", "--arch", "sm_90a"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("0 compiled, 1 already there, 0 not needed for sm_90a."));
}

TEST_F(Warm, ACacheThatCannotBeWrittenIsAFailure) {
  if (const auto nvrtc = cuda::Nvrtc::open(); !nvrtc) GTEST_SKIP() << nvrtc.error().message;
  fs::create_directories(root_);
  std::ofstream(root_ / "kernels") << "a file";
  const auto document = json_of({"2,16,4096,112"}, 4);
  EXPECT_EQ(document["kernels"][0]["state"], "failed");
  EXPECT_THAT(document["kernels"][0]["note"].get<std::string>(), HasSubstr("not kept"));
}

}  // namespace
}  // namespace attnscope::cli
