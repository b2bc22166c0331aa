// A repaired trace is strict JSON and holds all that the original does.
#include "formats/chrome/repair.h"

#include "support/trace_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace attnscope::formats::chrome {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Repaired {
  trace::Trace trace;
  std::string text;
};

Repaired repair(std::string_view bytes) {
  std::string text;
  const auto sink = append_to(text);
  auto trace = repair_memory(bytes, *sink);
  if (!trace) {
    ADD_FAILURE() << trace.error().message;
    std::abort();
  }
  return {std::move(*trace), text};
}

Json strict(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << text.substr(0, 2000);
  return json;
}

// The unpacked text of a trace: what a repair of it has to keep.
std::string plain_text(const std::string& path) {
  auto file = open_file(path);
  if (!file) return {};
  auto plain = unpack(std::move(*file), {});
  if (!plain) return {};
  std::string text, chunk(size_t{1} << 20, '\0');
  while (true) {
    const auto n = (*plain)->read(chunk.data(), chunk.size());
    if (!n || *n == 0) return text;
    text.append(chunk, 0, *n);
  }
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  if (!fs::is_directory(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Repair, KeepsWhatTheTraceItselfHasNoUseFor) {
  const std::string original = R"({
    "schemaVersion": 1, "unknown": {"a": [1, 2.50, null]}, "baseTimeNanoseconds": 1759323290000000000,
    "traceEvents": [
      {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 2, "ts": 10.001, "dur": 5,
       "args": {"External id": 7, "Record function id": 3, "Ev Idx": 0, "Call stack": "a.py(1): f;b.py(2): g"}},
      {"ph": "s", "id": 9, "pid": 1, "tid": 2, "ts": 10.001, "cat": "fwdbwd", "name": "fwdbwd"},
      {"ph": "f", "id": 9, "pid": 1, "tid": 3, "ts": 30, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
      {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 11, "dur": 1,
       "args": {"External id": 7, "cbid": 211, "correlation": 21}},
      {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 7, "ts": 20, "dur": 5,
       "args": {"External id": 7, "queued": 0, "correlation": 21, "Collective name": "allreduce",
                "In msg nelems": 1024, "Group size": 8, "Process Group Ranks": "[0, 1]", "odd \" key": "\u00e9\/"}},
      {"ph": "N", "cat": "objects", "name": "o", "id": "0x1", "pid": 1, "ts": 1, "args": {"snapshot": {"x": []}}}
    ], "traceName": "t.json", "displayTimeUnit": "ms"})";
  const Repaired once = repair(original);
  EXPECT_EQ(strict(once.text), Json::parse(original)) << once.text;
  EXPECT_NE(once.text.find("2.50"), std::string::npos) << "numbers stay as they were spelt";
  EXPECT_EQ(repair(once.text).text, once.text) << "repairing is a fixed point";
}

TEST(Repair, RealTracesKeepEveryMember) {
  std::vector<std::string> files;
  for (const std::string& folder : {support::trace_path("article"), support::trace_path("programs"),
                                    std::string(ATTNSCOPE_SOURCE_DIR) + "/../shared/traces/public"})
    for (const std::string& file : files_in(folder)) files.push_back(file);
  size_t compared = 0;
  for (const std::string& file : files) {
    const std::string text = plain_text(file);
    if (text.empty() || text.size() > (size_t{8} << 20)) continue;  // the largest add time and nothing new
    const Json original = Json::parse(text, nullptr, false);
    if (original.is_discarded()) continue;
    auto read = read_memory(text);
    if (!read) continue;  // no trace
    SCOPED_TRACE(file);
    EXPECT_TRUE(strict(repair(text).text) == original);
    ++compared;
  }
  EXPECT_GE(compared, 19u);
}

TEST(Repair, OddTracesBecomeStrict) {
  const Repaired odd = repair(
      "log line\n[{\"ph\": \"X\", \"name\": \"say \"hi\" now\", \"pid\": 1, \"tid\": 1, \"ts\": \"3.0015\" "
      "\"dur\": N/A, \"name\": \"raw\nline\", \"args\": {\"a\": NaN, \"b\": 007, \"c\": [1 2], \"d\": "
      "\"x\"}},\n"
      "{\"ph\": \"X\", \"name\": \"no time\", \"pid\": 1},\n"
      "{\"ph\": \"X\", \"name\": \"no duration\", \"pid\": 1, \"ts\": 5},\n 12, \n"
      "{\"ph\": \"i\", \"name\": \"C:\\data\", \"pid\": 1, \"ts\": -0.5}]");
  EXPECT_EQ(odd.text, R"([
{"ph": "X", "pid": 1, "tid": 1, "ts": 3.002, "dur": 0, "name": "raw\u000aline", )"
                      R"("args": {"a": "NaN", "b": "007", "c": [1, 2], "d": "x"}},
{"ph": "X", "name": "no duration", "pid": 1, "ts": 5, "dur": 0},
{"ph": "i", "name": "C:\\data", "pid": 1, "ts": -0.5}
]
)");
  EXPECT_EQ(repair(odd.text).text, odd.text);
}

TEST(Repair, WhatWasCutSaysSoWhenItIsReadAgain) {
  const std::string event = R"({"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2})";
  for (const std::string& cut :
       {"[" + event + ", " + event + ", {\"ph\": \"X", "{\"traceEvents\": [" + event + ", " + event + ","}) {
    const Repaired once = repair(cut);
    EXPECT_TRUE(once.trace.truncated());
    const Json json = strict(once.text);
    EXPECT_EQ((json.is_array() ? json : json["traceEvents"]).size(), 3u) << once.text;
    const Repaired again = repair(once.text);
    EXPECT_TRUE(again.trace.truncated());
    EXPECT_EQ(again.trace.size(), 2u);
    EXPECT_EQ(again.text, once.text);
  }
  EXPECT_FALSE(repair("[" + event + "]").trace.truncated());
}

TEST(Repair, LongMembersAreKept) {
  const std::string noise(size_t{3} << 20, 'x');
  const std::string original =
      R"({"traceEvents": [{"ph": "i", "name": "a", "pid": 1, "ts": 1}], "stacks": ")" + noise +
      R"(", "last": 1})";
  EXPECT_EQ(strict(repair(original).text), Json::parse(original));
}

TEST(Repair, AnyDamageLeavesStrictJson) {
  const std::string original = plain_text(support::trace_path("article/naive.json.gz")).substr(0, 30000);
  ASSERT_GT(original.size(), 10000u);
  std::mt19937 random(7);
  static constexpr char kBytes[] = "\"\\{}[],:\n\0 x0-";
  for (int round = 0; round < 1000; ++round) {
    std::string damaged = original;
    for (int hit = 0; hit < 12; ++hit)
      damaged[random() % damaged.size()] = kBytes[random() % (sizeof kBytes - 1)];
    std::string text;
    const auto sink = append_to(text);
    const auto trace = repair_memory(damaged, *sink);
    if (!trace) continue;
    ASSERT_TRUE(Json::accept(text)) << "round " << round;
    const auto again = read_memory(text);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->size(), trace->size()) << "round " << round;
  }
}

TEST(Repair, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto trace = repair_file(support::trace_path("article/naive.json.gz"), "/dev/full");
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace attnscope::formats::chrome
