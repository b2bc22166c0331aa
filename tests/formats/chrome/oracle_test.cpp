// The scanner against simdjson, on files that both can read: same events, same values.

#include "formats/byte_source.h"
#include "formats/chrome/reader.h"
#include "support/trace_files.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <filesystem>
#include <string>
#include <vector>

namespace attnscope::formats::chrome {
namespace {

namespace dom = simdjson::dom;

std::string plain_text(const std::string& path) {
  auto file = open_file(path);
  EXPECT_TRUE(file);
  auto source = unpack(std::move(*file));
  EXPECT_TRUE(source);
  std::string text;
  std::vector<char> buffer(1 << 20);
  while (true) {
    const auto n = (*source)->read(buffer.data(), buffer.size());
    if (!n || *n == 0) return text;
    text.append(buffer.data(), *n);
  }
}

// A number of the document in nanoseconds, as near as a double gives it.
bool near(dom::element value, int64_t ns) {
  double us = 0;
  if (value.get(us)) return false;
  const double error = std::abs(us * 1000 - static_cast<double>(ns));
  return error <= 0.51 + std::abs(us) * 1000 * 4e-16;
}

struct Seen {
  uint64_t entries = 0, complete = 0, flows = 0, metadata = 0, compared = 0;
};

void compare_event(const trace::Trace& t, uint64_t ordinal, dom::element e, Seen& seen) {
  std::string_view ph, name, cat;
  if (e["ph"].get(ph)) return;
  seen.complete += ph == "X";
  seen.metadata += ph == "M";
  seen.flows += ph == "s" || ph == "f" || ph == "t";
  const trace::EventIndex i = t.at_ordinal(ordinal);
  if (ph != "X") return;
  ASSERT_NE(i, trace::kNoEvent) << ordinal;
  ++seen.compared;
  if (!e["name"].get(name)) {
    ASSERT_EQ(t.name(i), name);
  }
  if (!e["cat"].get(cat)) {
    ASSERT_EQ(t.category(i), cat);
  }
  ASSERT_TRUE(near(e["ts"], t.ts_ns(i) + t.clock().origin_ns)) << ordinal << " " << t.name(i);
  double dur = 0;
  if (!e["dur"].get(dur) && dur >= 0) {
    ASSERT_TRUE(near(e["dur"], t.dur_ns(i))) << ordinal;
  }
  dom::element args;
  if (e["args"].get(args)) return;
  uint64_t id = 0;
  if (t.correlation(i) != trace::kNoId) {
    ASSERT_FALSE(args["correlation"].get(id));
    ASSERT_EQ(t.correlation(i), id);
  }
  if (t.external_id(i) != trace::kNoId) {
    if (args["External id"].get(id)) {
      ASSERT_FALSE(args["external id"].get(id));
    }
    ASSERT_EQ(t.external_id(i), id);
  }
  if (t.cls(i) == trace::EventClass::kKernel && !args["registers per thread"].get(id)) {
    ASSERT_EQ(t.kernel_config(i).registers, static_cast<int64_t>(id));
  }
  dom::element dims;
  if (t.cls(i) == trace::EventClass::kOperator && !args["Input Dims"].get(dims)) {
    dom::parser parser;
    dom::element ours;
    const std::string raw(t.operator_args(i).input_dims);
    ASSERT_FALSE(parser.parse(raw).get(ours)) << raw;
    ASSERT_EQ(simdjson::minify(ours), simdjson::minify(dims));
  }
}

void compare_file(const std::string& path, size_t& compared) {
  SCOPED_TRACE(path);
  const std::string text = plain_text(path);
  dom::parser parser;
  dom::element document;
  if (parser.parse(text).get(document)) return;  // only the lenient reader can
  dom::array events;
  if (document.is_array() ? document.get(events) : document["traceEvents"].get(events)) return;
  const auto read = read_memory(text, path);
  if (!read) return;
  Seen seen;
  for (const dom::element e : events) {
    compare_event(*read, seen.entries, e, seen);
    if (testing::Test::HasFatalFailure()) return;
    ++seen.entries;
  }
  EXPECT_EQ(read->totals().events, seen.entries);
  EXPECT_EQ(read->totals().complete_events, seen.complete);
  EXPECT_EQ(read->totals().metadata_events, seen.metadata);
  EXPECT_EQ(read->totals().flow_events, seen.flows);
  compared += seen.compared;
}

TEST(Oracle, SimdjsonSeesTheSameEvents) {
  size_t compared = 0;
  for (const std::string& folder : {support::trace_path("article"), support::trace_path("programs"),
                                    std::string(ATTNSCOPE_SOURCE_DIR) + "/../shared/traces/public"}) {
    if (!std::filesystem::is_directory(folder)) continue;  // the public files are not part of the project
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string path = entry.path().string();
      if (path.find(".json") == std::string::npos || entry.file_size() > 1'600'000) continue;
      compare_file(path, compared);
    }
  }
  EXPECT_GT(compared, 20000u);
}

}  // namespace
}  // namespace attnscope::formats::chrome
