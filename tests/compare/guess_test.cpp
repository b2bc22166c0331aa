#include "compare/guess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace attnscope::compare {
namespace {

using ::testing::HasSubstr;

class GuessFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    path_ = ::testing::TempDir() + "guess_" + std::to_string(getpid()) + ".toml";
    std::ofstream(path_) << text;
    return path_;
  }
  ~GuessFile() override { std::remove(path_.c_str()); }
  std::string path_;
};

TEST_F(GuessFile, TablesAreVariants) {
  const GuessSheet sheet =
      read_guess_file(write("fastest = \"flash\"\n[\"naive\"]\nkernels = 5\ncopies = 0\n[math]\nfills = 2\n"))
          .value();
  EXPECT_EQ(sheet.fastest, "flash");
  EXPECT_EQ(sheet.by_variant.at("naive").kernels, 5);
  EXPECT_EQ(sheet.by_variant.at("naive").fills, std::nullopt);
  EXPECT_EQ(sheet.by_variant.at("math").fills, 2);
}

TEST_F(GuessFile, ErrorsNameTheLine) {
  const auto message = [&](const std::string& text) { return read_guess_file(write(text)).error().message; };
  EXPECT_THAT(message("[naive]\nkernel = 5\n"), HasSubstr("line 2: [naive] has no figure 'kernel'"));
  EXPECT_THAT(message("[naive]\nkernels = -5\n"),
              HasSubstr("line 2: kernels of [naive] must be a whole number"));
  EXPECT_THAT(message("[naive]\nkernels = 5.5\n"), HasSubstr("must be a whole number"));
  EXPECT_THAT(message("naive = 5\n"), HasSubstr("'naive' is not a table"));
  EXPECT_THAT(message("[naive\n"), HasSubstr("line 1"));
  EXPECT_EQ(read_guess_file(write("[naive\n")).error().code, ErrorCode::kBadInput);
  EXPECT_EQ(read_guess_file("/no/such/guess.toml").error().code, ErrorCode::kIo);
}

TEST_F(GuessFile, AGuessStatesSomething) {
  for (const char* empty : {"", "# only a comment\n", "[naive]\n", "[naive]\nkernels = 5\n[math]\n"}) {
    const auto sheet = read_guess_file(write(empty));
    ASSERT_FALSE(sheet) << empty;
    EXPECT_EQ(sheet.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(sheet.error().message, HasSubstr("states nothing"));
    EXPECT_NE(sheet.error().remedy, "");
  }
  EXPECT_TRUE(read_guess_file(write("fastest = \"flash\"\n")));
  const auto folder = read_guess_file(::testing::TempDir());
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().message, HasSubstr("is a folder"));
}

TEST(Guess, BreaksAreTheFiguresThatDiffer) {
  CallCounts counts;
  counts.kernels = 5;
  counts.copies = 1;
  Guess guess;
  guess.kernels = 5;
  guess.copies = 0;
  const auto breaks = broken("naive", guess, counts);
  ASSERT_EQ(breaks.size(), 1u);
  EXPECT_EQ(breaks[0].figure, "copies");
  EXPECT_EQ(breaks[0].guessed, 0);
  EXPECT_EQ(breaks[0].seen, 1);
  guess = {};
  EXPECT_TRUE(broken("naive", guess, counts).empty()) << "what was not guessed cannot break";
}

}  // namespace
}  // namespace attnscope::compare
