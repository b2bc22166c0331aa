#include "analysis/guess.h"

#include "analysis/check.h"
#include "formats/chrome/reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

namespace attnscope {
namespace {

// ---- parsing ---------------------------------------------------------------------------------------

TEST(Comparison, ReadsOperatorsAndUnits) {
  EXPECT_EQ(parse_comparison("<= 200 us", GuessUnit::kTime)->value, 200e3);
  EXPECT_EQ(parse_comparison("<= 200 us", GuessUnit::kTime)->op, CompareOp::kLessEqual);
  EXPECT_EQ(parse_comparison("<1.5ms", GuessUnit::kTime)->value, 1.5e6);
  EXPECT_EQ(parse_comparison("> 2 µs", GuessUnit::kTime)->value, 2e3);
  EXPECT_EQ(parse_comparison(">= 12 %", GuessUnit::kPercent)->value, 12);
  EXPECT_EQ(parse_comparison("5", GuessUnit::kCount)->op, CompareOp::kEqual);
  EXPECT_EQ(parse_comparison("!= 5", GuessUnit::kCount)->op, CompareOp::kNotEqual);
}

TEST(Comparison, RefusesWhatItCannotMean) {
  for (const char* text :
       {"", "<=", "<= us", "<= 200", "200 kg", "<= -1 us", "nan us", "inf us", "1 us us", "=> 1 us"})
    EXPECT_FALSE(parse_comparison(text, GuessUnit::kTime)) << text;
  EXPECT_FALSE(parse_comparison("5 us", GuessUnit::kCount));
  EXPECT_FALSE(parse_comparison("5 us", GuessUnit::kPercent));
}

TEST(Comparison, HoldsOnTheRightSide) {
  EXPECT_TRUE(parse_comparison("<= 5", GuessUnit::kCount)->holds(5));
  EXPECT_FALSE(parse_comparison("< 5", GuessUnit::kCount)->holds(5));
  EXPECT_TRUE(parse_comparison(">= 5", GuessUnit::kCount)->holds(5));
  EXPECT_FALSE(parse_comparison("> 5", GuessUnit::kCount)->holds(5));
  EXPECT_FALSE(parse_comparison("!= 5", GuessUnit::kCount)->holds(5));
}

TEST(Guess, ReadsTheDesignsExample) {
  const Result<Guess> guess = parse_guess(R"(["attn_fwd"]
kernels = 5
copies  = 0
fills   = 1
sequence = ["gemm", "elementwise", "mask", "softmax", "gemm"]
backend = "flash"
tensor_cores = true
dtype = "bf16"
device_time = "<= 200 us"
host_time = "<= 50 us"
occupancy = ">= 12 %"
device_time_total = "<= 1 ms"
)",
                                          "guess.toml");
  ASSERT_TRUE(guess) << guess.error().message;
  ASSERT_EQ(guess->tables.size(), 1u);
  EXPECT_EQ(guess->tables[0].name, "attn_fwd");
  ASSERT_EQ(guess->tables[0].expectations.size(), 11u);
  EXPECT_EQ(guess->tables[0].expectations[0].text, "kernels = 5");
  EXPECT_EQ(guess->tables[0].expectations[3].text, "sequence = [gemm, elementwise, mask, softmax, gemm]");
  EXPECT_TRUE(guess->tables[0].expectations[10].total);
}

struct BadGuess {
  const char* toml;
  const char* message;
  const char* remedy;
};
class BadGuesses : public testing::TestWithParam<BadGuess> {};

TEST_P(BadGuesses, NameTheLineTheValueAndTheRemedy) {
  const Result<Guess> guess = parse_guess(GetParam().toml, "g.toml");
  ASSERT_FALSE(guess) << GetParam().toml;
  EXPECT_EQ(guess.error().code, ErrorCode::kBadInput);
  EXPECT_NE(guess.error().message.find(GetParam().message), std::string::npos) << guess.error().message;
  EXPECT_NE(guess.error().remedy.find(GetParam().remedy), std::string::npos) << guess.error().remedy;
}

INSTANTIATE_TEST_SUITE_P(
    Guess, BadGuesses,
    testing::Values(
        BadGuess{"", "holds no guess", "[\"attn_fwd\"]"},
        BadGuess{"kernels = 5\n", "g.toml:1: 'kernels' stands outside a table", "begin with"},
        BadGuess{"[a]\nkernls = 5\n", "g.toml:2: unknown key 'kernls'", "did you mean 'kernels'?"},
        BadGuess{"[a]\nkernels = -1\n", "g.toml:2: kernels is -1", ""},
        BadGuess{"[a]\nkernels = true\n", "g.toml:2: kernels is true; it takes a count", ""},
        BadGuess{"[a]\ndevice_time = 200\n", "device_time is 200; it takes a comparison with a unit", ""},
        BadGuess{"[a]\ndevice_time = \"<= 200\"\n", "device_time is \"<= 200\"", ""},
        BadGuess{"[a]\nbackend = \"flsh\"\n", "unknown backend 'flsh'", "did you mean 'flash'?"},
        BadGuess{"[a]\ndtype = \"bfloat\"\n", "unknown dtype 'bfloat'", "known: f64"},
        BadGuess{"[a]\nsequence = [\"gem\"]\n", "unknown kind \"gem\" in sequence", "did you mean 'gemm'?"},
        BadGuess{"[a]\nsequence = \"gemm\"\n", "sequence is \"gemm\"; it takes a list", ""},
        BadGuess{"[a]\ntensor_cores = \"yes\"\n", "it takes true or false", ""},
        BadGuess{"[a]\nmatch = \"glob\"\n", "match is \"glob\"", ""},
        BadGuess{"[\"a(\"]\nmatch = \"regex\"\n", "the pattern 'a(' cannot be read", "RE2"},
        BadGuess{"[aten::mm]\nkernels = 1\n", "g.toml:1:", "quotes"},
        BadGuess{"a\xc7\x9d = 1\n", "beyond ASCII outside quotes", "in quotes"},  // a hole in toml++'s tables
        BadGuess{"[a]\n\"\"\"x\n", "g.toml:2: a string of several lines", "one line"},
        BadGuess{"[a]\fkernels = 1\n", "g.toml:1: a control character", ""},
        BadGuess{"[:", "g.toml:1:", "quotes"},  // an assertion of toml++ 3.3 fails on it
        BadGuess{"[a.b]\nkernels = 1\n", "'b' is a table inside 'a'", "quote a name"},
        BadGuess{"[a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z.a.b.c.d.e.f.g.h]\n",
                 "nested more than 32", "quote"},
        BadGuess{"[a]\nkernels = 1\n[a]\n", "g.toml:3:", ""}));

TEST(Guess, PatternsAreBounded) {
  EXPECT_FALSE(NamePattern::compile(std::string(2000, 'a')));
  const Result<NamePattern> evil = NamePattern::compile("(a*)*b");
  ASSERT_TRUE(evil);
  EXPECT_FALSE(evil->matches(std::string(100000, 'a')));  // linear: an ordinary backtracker would not return
  EXPECT_TRUE(NamePattern::compile("aten::.*mm")->matches("aten::addmm"));
  EXPECT_FALSE(NamePattern::compile("mm")->matches("aten::mm")) << "the whole name has to match";
}

// ---- checking --------------------------------------------------------------------------------------

struct Loaded {
  std::unique_ptr<trace::Trace> trace;
  std::unique_ptr<trace::Links> links;
  std::unique_ptr<Metrics> metrics;
};

Loaded load(const std::filesystem::path& path) {
  Loaded l;
  Result<trace::Trace> read = formats::chrome::read_file(path.string());
  if (!read) return l;
  l.trace = std::make_unique<trace::Trace>(std::move(*read));
  l.links = std::make_unique<trace::Links>(trace::Links::build(*l.trace));
  l.metrics = std::make_unique<Metrics>(compute_metrics(*l.trace, *l.links));
  return l;
}

std::filesystem::path fixture(std::string_view name) {
  return std::filesystem::path(ATTNSCOPE_SOURCE_DIR) / "tests/analysis/rules" / name;
}

CheckReport check(const Loaded& l, std::string_view toml) {
  const Result<Guess> guess = parse_guess(toml, "g.toml");
  EXPECT_TRUE(guess) << guess.error().message;
  return guess ? check_guess(*l.metrics, *guess) : CheckReport{};
}

TEST(Check, NaiveAttentionBreaksOnTheHiddenCopy) {
  const Loaded l = load(fixture("hidden-copy/fires.json"));
  ASSERT_TRUE(l.metrics);
  const CheckReport report = check(l, R"(["attn_fwd"]
kernels = 5
copies = 0
fills = 0
sequence = ["gemm", "elementwise", "mask", "softmax", "gemm"]
tensor_cores = true
backend = "unfused"
dtype = "bf16"
device_time = "<= 2 ms"
)");
  ASSERT_EQ(report.subjects.size(), 1u);
  EXPECT_EQ(report.subjects[0].calls, 3u);
  EXPECT_EQ(report.broken, 1u);
  EXPECT_EQ(report.held, 7u);
  EXPECT_FALSE(report.all_held());
  const CheckLine& kernels = report.subjects[0].lines[0];
  EXPECT_EQ(kernels.seen, "5 per call × 3 calls");
  const CheckLine& copies = report.subjects[0].lines[1];
  EXPECT_EQ(copies.verdict, Verdict::kBroken);
  EXPECT_EQ(copies.seen,
            "1 per call × 3 calls: Memcpy DtoD, 268,435,456 B, under aten::masked_fill > aten::clone");
  ASSERT_EQ(copies.evidence.size(), 3u);
  EXPECT_EQ(l.trace->cls(copies.evidence[0].event), trace::EventClass::kMemcpy);
}

TEST(Check, EachKeyBreaksWithTheEventsThatBrokeIt) {
  const Loaded l = load(fixture("attention-anatomy/fires.json"));
  ASSERT_TRUE(l.metrics);
  const CheckReport report = check(l, R"(["attn_fwd"]
kernels = 5
kernels_total = 45
sequence = ["gemm"]
tensor_cores = true
backend = "flash"
dtype = "bf16"
device_time = "<= 1 us"
host_time = "<= 1 ns"
occupancy = ">= 99 %"
)");
  EXPECT_EQ(report.broken, 8u);
  EXPECT_EQ(report.held, 1u);  // kernels_total
  for (const CheckLine& line : report.subjects[0].lines) {
    EXPECT_EQ(line.verdict, line.key == "kernels_total" ? Verdict::kHeld : Verdict::kBroken) << line.text;
    if (line.verdict == Verdict::kBroken) {
      EXPECT_FALSE(line.evidence.empty()) << line.text << ": " << line.seen;
    }
  }
  EXPECT_EQ(report.subjects[0].lines[4].seen, "math");
}

TEST(Check, WhatTheTraceDoesNotHoldIsNotHeld) {
  const Loaded l = load(fixture("tiny-kernels/fires.json"));
  const CheckReport missing = check(l, "[\"attn_fwd\"]\nkernels = 5\n");
  EXPECT_EQ(missing.broken, 1u);
  EXPECT_NE(missing.subjects[0].lines[0].seen.find("no range or operator of this name"), std::string::npos);
  const Loaded steps = load(fixture("sync-in-step/quiet.json"));
  const CheckReport unknown = check(steps, "[\"aten::relu\"]\nbackend = \"flash\"\n");
  EXPECT_EQ(unknown.unknown, 1u);
  EXPECT_FALSE(unknown.all_held());
}

TEST(Check, PatternsGatherCallsOfSeveralNames) {
  const Loaded l = load(fixture("sync-in-step/quiet.json"));
  const CheckReport report = check(l, "[\"aten::r.*\"]\nmatch = \"regex\"\nkernels = 1\nkernels_total = 9\n");
  EXPECT_EQ(report.subjects[0].calls, 9u);
  EXPECT_TRUE(report.all_held()) << report.subjects[0].lines[0].seen;
}

// ---- writing ---------------------------------------------------------------------------------------

std::vector<std::filesystem::path> all_traces() {
  std::vector<std::filesystem::path> paths;
  const std::filesystem::path root = ATTNSCOPE_SOURCE_DIR;
  for (const std::filesystem::path& folder :
       {root / "tests/analysis/rules", root / "tests/data/traces", root / "../shared/traces"}) {
    std::error_code error;
    for (auto at = std::filesystem::recursive_directory_iterator(folder, error);
         !error && at != std::filesystem::recursive_directory_iterator(); ++at)
      if (const std::string name = at->path().filename().string();
          at->is_regular_file() && (name.ends_with(".json") || name.ends_with(".gz")) && name != "facts.json")
        paths.push_back(at->path());
  }
  return paths;
}

TEST(WriteGuess, HoldsOnTheTraceItCameFrom) {
  size_t held = 0, traces = 0;
  for (const std::filesystem::path& path : all_traces()) {
    const Loaded l = load(path);
    if (!l.metrics) continue;  // not a trace
    const Result<std::string> text = write_guess(*l.metrics);
    if (!text) continue;  // nothing ran
    const Result<Guess> guess = parse_guess(*text, "written.toml");
    ASSERT_TRUE(guess) << path << "\n" << guess.error().message << "\n" << *text;
    const CheckReport report = check_guess(*l.metrics, *guess);
    for (const CheckSubject& subject : report.subjects)
      for (const CheckLine& line : subject.lines)
        EXPECT_EQ(line.verdict, Verdict::kHeld)
            << path << " " << subject.name << ": " << line.text << " " << line.seen;
    held += report.held;
    ++traces;
  }
  std::printf("%zu lines held on %zu traces\n", held, traces);
  EXPECT_GE(traces, 60u);
}

TEST(WriteGuess, SaysWhatTheFormulaSays) {
  const std::string text = write_guess(*load(fixture("hidden-copy/fires.json")).metrics).value();
  EXPECT_NE(text.find("[\"attn_fwd\"]\nkernels = 5\ncopies = 1\nfills = 0\n"
                      "sequence = [\"gemm\", \"elementwise\", \"mask\", \"softmax\", \"gemm\"]\n"
                      "backend = \"unfused\"\ntensor_cores = true\ndtype = \"bf16\"\n"),
            std::string::npos)
      << text;
}

TEST(WriteGuess, NamesThatNoTerminalShowsAreReadAsTheyWere) {
  // As JSON writes them, and as they are.
  const std::pair<const char*, const char*> names[] = {
      {R"(a\u0085b)", "a\u0085b"},          {R"(\u2028)", "\u2028"}, {R"(\u202e\u2066)", "\u202e\u2066"},
      {R"(\u001b[31m)", "\x1b[31m"},        {R"(\u007f)", "\x7f"},   {R"(q\"\\)", R"(q"\)"},
      {R"(\ud83d\ude00 µ)", "\U0001F600 µ"}};
  for (const auto& [written, name] : names) {
    const std::string json = fmt::format(
        R"([{{"ph": "X", "cat": "user_annotation", "name": "{}", "pid": 1, "tid": 1, "ts": 0, "dur": 100}},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "args": {{"correlation": 1}}}},
            {{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 30, "dur": 9, "args": {{"device": 0, "stream": 7, "correlation": 1}}}}])",
        written);
    auto read = formats::chrome::read_memory(json);
    ASSERT_TRUE(read) << written;
    const trace::Links links = trace::Links::build(*read);
    const Result<std::string> text = write_guess(compute_metrics(*read, links));
    ASSERT_TRUE(text) << written;
    const Result<Guess> guess = parse_guess(*text, "written.toml");
    ASSERT_TRUE(guess) << guess.error().message << "\n" << *text;
    EXPECT_EQ(guess->tables[0].name, name) << *text;
  }
}

TEST(WriteGuess, RefusesATraceWithNothingToGuessAbout) {
  auto read = formats::chrome::read_memory(R"([{"ph": "i", "name": "a mark", "pid": 1, "tid": 1, "ts": 1}])");
  ASSERT_TRUE(read);
  const trace::Links links = trace::Links::build(*read);
  const Result<std::string> text = write_guess(compute_metrics(*read, links));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, ErrorCode::kBadInput);
  EXPECT_NE(text.error().remedy, "");
}

}  // namespace
}  // namespace attnscope
