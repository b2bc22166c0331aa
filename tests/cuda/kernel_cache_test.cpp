// The disk cache of compiled kernels: many processes, damage, versions, bounds. No GPU is needed.
#include "cuda/kernel_cache.h"

#include "base/sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

namespace attnscope::cuda {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string bytes(size_t n, unsigned seed) {
  std::string text(n, '\0');
  for (char& c : text) c = static_cast<char>((seed = seed * 1664525U + 1013904223U) >> 24);
  return text;
}

class Cache : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("attnscope-kernel-cache-" + std::to_string(getpid()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string folder() const { return (root_ / "kernels").string(); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()));
  }

  fs::path root_;
  const std::string hash_ = sha256_hex("source");
  const CachedKernel kernel_{"flash_e80", "NVRTC 13.0", bytes(5000, 1)};
};

TEST_F(Cache, WhatWasStoredIsFound) {
  const KernelCache cache(folder());
  EXPECT_FALSE(cache.find(hash_, kernel_.compiler)) << "nothing is there yet, not even the folder";
  ASSERT_TRUE(cache.store(hash_, kernel_));
  const auto found = KernelCache(folder()).find(hash_, kernel_.compiler);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->cubin, kernel_.cubin);
  EXPECT_EQ(found->name, kernel_.name);
  EXPECT_EQ(found->compiler, kernel_.compiler);
  struct stat info{};
  ASSERT_EQ(stat(folder().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
}

TEST_F(Cache, OtherSourcesAndCompilersAreOtherEntries) {
  const KernelCache cache(folder());
  ASSERT_TRUE(cache.store(hash_, kernel_));
  EXPECT_FALSE(cache.find(sha256_hex("source changed"), kernel_.compiler));
  EXPECT_FALSE(cache.find(hash_, "NVRTC 13.1"));
  ASSERT_TRUE(cache.store(hash_, {kernel_.name, "NVRTC 13.1", bytes(100, 2)}));
  EXPECT_EQ(cache.find(hash_, "NVRTC 13.1")->cubin.size(), 100U);
  EXPECT_EQ(cache.find(hash_, "NVRTC 13.0")->cubin.size(), 5000U);
}

TEST_F(Cache, WithoutACompilerAnyOnesNewestWillDo) {
  const KernelCache cache(folder());
  ASSERT_TRUE(cache.store(hash_, kernel_));
  ASSERT_TRUE(cache.store(hash_, {kernel_.name, "NVRTC 13.1", bytes(100, 2)}));
  const auto hour = std::chrono::hours(1);
  fs::last_write_time(cache.path_of(hash_, "NVRTC 13.0"), fs::file_time_type::clock::now() - hour);
  EXPECT_EQ(cache.find(hash_, "")->compiler, "NVRTC 13.1");
  EXPECT_FALSE(cache.find(sha256_hex("other"), ""));
}

TEST_F(Cache, DamageAnywhereIsSeen) {
  const KernelCache cache(folder());
  ASSERT_TRUE(cache.store(hash_, kernel_));
  const std::string path = cache.path_of(hash_, kernel_.compiler);
  std::ifstream file(path, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  const auto put = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  };
  for (size_t at = 0; at < whole.size(); at += at < 300 ? 1 : 97) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    put(damaged);
    std::string problem;
    EXPECT_FALSE(cache.find(hash_, kernel_.compiler, &problem)) << at;
    EXPECT_THAT(problem, HasSubstr("is damaged")) << at;
  }
  for (size_t size = 0; size < whole.size(); size += size < 300 ? 1 : 97) {
    put(whole.substr(0, size));
    EXPECT_FALSE(cache.find(hash_, kernel_.compiler)) << "cut to " << size;
  }
  put(whole + "x");
  EXPECT_FALSE(cache.find(hash_, kernel_.compiler)) << "longer";
  ASSERT_TRUE(cache.store(hash_, kernel_));
  EXPECT_TRUE(cache.find(hash_, kernel_.compiler)) << "stored again over the damage";
}

// An entry under another's name is not what its name says.
TEST_F(Cache, ARenamedEntryIsNotBelieved) {
  const KernelCache cache(folder());
  ASSERT_TRUE(cache.store(hash_, kernel_));
  const std::string other = sha256_hex("other");
  fs::copy_file(cache.path_of(hash_, kernel_.compiler), cache.path_of(other, kernel_.compiler));
  fs::copy_file(cache.path_of(hash_, kernel_.compiler), cache.path_of(hash_, "NVRTC 14.0"));
  EXPECT_FALSE(cache.find(other, kernel_.compiler));
  EXPECT_FALSE(cache.find(hash_, "NVRTC 14.0"));
}

TEST_F(Cache, ManyProcessesMayWriteOneEntry) {
  constexpr int kProcesses = 8, kRounds = 20;
  ASSERT_TRUE(KernelCache(folder()).store(hash_, kernel_));
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const KernelCache cache(folder());
      bool good = true;
      for (int round = 0; round < kRounds; ++round) {
        good &= cache.store(hash_, kernel_).has_value();
        const auto found = cache.find(hash_, kernel_.compiler);  // always whole, never half of another's
        good &= found && found->cubin == kernel_.cubin;
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(files(), 1U) << "no temporary is left";
}

TEST_F(Cache, OldEntriesGoWhenItGrows) {
  const KernelCache cache(folder(), 20'000);
  for (int i = 0; i < 6; ++i) {
    const std::string hash = sha256_hex(std::to_string(i));
    ASSERT_TRUE(cache.store(hash, kernel_));
    const auto age = std::chrono::minutes(60 - i);
    fs::last_write_time(cache.path_of(hash, kernel_.compiler), fs::file_time_type::clock::now() - age);
    (void)cache.find(sha256_hex("0"), kernel_.compiler);  // in use all the time
  }
  EXPECT_LE(files(), 4U);
  EXPECT_TRUE(cache.find(sha256_hex("0"), kernel_.compiler)) << "used last, though it is the oldest";
  EXPECT_TRUE(cache.find(sha256_hex("5"), kernel_.compiler));
  EXPECT_FALSE(cache.find(sha256_hex("1"), kernel_.compiler));
  ASSERT_TRUE(cache.store(sha256_hex("large"), {"n", "c", bytes(50'000, 3)}));
  EXPECT_TRUE(cache.find(sha256_hex("large"), "c")) << "what was just stored stays, whatever its size";
}

TEST_F(Cache, WhatDeadWritersLeftGoesToo) {
  const KernelCache cache(folder());
  ASSERT_TRUE(cache.store(hash_, kernel_));
  const std::string left = cache.path_of(hash_, kernel_.compiler) + ".tmp1.1";
  std::ofstream(left) << "half";
  ASSERT_TRUE(cache.store(hash_, kernel_));
  EXPECT_TRUE(fs::exists(left)) << "it may still be written";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(cache.store(hash_, kernel_));
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(Cache, AFolderOfOthersIsNotUsed) {
  const KernelCache cache(folder());
  ASSERT_TRUE(cache.store(hash_, kernel_));
  chmod(folder().c_str(), 0777);
  std::string problem;
  EXPECT_FALSE(cache.find(hash_, kernel_.compiler, &problem));
  EXPECT_THAT(problem, HasSubstr("can be written by others"));
  EXPECT_FALSE(cache.store(hash_, kernel_));
}

TEST_F(Cache, AFolderThatCannotBeMadeIsAnError) {
  fs::create_directories(root_);
  std::ofstream(root_ / "kernels") << "a file";
  const Status stored = KernelCache(folder()).store(hash_, kernel_);
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace attnscope::cuda
