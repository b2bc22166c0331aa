// attnscope compare and doctor as a person runs them: texts, files, exit codes, errors.
// ATTNSCOPE_BLESS=1 rewrites tests/golden/.
#include "compare/device.h"

#include "cli/command.h"
#include "formats/chrome/reader.h"
#include "support/json_schema.h"
#include "trace/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace attnscope::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

struct Outcome {
  int code = 0;
  std::string out, err;
};

Outcome attnscope(const Arguments& arguments, Terminal terminal = {}) {
  std::ostringstream out, err;
  Context context{out, err, terminal};
  const int code = run_command_line(context, arguments);
  return {code, out.str(), err.str()};
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A small problem, few rounds: what is looked at are words and counts, not times.
Arguments quick(Arguments more) {
  Arguments all{"compare", "--shape", "1,4,256,64", "--causal", "--device", "cpu"};
  all.insert(all.end(), more.begin(), more.end());
  if (std::find(more.begin(), more.end(), "--rounds") == more.end()) all.insert(all.end(), {"--rounds", "2"});
  return all;
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("attnscope-compare-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

void expect_fits(std::string_view name, const std::string& text) {
  const auto schema = nlohmann::json::parse(
      read(fs::path(ATTNSCOPE_SOURCE_DIR) / "docs/schemas" / (std::string(name) + ".schema.json")), nullptr,
      false);
  const auto value = nlohmann::json::parse(text, nullptr, false);
  ASSERT_FALSE(schema.is_discarded()) << name;
  ASSERT_FALSE(value.is_discarded()) << text.substr(0, 200);
  EXPECT_EQ(support::schema_mismatch(schema, value, schema), "");
}

// Figures of this run become #, line breaks of wrapped text and column padding go.
std::string masked(std::string text) {
  const std::vector<std::pair<const char*, const char*>> rules{
      {R"(^[^]*?(?=flash is fastest|naive takes))", ""},  // the machine
      {R"(\([^()]*–[^()]*\))", "(#)"},                    // spreads
      {R"(\((oneDNN|flash's|naive's)[^()]*\))", "(#)"},   // what the peak was reached by
      {R"([0-9][0-9.,]*(e[-+][0-9]+)? (µs|ms|ns|s|%|B|kB|MB|GB|GFLOP/s|GB/s|GFLOP|MFLOP|×)(?![a-z]))", "#"},
      {R"([0-9.]+e[-+][0-9]+)", "#"},
      {R"([0-9]+\.[0-9]+)", "#"},
      {R"(\b[0-9]{3,}\b(?! × 1024|,))", "#"},
      {R"( \(within the spread\))", ""},
      {R"(Times of [^]*?--min-time 5\.\n)", ""},
      {R"(\n {2,})", " "},
      {R"( +)", " "},
      {R"( hidden-copy: [^\n]*)", ""},  // whether a rule speaks depends on shares of time
      {R"(Also found [^\n]*\n)", ""},
      {R"((· )?(\w+)( \([0-9] kernels\))? # ?(?=·|\n))", "$1$2$3 # "},
  };
  for (const auto& [pattern, replacement] : rules)
    text = std::regex_replace(text, std::regex(pattern), replacement);
  return text;
}

void expect_golden(const std::string& name, const std::string& text) {
  const fs::path path = fs::path(ATTNSCOPE_SOURCE_DIR) / "tests/golden" / name;
  if (std::getenv("ATTNSCOPE_BLESS")) std::ofstream(path) << text;
  EXPECT_EQ(text, read(path)) << "ATTNSCOPE_BLESS=1 accepts the new text";
}

TEST(CompareCommand, GoldenText) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "instrumented kernels: flash need not be fastest, and the text names the fastest first";
#endif
  const Outcome o = attnscope(quick({"--backends", "flash,naive", "--rounds", "9"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err, "") << "no terminal: no progress";
  expect_golden("compare.txt", masked(o.out));
}

TEST(CompareCommand, JsonFitsItsSchemaAndTakesStdout) {
  const Outcome o = attnscope(quick({"--json", "-"}));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_fits("compare", o.out);
  const auto json = nlohmann::json::parse(o.out, nullptr, false);
  std::map<std::string, std::pair<int, int>> counts;
  for (const auto& v : json["variants"]) {
    ASSERT_EQ(v["status"], "ok") << v.dump();
    EXPECT_EQ(v["error"]["within_tolerance"], true) << v["name"];
    counts[v["name"]] = {v["kernels_per_forward"], v["copies_per_forward"]};
  }
  EXPECT_EQ(counts["naive"], std::pair(5, 1));
  EXPECT_EQ(counts["inplace"], std::pair(5, 0));
  EXPECT_EQ(counts["efficient"], std::pair(1, 0));
  EXPECT_EQ(counts["flash"], std::pair(1, 0));
}

TEST(CompareCommand, SaysWhyItRunsOnTheCpuWhenNobodyAskedForIt) {
  const Outcome asked = attnscope(quick({"--backends", "flash"}));
  EXPECT_THAT(asked.out, Not(HasSubstr("no usable GPU")));
  if (compare::cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU: auto takes it";
  const Outcome o =
      attnscope({"compare", "--shape", "1,1,32,16", "--rounds", "2", "--backends", "flash", "--json", "-"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_fits("compare", o.out);
  EXPECT_THAT(o.out, HasSubstr("on the CPU: no usable GPU ("));
}

TEST(CompareCommand, TracesHoldExactlyWhatTheTableCounts) {
  const Folder folder;
  const Outcome o = attnscope(quick({"--json", folder / "c.json", "--trace-dir", folder / "traces"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("is fastest")) << "files leave stdout to the report";
  const auto json = nlohmann::json::parse(read(folder / "c.json"), nullptr, false);
  for (const auto& v : json["variants"]) {
    const std::string name = v["name"];
    const auto trace = formats::chrome::read_file(folder / ("traces/" + name + ".json"));
    ASSERT_TRUE(trace) << name << ": " << trace.error().message;
    const trace::Links links = trace::Links::build(*trace);
    const trace::RangeSum sum = links.range_sum(trace->find_text("attn_fwd"));
    const uint64_t calls = v["recorded_calls"];
    EXPECT_EQ(sum.calls, calls) << name;
    EXPECT_EQ(sum.own_thread.kernels, calls * v["kernels_per_forward"].get<uint64_t>()) << name;
    EXPECT_EQ(sum.own_thread.copies, calls * v["copies_per_forward"].get<uint64_t>()) << name;
    EXPECT_EQ(sum.own_thread.fills, calls * v["fills_per_forward"].get<uint64_t>()) << name;
    EXPECT_EQ(trace->totals().kernels, sum.own_thread.kernels) << name;
    EXPECT_EQ(attnscope({"table", folder / ("traces/" + name + ".json")}).code, 0) << name;
  }
}

TEST(CompareCommand, MarkdownAndPage) {
  const Folder folder;
  const Outcome o =
      attnscope(quick({"--backends", "flash,naive", "--markdown", "-", "--html", folder / "r.html"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("| naive | 5 | 5 | **1** | 0 |"));
  EXPECT_THAT(o.out, HasSubstr("Reproduce: `attnscope compare --shape 1,4,256,64 --dtype f32 --causal`"));
  const std::string page = read(folder / "r.html");
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("masked_fill_f32"));
}

TEST(CompareCommand, AsciiTerminalsGetAsciiOnly) {
  const Outcome o = attnscope(quick({"--backends", "flash,naive"}), {.utf8 = false});
  EXPECT_TRUE(
      std::all_of(o.out.begin(), o.out.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
  EXPECT_THAT(o.out, Not(HasSubstr("?"))) << "every character has an ASCII form of its own";
}

TEST(CompareCommand, ProgressOnlyOnATerminal) {
  const Outcome o = attnscope(quick({"--backends", "flash"}), {.live = true});
  EXPECT_THAT(o.err, HasSubstr("100 %"));
  EXPECT_THAT(o.out, Not(HasSubstr("100 %")));
}

TEST(CompareCommand, ABrokenGuessFileIsTheAnswerNo) {
  const Folder folder;
  std::ofstream(folder / "held.toml") << "[naive]\nkernels = 5\ncopies = 1\n";
  std::ofstream(folder / "broken.toml") << "[naive]\nkernels = 5\ncopies = 0\n";
  EXPECT_EQ(attnscope(quick({"--backends", "naive", "--guess", folder / "held.toml"})).code, 0);
  const Outcome o = attnscope(quick({"--backends", "naive", "--guess", folder / "broken.toml"}));
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.out, HasSubstr("naive: one copy you did not write"));
}

TEST(CompareCommand, GroupedHeadsAndOddSizes) {
  const Outcome o = attnscope({"compare", "--shape", "2,6,2,100,77,40,24", "--dtype", "bf16", "--causal",
                               "--rounds", "1", "--device", "cpu", "--json", "-"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_fits("compare", o.out);
}

TEST(CompareCommand, RefusalsKeepTheirReasonsAndFusedOnesRun) {
  const Outcome o = attnscope(quick({"--train"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("Refused\n   inplace"));
}

struct BadInput {
  Arguments arguments;
  int code;
  std::string error;  // what stderr must hold
};

class CompareErrors : public ::testing::TestWithParam<BadInput> {};

TEST_P(CompareErrors, OneLineWithTheValues) {
  Arguments arguments{"compare"};
  arguments.insert(arguments.end(), GetParam().arguments.begin(), GetParam().arguments.end());
  const Outcome o = attnscope(arguments);
  EXPECT_EQ(o.code, GetParam().code) << o.err;
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, HasSubstr("error: " + GetParam().error));
  EXPECT_LE(std::count(o.err.begin(), o.err.end(), '\n'), 2) << "the error, and its remedy";
}

INSTANTIATE_TEST_SUITE_P(
    BadInput, CompareErrors,
    ::testing::Values(
        BadInput{{"--shape", "8,16,1024"},
                 2,
                 "--shape needs 4 numbers B,H,S,D or 7 numbers B,H,Hkv,L,S,E,Ev; got 3 (8,16,1024)"},
        BadInput{
            {"--shape", "8,0,16,64"}, 2, "--shape: H is 0; every size must be from 1 to 2^40 (8,0,16,64)"},
        BadInput{{"--shape", "8,-1,16,64"}, 2, "--shape: H is -1"},
        BadInput{{"--shape", "8,x,16,64"}, 2, "--shape: 'x' is not a whole number"},
        BadInput{
            {"--shape", "1,1,99999999999999999999,8"}, 2, "--shape: '99999999999999999999' is not a whole"},
        BadInput{{"--shape", "1,3,2,8,8,8,8"}, 2, "--shape: 3 query heads do not divide over 2 kv heads"},
        BadInput{{"--device", "cpu", "--backends", "flsh"}, 2, "--backends: no variant 'flsh' on the CPU"},
        BadInput{{"--dtype", "bf17"}, 2, "--dtype: 'bf17' is no float type"},
        BadInput{{"--causal=left"}, 2, "--causal: 'left' is no alignment"},
        BadInput{{"--shape", "1,1,8,8", "--mask", "bool:3,8"},
                 2,
                 "--mask [1,1,3,8] does not broadcast to the scores [1,1,8,8]"},
        BadInput{{"--mask", "soft"}, 2, "--mask: 'soft' is no kind of mask"},
        BadInput{{"--window", "1,2,3"}, 2, "--window takes LEFT or LEFT,RIGHT; got 3 numbers"},
        BadInput{{"--dropout", "1.5"}, 2, "--dropout is 1.5; it must be between 0 and 1"},
        BadInput{{"--scale", "inf"}, 2, "--scale: 'inf' is not a finite number"},
        BadInput{{"--lengths", "1,2"}, 2, "--lengths needs one kv length for each of the"},
        BadInput{{"--layout", "sbhd"}, 2, "--layout: 'sbhd' is no layout"},
        BadInput{{"--device", "tpu"}, 2, "--device: 'tpu' is no device"},
        BadInput{{"--threads", "0"}, 2, "--threads: 0 is outside 1"},
        BadInput{{"--rounds", "0"}, 2, "--rounds: 0 is outside 1"},
        BadInput{{"--json", "/no/such/folder/c.json"}, 3, "--json: cannot write /no/such/folder/c.json"},
        BadInput{{"--json", "/tmp"}, 3, "--json: /tmp is a directory"},
        BadInput{{"--json", "-", "--markdown", "-"}, 2, "--json and --markdown both go to -"},
        BadInput{{"--trace-dir", "/proc/no"}, 3, "--trace-dir: cannot write into /proc/no"},
        BadInput{{"--guess", "/no/such.toml"}, 3, "cannot open /no/such.toml"},
        BadInput{{"--device", "cpu", "--shape", "1000,1000,100000,128"}, 4, "the tensors alone need"},
        BadInput{{"--bogus"}, 2, "there is no option --bogus"}));

TEST(CompareCommand, NothingHalfWritten) {
  const Folder folder;
  const Outcome o = attnscope(quick({"--json", folder / "c.json", "--markdown", "/no/such/folder/m.md"}));
  EXPECT_EQ(o.code, 3);
  EXPECT_EQ(folder.files(), 0u);
}

TEST(CompareCommand, HelpHasAnExample) {
  const Outcome o = attnscope({"compare", "--help"});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.out, HasSubstr("Example: attnscope compare --shape 8,16,1024,64"));
}

TEST(DoctorCommand, TellsEveryBackend) {
  const Outcome o = attnscope({"doctor"});
  EXPECT_EQ(o.code, 0) << o.err;
  for (const char* word :
       {"CPU", "ISA", "memory", "CUDA", "oneDNN", "flash", "efficient", "math", "inplace", "naive"})
    EXPECT_THAT(o.out, HasSubstr(word));
}

TEST(DoctorCommand, JsonFitsItsSchema) {
  const Outcome o = attnscope({"doctor", "--json", "-"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_fits("doctor", o.out);
}

}  // namespace
}  // namespace attnscope::cli
