#include "formats/chrome/writer.h"

#include "formats/chrome/reader.h"
#include "support/same_trace.h"
#include "support/trace_files.h"
#include "trace/builder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>

namespace attnscope::formats::chrome {
namespace {

namespace fs = std::filesystem;

std::string text_of(const support::LoadedTrace& t) {
  std::string text;
  const auto sink = append_to(text);
  const Status status = write(t.trace, t.links, *sink);
  EXPECT_TRUE(status) << status.error().message;
  return text;
}

void expect_round_trip(const support::LoadedTrace& original, const std::string& what) {
  SCOPED_TRACE(what);
  const std::string text = text_of(original);
  ASSERT_TRUE(nlohmann::json::accept(text)) << "strict JSON";
  const auto again = support::load_json(text);
  support::expect_same_trace(original.trace, again->trace);
  EXPECT_EQ(original.links.unlinked_sum(), again->links.unlinked_sum());
  EXPECT_EQ(text_of(*again), text) << "writing is a fixed point";
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  if (!fs::is_directory(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().string().find(".json") != std::string::npos || entry.path().extension() == ".gz")
      files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Writer, CommittedTracesRoundTrip) {
  size_t files = 0;
  for (const char* folder : {"article", "programs"})
    for (const std::string& file : files_in(support::trace_path(folder))) {
      expect_round_trip(*support::load(read_file(file)), file);
      ++files;
    }
  EXPECT_GE(files, 19u);
}

TEST(Writer, PublicTracesRoundTrip) {
  const auto files = files_in(std::string(ATTNSCOPE_SOURCE_DIR) + "/../shared/traces/public");
  if (files.empty()) GTEST_SKIP() << "no public traces beside the project";
  size_t read = 0;
  for (const std::string& file : files) {
    auto trace = read_file(file);
    if (!trace) continue;  // refused: reader_test and facts_test say which
    const support::LoadedTrace loaded(std::move(*trace));
    if (loaded.trace.size() > 30000) continue;  // the largest add time and no kind of event
    if (loaded.trace.metadata().producer.find("before Kineto") != std::string::npos)
      continue;  // gains categories
    expect_round_trip(loaded, file);
    ++read;
  }
  EXPECT_GE(read, 25u);
}

TEST(Writer, OddTracesBecomeStrictAndKeepTheirContent) {
  expect_round_trip(*support::load_json(R"([
    {"ph": "B", "name": "begin <script>\"", "pid": "CPU: 1", "tid": "t\\", "ts": 1.001},
    {"ph": "E", "pid": "CPU: 1", "tid": "t\\", "ts": 2},
    {"ph": "C", "name": "counter", "pid": 1, "ts": 5, "args": {"x": 0.1}},
    {"ph": "b", "cat": "a", "id": "7", "name": "async", "pid": 1, "ts": -3},
    {"ph": "e", "cat": "a", "id": "7", "name": "async", "pid": 1, "ts": 9},
    {"ph": "X", "cat": "cpu_op", "name": "line)"
                                        "\n"
                                        R"(feed", "pid": 1, "tid": 2, "ts": "3", "dur": N/A,
     "args": {"Input Dims": [[8,16 32]], "External id": 18446744073709551614}},
    {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 2, "ts": 4,
     "args": {"Bytes": -512, "Addr": 140000000000000, "Device Type": 1, "Device Id": -1}}])"),
                    "odd");
}

TEST(Writer, OurOwnRecordingKeepsWhatOnlyWeRecord) {
  trace::TraceBuilder b;
  b.metadata().producer = "attnscope 0.1.0";
  b.metadata().schema_version = 1;
  b.set_era(trace::Era::kAttnscope);
  b.clock().file_base_ns = "1790857026000000000";
  b.clock().has_file_base = true;
  trace::KernelConfig c;
  c.registers = 168;
  c.shared_bytes = 134144;
  c.static_shared = 1024;
  c.dynamic_shared = 133120;
  c.shared_optin = 232448;
  c.local_per_thread = 0;
  c.grid = {132, 1, 1};
  c.block = {384, 1, 1};
  c.cluster = {2, 1, 1};
  trace::EventInput call;
  call.cls = trace::EventClass::kDriver;
  call.name = b.intern("cuLaunchKernelEx");
  call.ts_ns = 1000;
  call.dur_ns = 500;
  call.thread = b.thread(1, 1);
  call.correlation = 77;
  b.add(call);
  trace::EventInput k;
  k.cls = trace::EventClass::kKernel;
  k.name = b.intern("flash_fwd");
  k.ts_ns = 2000;
  k.dur_ns = 45100;
  k.thread = b.thread(0, 7);
  k.config = &c;
  k.queue = {0, 1, 7};
  k.correlation = 77;
  k.work = {1, 2, 3};
  b.add(k);
  const support::LoadedTrace own(b.finish());
  expect_round_trip(own, "own");
  const auto again = support::load_json(text_of(own));
  EXPECT_EQ(again->trace.metadata().producer, "attnscope 0.1.0");
  EXPECT_EQ(again->trace.kernel_config(1).shared_optin, 232448);
  EXPECT_EQ(again->trace.totals().flow_events, 2u);
  EXPECT_EQ(again->trace.diagnostics(), trace::Diagnostics{});
}

TEST(Writer, TheNameChoosesTheCompression) {
  const auto t = support::load_trace("article/naive.json.gz");
  const std::string folder = testing::TempDir() + "/writer_test";
  fs::create_directories(folder);
  for (const char* name : {"a.json", "a.json.gz", "a.json.zst"}) {
    const std::string path = folder + "/" + name;
    ASSERT_TRUE(write_file(t->trace, t->links, path));
    support::expect_same_trace(t->trace, support::load(read_file(path))->trace);
    std::ifstream file(path, std::ios::binary);
    const int first = file.get();
    EXPECT_EQ(first, name[6] == '\0' ? '{' : name[7] == 'g' ? 0x1f : 0x28) << name;
  }
  size_t left = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++left;
  EXPECT_EQ(left, 3u) << "no temporary file stays behind";
  fs::remove_all(folder);
}

TEST(Writer, AFolderThatIsNotThereIsSaid) {
  const auto t = support::load_trace("article/auto.json.gz");
  const Status status = write_file(t->trace, t->links, testing::TempDir() + "/no/such/folder/a.json");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_FALSE(status.error().remedy.empty());
}

}  // namespace
}  // namespace attnscope::formats::chrome
