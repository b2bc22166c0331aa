// explain, table and diff as a person runs them: texts, exit codes, files, and JSON that fits docs/schemas.
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "support/json_schema.h"
#include "support/trace_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace attnscope::cli {
namespace {

namespace fs = std::filesystem;
using support::read_text;
using support::trace_path;

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

class TraceCommands : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attnscope-cli-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(file(name), std::ios::binary) << content;
    return file(name);
  }
  fs::path folder_;
};

void expect_fits(const std::string& schema_name, const std::string& text) {
  const auto schema = nlohmann::json::parse(
      read_text(std::string(ATTNSCOPE_SOURCE_DIR) + "/docs/schemas/" + schema_name + ".schema.json"), nullptr,
      false);
  const auto value = nlohmann::json::parse(text, nullptr, false);
  ASSERT_FALSE(schema.is_discarded()) << schema_name;
  ASSERT_FALSE(value.is_discarded()) << text.substr(0, 200);
  EXPECT_EQ(support::schema_mismatch(schema, value, schema), "");
}

TEST_F(TraceCommands, ExplainSaysTheVerdictFirstAndTheNextStepLast) {
  const Outcome o = attnscope({"explain", trace_path("article/naive.json.gz")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(o.out.starts_with("naive.json.gz · PyTorch ≥ 2.7, NVIDIA H200, 3 steps, 277 events")) << o.out;
  EXPECT_NE(o.out.find("268,435,456 B copied inside aten::masked_fill"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("Attention  3 forward: written out by hand"), std::string::npos) << o.out;
  EXPECT_NE(o.out.rfind("--finding 1"), std::string::npos);
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("attnscope explain") != std::string::npos) continue;
    EXPECT_LE(display_width(line), 100u) << line;
  }
}

TEST_F(TraceCommands, ExplainOneFindingOneRange) {
  const Outcome finding = attnscope({"explain", trace_path("article/naive.json.gz"), "--finding", "2"});
  EXPECT_NE(finding.out.find("remedy"), std::string::npos);
  EXPECT_NE(finding.out.find("event 139"), std::string::npos) << finding.out;
  const Outcome none = attnscope({"explain", trace_path("article/naive.json.gz"), "--finding", "99"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("there is no finding 99"), std::string::npos);
  const Outcome range = attnscope({"explain", trace_path("article/naive.json.gz"), "--range", "attn_fwd"});
  EXPECT_NE(range.out.find("15 kernels + 3 copies + 3 fills"), std::string::npos) << range.out;
  const Outcome typo = attnscope({"explain", trace_path("article/naive.json.gz"), "--range", "attn_fw"});
  EXPECT_EQ(typo.code, 2);
  EXPECT_NE(typo.err.find("did you mean attn_fwd"), std::string::npos);
}

TEST_F(TraceCommands, ExplainFailOn) {
  const std::string naive = trace_path("article/naive.json.gz"), flash = trace_path("article/flash.json.gz");
  EXPECT_EQ(attnscope({"explain", naive, "--fail-on", "hidden-copy"}).code, 1);
  EXPECT_EQ(attnscope({"explain", naive, "--fail-on", "warning"}).code, 1);
  EXPECT_EQ(attnscope({"explain", naive, "--fail-on", "error"}).code, 0);
  EXPECT_EQ(attnscope({"explain", flash, "--fail-on", "warning", "--fail-on", "hidden-copy"}).code, 0);
  EXPECT_EQ(attnscope({"explain", flash, "--fail-on", "hidden-cpy"}).code, 2);
}

TEST_F(TraceCommands, ExplainWritesEveryKindOfFile) {
  const Outcome o = attnscope({"explain", trace_path("article/cudnn.json.gz"), "--json", file("a.json"),
                               "--markdown", file("a.md"), "--html", file("a.html"), "--repair",
                               file("r.json.gz"), "--write-guess", file("g.toml")});
  ASSERT_EQ(o.code, 0) << o.err;
  expect_fits("explain", read_text(file("a.json")));
  EXPECT_NE(read_text(file("a.md")).find("## Findings"), std::string::npos);
  EXPECT_TRUE(read_text(file("a.html")).starts_with("<!doctype html>"));
  EXPECT_NE(read_text(file("g.toml")).find("attn_fwd"), std::string::npos);
  // What was repaired shows the same figures.
  const Outcome again = attnscope({"explain", file("r.json.gz"), "--json", "-"});
  const auto before = nlohmann::json::parse(read_text(file("a.json"))),
             after = nlohmann::json::parse(again.out);
  EXPECT_EQ(before["ranges"], after["ranges"]);
  EXPECT_EQ(before["attention"], after["attention"]);
}

TEST_F(TraceCommands, JsonOnStdoutIsAllThatIsPrinted) {
  const Outcome o = attnscope({"explain", trace_path("article/flash.json.gz"), "--json", "-"});
  EXPECT_EQ(o.out.front(), '{');
  expect_fits("explain", o.out);
}

TEST_F(TraceCommands, SeveralTracesAreCompared) {
  fs::create_directories(folder_ / "ranks");
  for (const char* name : {"rank-10", "rank-2"})
    fs::copy(trace_path("article/flash.json.gz"), folder_ / "ranks" / (std::string(name) + ".json.gz"));
  const Outcome o = attnscope({"explain", file("ranks"), "--json", file("ranks.json")});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("The 2 traces agree"), std::string::npos) << o.out;
  EXPECT_LT(o.out.rfind("rank-2.json.gz"), o.out.rfind("rank-10.json.gz"));
  expect_fits("explain-ranks", read_text(file("ranks.json")));
  fs::create_directories(folder_ / "empty");
  EXPECT_EQ(attnscope({"explain", file("empty")}).code, 3);
}

TEST_F(TraceCommands, BadInputIsRefusedWithItsReason) {
  EXPECT_EQ(attnscope({"explain", file("missing.json")}).code, 3);
  const Outcome other = attnscope({"explain", write("list.json", "{\"a\": 1}")});
  EXPECT_EQ(other.code, 3);
  EXPECT_TRUE(other.err.starts_with("error: ")) << other.err;
  EXPECT_EQ(attnscope({"explain"}).code, 2);
  EXPECT_EQ(attnscope({"explain", trace_path("article/flash.json.gz"), "--nonsense"}).code, 2);
  EXPECT_EQ(attnscope({"explain", trace_path("article/flash.json.gz"), "--json", "/nonexistent/x.json"}).code,
            3);
  const Outcome unknown = attnscope({"explian"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("attnscope explain"), std::string::npos);
}

TEST_F(TraceCommands, HostileNamesNeitherReachTheTerminalNorMarkdown) {
  const std::string name = "evil\\u001b[31m|<script>alert(1)</script>`![x](y)\\u202e";
  const std::string path =
      write("evil.json",
            "[{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"" + name +
                "\",\"pid\":1,\"tid\":1,\"ts\":0,\"dur\":50},{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" +
                name + "op\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":20}]");
  for (const Arguments& arguments :
       {Arguments{"explain", path}, Arguments{"table", path}, Arguments{"table", path, "--outermost"},
        Arguments{"explain", path, "--markdown", "-"}, Arguments{"diff", path, path}}) {
    const Outcome o = attnscope(arguments);
    EXPECT_EQ(o.out.find('\x1b'), std::string::npos) << o.out;
    EXPECT_EQ(o.out.find("\u202e"), std::string::npos) << o.out;
  }
  const std::string markdown = attnscope({"explain", path, "--markdown", "-"}).out;
  for (const char* part : {"`!"}) EXPECT_EQ(markdown.find(part), std::string::npos) << markdown;
}

TEST_F(TraceCommands, AsciiWhereTheTerminalIsNotUtf8) {
  Terminal ascii;
  ascii.utf8 = false;
  const Outcome o = attnscope({"explain", trace_path("article/math.json.gz")}, ascii);
  for (const char c : o.out) ASSERT_GE(c, 0) << o.out;
  EXPECT_NE(o.out.find("us per call"), std::string::npos) << o.out;
}

TEST_F(TraceCommands, ColourOnlyWhereItWasAskedFor) {
  Terminal colour;
  colour.colour = true;
  EXPECT_NE(attnscope({"explain", trace_path("article/naive.json.gz")}, colour).out.find("\x1b[33mWARN"),
            std::string::npos);
  EXPECT_EQ(attnscope({"explain", trace_path("article/naive.json.gz")}).out.find('\x1b'), std::string::npos);
}

TEST_F(TraceCommands, NewcomersAreToldHowToRecord) {
  const Outcome o = attnscope({"explain", trace_path("programs/launch_bound.json.gz")});
  EXPECT_NE(o.out.find("Not seen   input shapes"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("record_shapes=True"), std::string::npos) << o.out;
  const std::string bare = write("bare.json", R"({"schemaVersion":1,"deviceProperties":[],"traceEvents":[
    {"ph":"X","cat":"cpu_op","name":"aten::mul","pid":1,"tid":1,"ts":1,"dur":20}]})");
  const Outcome nothing = attnscope({"explain", bare});
  EXPECT_NE(nothing.out.find("with profile(activities="), std::string::npos) << nothing.out;
}

TEST_F(TraceCommands, TableOptions) {
  const std::string naive = trace_path("article/naive.json.gz");
  const Outcome limited = attnscope({"table", naive, "--rows", "1", "--sort", "cpu_time_total"});
  EXPECT_NE(limited.out.find("cudaDeviceSynchronize"), std::string::npos) << limited.out;
  EXPECT_EQ(limited.out.find("aten::bmm"), std::string::npos);
  EXPECT_NE(attnscope({"table", naive, "--by-shape"}).out.find("[[128, 1024, 64], [128, 64, 1024]]"),
            std::string::npos);
  EXPECT_NE(attnscope({"table", naive, "--outermost"}).out.find("other threads"), std::string::npos);
  EXPECT_EQ(attnscope({"table", naive, "--sort", "nonsense"}).code, 2);
  EXPECT_EQ(attnscope({"table", naive, "--rows", "0"}).code, 2);
  EXPECT_EQ(attnscope({"table", naive, "--outermost", "--by-shape"}).code, 2);
  expect_fits("table", attnscope({"table", naive, "--json", "-"}).out);
  expect_fits("table", attnscope({"table", naive, "--outermost", "--json", "-"}).out);
}

TEST_F(TraceCommands, DiffOfTracesAndOfCompares) {
  const std::string naive = trace_path("article/naive.json.gz"),
                    inplace = trace_path("article/inplace.json.gz");
  EXPECT_EQ(attnscope({"diff", naive, inplace}).code, 0);
  EXPECT_EQ(attnscope({"diff", inplace, naive}).code, 1);
  EXPECT_EQ(attnscope({"diff", inplace, naive, "--threshold", "50"}).code, 0);
  expect_fits("diff", attnscope({"diff", inplace, naive, "--json", "-"}).out);

  const auto compare = [&](const std::string& name, double p50, const std::string& status, int batch) {
    return write(name, R"({"schema":"attnscope.compare/1","request":{"batch":)" + std::to_string(batch) +
                           R"(},"variants":[{"name":"flash","status":")" + status +
                           R"(","device_time_us":{"p10":)" + std::to_string(p50 * 0.99) + R"(,"p50":)" +
                           std::to_string(p50) + R"(,"p90":)" + std::to_string(p50 * 1.01) +
                           R"(,"samples":100}}]})");
  };
  const std::string a = compare("a.json", 100, "ok", 1), slow = compare("b.json", 120, "ok", 1),
                    same = compare("c.json", 101, "ok", 1), failed = compare("d.json", 100, "failed", 1),
                    other = compare("e.json", 100, "ok", 2);
  EXPECT_EQ(attnscope({"diff", a, slow}).code, 1);
  EXPECT_EQ(attnscope({"diff", a, same}).code, 0);
  EXPECT_EQ(attnscope({"diff", slow, a}).code, 0);
  EXPECT_EQ(attnscope({"diff", a, failed}).code, 1);
  EXPECT_EQ(attnscope({"diff", a, other}).code, 3);
  EXPECT_EQ(attnscope({"diff", a, naive}).code, 3);
  // Wide on both sides: no change that can be told, and none that can be excluded.
  const auto noisy = [&](const std::string& name, double p50) {
    return write(name,
                 R"({"schema":"attnscope.compare/1","request":{},"variants":[{"name":"flash","status":"ok",)"
                 R"("device_time_us":{"p10":50,"p50":)" +
                     std::to_string(p50) + R"(,"p90":200,"samples":5}}]})");
  };
  const Outcome unsure = attnscope({"diff", noisy("f.json", 100), noisy("g.json", 101), "--json", "-"});
  EXPECT_EQ(unsure.code, 0);
  EXPECT_NE(unsure.out.find("\"verdict\": \"unsure\""), std::string::npos) << unsure.out;
}

TEST_F(TraceCommands, ExplainTakesOtherThresholds) {
  const std::string naive = trace_path("article/naive.json.gz");
  EXPECT_EQ(
      attnscope({"explain", naive, "--fail-on", "hidden-copy", "--set", "hidden-copy.min_bytes=1e12"}).code,
      0);
  const Outcome typo = attnscope({"explain", naive, "--set", "hidden-copy.min_byte=1"});
  EXPECT_EQ(typo.code, 2);
  EXPECT_NE(typo.err.find("did you mean hidden-copy.min_bytes"), std::string::npos) << typo.err;
  for (const char* word : {"hidden-copy.min_bytes", "hidden-copy.min_bytes=", "hidden-copy.min_bytes=x",
                           "hidden-copy.min_bytes=nan", "hidden-copy.min_bytes=-1", "=", ""})
    EXPECT_EQ(attnscope({"explain", naive, "--set", word}).code, 2) << word;
}

TEST_F(TraceCommands, NothingThatWasAskedForIsPassedOver) {
  const std::string naive = trace_path("article/naive.json.gz");
  for (const char* option : {"--json", "--markdown", "--html", "--repair", "--write-guess", "--range"})
    EXPECT_EQ(attnscope({"explain", naive, option, ""}).code, 2) << option;
  EXPECT_EQ(attnscope({"explain", naive, "--finding", "1", "--range", "attn_fwd"}).code, 2);
  const Outcome memory = attnscope({"table", naive, "--sort", "self_cuda_memory_usage"});
  EXPECT_EQ(memory.code, 3);
  EXPECT_NE(memory.err.find("profile_memory=True"), std::string::npos) << memory.err;
  EXPECT_EQ(attnscope({"table", naive, "--sort", "flops"}).code, 3);
  EXPECT_EQ(attnscope({"table", naive, "--sort", "flops", "--outermost"}).code, 2);
}

TEST_F(TraceCommands, FindingsCountFromOne) {
  for (const char* number : {"0", "-1", "1e3", "99999999999999999999"})
    EXPECT_EQ(attnscope({"explain", trace_path("article/naive.json.gz"), "--finding", number}).code, 2)
        << number;
}

TEST_F(TraceCommands, AGuessAboutNothingIsNotWritten) {
  const std::string bare = write("bare.json", R"([{"ph":"i","name":"mark","pid":1,"tid":1,"ts":1}])");
  const Outcome o = attnscope({"explain", bare, "--write-guess", file("g.toml")});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find("no range or operator"), std::string::npos) << o.err;
  EXPECT_FALSE(fs::exists(file("g.toml")));
}

TEST_F(TraceCommands, OccupancyRefusesWhatItWouldIgnore) {
  const std::string naive = trace_path("article/naive.json.gz");
  EXPECT_EQ(attnscope({"occupancy", "--kernel-from", naive}).code, 0);
  EXPECT_EQ(attnscope({"occupancy", "--kernel-from", naive, "--kernel", "softmax"}).code, 0);
  for (const char* option : {"--arch", "--threads", "--registers", "--shared-memory", "--barriers",
                             "--cluster", "--sms", "--grid"}) {
    const Outcome o = attnscope(
        {"occupancy", "--kernel-from", naive, option, option == std::string("--arch") ? "sm_80" : "2"});
    EXPECT_EQ(o.code, 2) << option;
    EXPECT_NE(o.err.find(option), std::string::npos) << o.err;
  }
  const auto with = [](const char* arch, const char* option, const char* value) {
    return attnscope({"occupancy", "--arch", arch, "--threads", "128", option, value}).code;
  };
  EXPECT_EQ(with("sm_80", "--cluster", "2"), 2);
  EXPECT_EQ(with("sm_80", "--cluster", "1"), 0);
  EXPECT_EQ(with("sm_90", "--cluster", "16"), 0);
  EXPECT_EQ(with("sm_90", "--cluster", "17"), 2);
  EXPECT_EQ(with("sm_90", "--barriers", "16"), 0);
  EXPECT_EQ(with("sm_90", "--barriers", "17"), 2);
  EXPECT_EQ(with("sm_90", "--kernel", "softmax"), 2);
}

TEST_F(TraceCommands, RecordIsThereAndSaysWhyItCannot) {
  EXPECT_EQ(attnscope({"record"}).code, 2);
  EXPECT_EQ(attnscope({"record", "--help"}).code, 0);
  // Only a build without CUDA refuses for itself; elsewhere a missing program is what stops it.
  const Outcome o = attnscope({"record", "-o", file("t.json"), "--", "/nonexistent/program"});
  EXPECT_NE(o.code, 0);
  if (o.err.find("without CUDA") != std::string::npos) {
    EXPECT_EQ(o.code, 4);
  }
  EXPECT_FALSE(fs::exists(file("t.json")));
}

TEST_F(TraceCommands, DiffOfOddResultsOfCompare) {
  const auto odd = [&](const char* name, const std::string& rest) {
    return write(name, R"({"schema":"attnscope.compare/1","request":{},"variants":)" + rest);
  };
  const std::string times = R"([5,null,{"name":7},{"name":"x","status":"ok","device_time_us":{"p10":-1e308,)"
                            R"("p50":1e308,"p90":1e308,"samples":1e300}}]})";
  const Outcome huge = attnscope({"diff", odd("a.json", times), odd("b.json", times)});
  EXPECT_EQ(huge.code, 0) << huge.err;
  EXPECT_LT(huge.out.size(), 1000u) << huge.out;
  for (const char* damaged : {"[", "{}}", "5}"}) {
    const Outcome o = attnscope({"diff", odd("c.json", damaged), file("a.json")});
    EXPECT_EQ(o.code, 3) << damaged;
    EXPECT_NE(o.err.find("a damaged result of compare"), std::string::npos) << o.err;
  }
}

TEST_F(TraceCommands, DiffSaysWhatItWasGiven) {
  const std::string naive = trace_path("article/naive.json.gz");
  ASSERT_EQ(attnscope({"explain", naive, "--json", file("report.json")}).code, 0);
  const Outcome o = attnscope({"diff", file("report.json"), naive});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find("attnscope.explain/1), not the trace it was made from"), std::string::npos) << o.err;
}

TEST_F(TraceCommands, HelpListsEveryCommandWithAnExample) {
  const Outcome o = attnscope({"--help"});
  EXPECT_EQ(o.code, 0);
  for (const Command* command : commands()) {
    EXPECT_NE(o.out.find(command->example), std::string::npos) << command->name;
    const Outcome help = attnscope({command->name, "--help"});
    EXPECT_EQ(help.code, 0) << command->name;
    EXPECT_NE(help.out.find("--help"), std::string::npos) << command->name;
    const size_t example = help.out.find(command->example);
    ASSERT_NE(example, std::string::npos) << command->name;
    EXPECT_EQ(help.out.find(command->example, example + 1), std::string::npos) << command->name;
  }
  EXPECT_EQ(attnscope({"help"}).out, o.out);
  EXPECT_EQ(attnscope({"help", "explain"}).out, attnscope({"explain", "--help"}).out);
  EXPECT_EQ(attnscope({"help", "nonsense"}).code, 2);
  EXPECT_EQ(attnscope({"help", "help"}).code, 0);
  EXPECT_EQ(attnscope({}).code, 2);
  EXPECT_EQ(attnscope({"--version"}).code, 0);
}

TEST(ToAscii, ReplacesWhatReportsUse) {
  EXPECT_EQ(to_ascii("45.1 µs · 2×3 … ≥ 5 → ◄ ±"), "45.1 us | 2x3 ... >= 5 -> < +-");
  EXPECT_EQ(to_ascii("日本"), "??");
}

}  // namespace
}  // namespace attnscope::cli
