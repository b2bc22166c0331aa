// Where outputs go, and that half-written ones do not stay.
#include "base/output_path.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace attnscope {
namespace {

namespace fs = std::filesystem;

class OutputPaths : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const {
    std::ofstream(folder_ / name) << "text";
    return (folder_ / name).string();
  }
  fs::path folder_ = fs::path(::testing::TempDir()) / ("output_path_test." + std::to_string(getpid()));
};

TEST_F(OutputPaths, LinksAreFollowedAndWhatIsNoFileIsWrittenInPlace) {
  const std::string target = file("target");
  chmod(target.c_str(), 0640);
  fs::create_symlink(target, folder_ / "link");
  const OutputPath link = resolve_output((folder_ / "link").string());
  EXPECT_EQ(link.path, fs::canonical(target).string());
  EXPECT_EQ(link.mode, mode_t{0640});
  EXPECT_FALSE(link.in_place);
  EXPECT_TRUE(resolve_output("/dev/null").in_place);
  EXPECT_TRUE(same_file(target, (folder_ / "link").string()));
  EXPECT_FALSE(same_file(target, file("other")));
  EXPECT_FALSE(same_file("/dev/null", "/dev/null")) << "nothing there that could be destroyed";
}

TEST_F(OutputPaths, ATemporaryFileEndsWithItsHolder) {
  const std::string path = file("half");
  {
    const TemporaryFile held(path);
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(OutputPaths, AnInterruptRemovesWhatIsHeldAndNothingElse) {
  const std::string done = file("done"), kept = file("kept");
  {
    const TemporaryFile held(done);
  }
  file("done");  // another file of that name by now
  std::vector<std::unique_ptr<TemporaryFile>> held;
  std::vector<std::string> paths;
  for (int i = 0; i < 12; ++i) {  // more than there are slots
    paths.push_back(file("half" + std::to_string(i)));
    held.push_back(std::make_unique<TemporaryFile>(paths.back()));
  }
  remove_temporary_files();
  EXPECT_TRUE(fs::exists(done) && fs::exists(kept));
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(fs::exists(paths[static_cast<size_t>(i)])) << i;
  held.clear();
  for (const std::string& path : paths) EXPECT_FALSE(fs::exists(path)) << path;
}

}  // namespace
}  // namespace attnscope
