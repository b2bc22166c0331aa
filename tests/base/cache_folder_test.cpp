// Where the cache lies, when it is trusted, and files that are replaced whole.
#include "base/cache_folder.h"

#include "base/sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace attnscope {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// Known answers of FIPS 180-4 and of lengths around a block's end.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveWhatTheWholeGives) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>('a' + i % 26);
  for (const size_t step : {1, 7, 55, 56, 63, 64, 65, 128}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += step) hash.add(std::string_view(text).substr(at, step));
    EXPECT_EQ(hash.hex(), sha256_hex(text)) << step;
  }
}

TEST(Sha256, FieldsDoNotRunTogether) {
  Sha256 a, b;
  a.add_field("ab"), a.add_field("c");
  b.add_field("a"), b.add_field("bc");
  EXPECT_NE(a.hex(), b.hex());
}

class CacheFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("attnscope-cache-folder-" + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
    fs::permissions(root_, fs::perms::owner_all);
    for (const char* name : {"ATTNSCOPE_CACHE", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : before_) value ? setenv(name, value->c_str(), 1) : unsetenv(name);
    fs::remove_all(root_);
  }
  fs::path root_;
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST_F(CacheFolder, VariablesInOrder) {
  EXPECT_EQ(cache_folder_path("kernels").error().code, ErrorCode::kUnavailable);
  setenv("HOME", "/h", 1);
  EXPECT_EQ(*cache_folder_path("kernels"), "/h/.cache/attnscope/kernels");
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(*cache_folder_path("kernels"), "/x/attnscope/kernels");
  setenv("XDG_CACHE_HOME", "relative", 1);  // the XDG specification: ignored
  EXPECT_EQ(*cache_folder_path("kernels"), "/h/.cache/attnscope/kernels");
  setenv("ATTNSCOPE_CACHE", "/a", 1);
  EXPECT_EQ(*cache_folder_path("orders"), "/a/orders");
}

TEST_F(CacheFolder, IsMadeForItsUserAlone) {
  const std::string folder = (root_ / "a/b").string();
  ASSERT_TRUE(make_cache_folder(folder));
  struct stat info{};
  ASSERT_EQ(stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
  EXPECT_TRUE(make_cache_folder(folder)) << "again";
}

TEST_F(CacheFolder, OneThatOthersMayWriteToIsNotTrusted) {
  const std::string folder = (root_ / "open").string();
  ASSERT_TRUE(make_cache_folder(folder));
  chmod(folder.c_str(), 0777);
  const Status trusted = make_cache_folder(folder);
  ASSERT_FALSE(trusted);
  EXPECT_THAT(trusted.error().message, HasSubstr("can be written by others (mode 777)"));
  EXPECT_THAT(trusted.error().remedy, HasSubstr("chmod go-w"));
}

TEST_F(CacheFolder, WhatCannotBeMadeSaysWhy) {
  std::ofstream(root_ / "file") << "x";
  const Status made = make_cache_folder((root_ / "file/below").string());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kIo);
  EXPECT_THAT(made.error().message, HasSubstr("Not a directory"));
}

TEST_F(CacheFolder, FilesAreReplacedWholeAndLeaveNothing) {
  const std::string path = (root_ / "f").string();
  ASSERT_TRUE(replace_file(path, "first"));
  ASSERT_TRUE(replace_file(path, "second"));
  EXPECT_EQ(*read_file_bounded(path, 100), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
  EXPECT_FALSE(replace_file((root_ / "missing/f").string(), "x"));
  fs::create_directory(root_ / "folder");
  fs::create_directory(root_ / "folder/inside");
  EXPECT_FALSE(replace_file((root_ / "folder").string(), "x")) << "a folder stands there";
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 2)
      << "no temporary is left";
}

TEST_F(CacheFolder, ReadingIsBounded) {
  const std::string path = (root_ / "f").string();
  ASSERT_TRUE(replace_file(path, std::string(1000, 'x')));
  EXPECT_EQ(read_file_bounded(path, 1000)->size(), 1000U);
  EXPECT_EQ(read_file_bounded(path, 999).error().code, ErrorCode::kBadInput);
  EXPECT_EQ(read_file_bounded(root_.string(), 10).error().code, ErrorCode::kIo) << "a folder";
  EXPECT_EQ(read_file_bounded("/dev/zero", 10).error().code, ErrorCode::kIo) << "endless";
  const std::string pipe = (root_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_file_bounded(pipe, 10).error().code, ErrorCode::kIo) << "does not wait for a writer";
}

}  // namespace
}  // namespace attnscope
