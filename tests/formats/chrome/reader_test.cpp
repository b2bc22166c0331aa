// How bytes arrive: compression, pipes, limits, files that misbehave, and refusals.

#include "formats/chrome/reader.h"

#include "support/trace_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace attnscope::formats::chrome {
namespace {

using testing::HasSubstr;
using trace::Diag;

std::string event(int i) {
  return R"({"ph": "X", "cat": "cpu_op", "name": "op )" + std::to_string(i % 10) +
         R"(", "pid": 1, "tid": 2, "ts": )" + std::to_string(i + 1) + ".25, \"dur\": 1}";
}
std::string document(int events) {
  std::string text = "{\"traceEvents\": [\n";
  for (int i = 0; i < events; ++i) text += (i ? ",\n" : "") + event(i);
  return text + "\n]}";
}

std::string gzip(const std::string& plain, int level = 6) {
  z_stream z{};
  deflateInit2(&z, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, plain.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}
std::string zstd(const std::string& plain) {
  std::string out(ZSTD_compressBound(plain.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), plain.data(), plain.size(), 3));
  return out;
}

class Scratch {
 public:
  Scratch() : path_(std::filesystem::path(testing::TempDir()) / ("reader_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name, const std::string& content) const {
    const std::string path = (path_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void expect_events(const Result<trace::Trace>& t, size_t n, const std::string& what) {
  ASSERT_TRUE(t) << what << ": " << t.error().message;
  ASSERT_EQ(t->size(), n) << what;
  EXPECT_EQ(t->totals().complete_events, n) << what;
  if (n > 0) {
    EXPECT_EQ(t->ts_ns(static_cast<trace::EventIndex>(n - 1)), static_cast<int64_t>(n - 1) * 1000) << what;
  }
}

TEST(Reader, FormatComesFromTheContentNotTheName) {
  const Scratch scratch;
  const std::string plain = document(20000);  // larger than a window
  const std::string half = plain.substr(0, plain.size() / 2), rest = plain.substr(plain.size() / 2);
  expect_events(read_file(scratch.file("a.json.gz", plain)), 20000, "plain named gz");
  expect_events(read_file(scratch.file("b.json", gzip(plain))), 20000, "gzip named json");
  expect_events(read_file(scratch.file("c.txt", gzip(half) + gzip(rest))), 20000, "two gzip members");
  expect_events(read_file(scratch.file("d", zstd(plain))), 20000, "zstd");
  expect_events(read_file(scratch.file("e", zstd(half) + zstd(rest))), 20000, "two zstd frames");
  const std::string skippable("\x50\x2a\x4d\x18\x04\x00\x00\x00kept", 12);
  expect_events(read_file(scratch.file("f", skippable + zstd(plain))), 20000,
                "zstd behind a skippable frame");
  expect_events(read_file(scratch.file("g", gzip(plain) + std::string(512, '\0'))), 20000,
                "gzip padded with zeros");
}

TEST(Reader, ReadsFromAPipe) {
  const Scratch scratch;
  const std::string fifo = scratch.path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::string bytes = gzip(document(5000));
  std::thread writer([&] {
    const int fd = open(fifo.c_str(), O_WRONLY);
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = write(fd, bytes.data() + at, std::min<size_t>(97, bytes.size() - at));
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    close(fd);
  });
  expect_events(read_file(fifo), 5000, "fifo");
  writer.join();
}

// Every way to cut a compressed stream gives what came before the cut, and says that it was cut.
TEST(Reader, CutCompressionGivesWhatCouldBeUnpacked) {
  const std::string plain = document(3000);
  for (const std::string& packed : {gzip(plain), zstd(plain)}) {
    for (const size_t keep : {packed.size() / 3, packed.size() / 2, packed.size() - 9}) {
      const auto t = read_memory(packed.substr(0, keep));
      if (!t) {
        EXPECT_EQ(t.error().code, ErrorCode::kBadInput);
        continue;
      }
      EXPECT_EQ(t->diagnostics().count(Diag::kTruncatedCompression), 1u);
      EXPECT_LE(t->size(), 3000u);
    }
  }
  // A flipped bit in the middle: damaged, not fatal.
  std::string damaged = gzip(plain);
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x40);
  const auto t = read_memory(damaged);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_GE(t->diagnostics().count(Diag::kTruncatedCompression), 1u);
}

TEST(Reader, DecompressionBombsAreStopped) {
  const std::string spaces = "{\"traceEvents\": [" + std::string(40 << 20, ' ') + "]}";
  const std::string bomb = gzip(spaces, 9);
  ASSERT_GT(spaces.size() / bomb.size(), 500u);
  ReadOptions strict;
  strict.limits.ratio_from_bytes = 16 << 20;
  const auto refused = read_memory(bomb, "bomb.json.gz", strict);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(refused.error().message, HasSubstr("bomb.json.gz"));
  EXPECT_THAT(refused.error().message, HasSubstr("decompression bomb"));
  EXPECT_FALSE(refused.error().remedy.empty());

  strict.limits.max_ratio = 2000;  // the person insists
  EXPECT_TRUE(read_memory(bomb, "bomb.json.gz", strict));
  strict.limits.max_plain_bytes = 1 << 20;
  const auto too_large = read_memory(zstd(spaces), "bomb.json.zst", strict);
  ASSERT_FALSE(too_large);
  EXPECT_THAT(too_large.error().message, HasSubstr("more than 1048576 bytes"));
}

TEST(Reader, AnEventBeyondTheLimitIsSkippedWhole) {
  ReadOptions small;
  small.max_event_bytes = 1 << 20;
  const std::string text = "[" + event(0) + R"(,{"ph": "X", "name": "huge \" string", "args": {"x": ")" +
                           std::string(3 << 20, 'x') + "\"}}," + event(1) + "]";
  const auto t = read_memory(text, "t", small);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->size(), 2u);
  EXPECT_EQ(t->totals().events, 3u);
  EXPECT_EQ(t->diagnostics().count(Diag::kEventTooLong), 1u);
  const auto whole = read_memory(text);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->diagnostics().count(Diag::kEventTooLong), 0u);
}

TEST(Reader, ATopLevelMemberOfAnySizeIsPassed) {
  const std::string text = "{\"big\": [\"" + std::string(5 << 20, 'y') + "\"], " + document(3).substr(1);
  expect_events(read_memory(text), 3, "big member before the events");
  const std::string after = document(3);
  expect_events(read_memory(after.substr(0, after.size() - 1) + ", \"big\": {\"a\": \"" +
                            std::string(5 << 20, 'y') + "\"}}"),
                3, "big member behind the events");
}

TEST(Reader, EveryWindowBoundaryIsCrossed) {
  // Names of growing length move the events against the window's edges.
  std::string text = "[";
  for (int i = 0; i < 4000; ++i)
    text += R"({"ph": "X", "name": ")" + std::string(static_cast<size_t>(i % 311), 'n') +
            R"(", "pid": 1, "tid": 2, "ts": )" + std::to_string(i + 1) +
            R"(, "dur": 1, "args": {"deep": [[[")" + std::string(static_cast<size_t>(i % 97), ']') +
            "\"]]]}},\n";
  text.back() = ' ';
  text[text.size() - 2] = ']';
  const auto t = read_memory(text);
  ASSERT_TRUE(t) << t.error().message;
  ASSERT_EQ(t->size(), 4000u);
  for (trace::EventIndex i = 0; i < 4000; ++i) ASSERT_EQ(t->name(i).size(), i % 311);
  EXPECT_EQ(t->diagnostics(), trace::Diagnostics{});
}

// The budget is a fifth of the plain JSON for everything; the trace itself must leave room for the rest.
TEST(Reader, ATraceStaysWellBelowAFifthOfItsJson) {
  for (const char* file : {"programs/llama_decode_sdpa.json.gz", "programs/launch_bound.json.gz",
                           "programs/llama_prefill_eager.json.gz"}) {
    ReadStats stats;
    const auto t = read_file(support::trace_path(file), {}, &stats);
    ASSERT_TRUE(t);
    EXPECT_LT(static_cast<double>(t->memory_bytes()), 0.15 * static_cast<double>(stats.plain_bytes)) << file;
  }
}

struct Refusal {
  std::string content;
  const char* says;
};
TEST(Reader, RefusalsSayWhatTheFileLooksLike) {
  const Refusal table[] = {
      {"", "is empty"},
      {" \n ", "is empty"},
      {std::string(1000, '\0'), "nothing but zeros"},
      {"hello", "not JSON: it starts with \"hello\""},
      {"{}", "an empty JSON object"},
      {"[]", "an empty list"},
      {"[1, 2, 3]", "a plain list of values"},
      {"[[1, 2], [3]]", "memory timeline"},
      {R"([{"a": 1}])", "none of the first thousand has a phase"},
      {R"({"a": 1, "b": [2], "c": {}})", "a JSON object with a, b, c, but without traceEvents"},
      {R"({"schema": "1.0.1", "pid": 1, "nodes": [{"id": 2}]})", "PyTorch execution trace"},
      {R"({"$schema": "https://www.speedscope.app", "profiles": []})", "speedscope"},
      {R"({"segments": [], "device_traces": []})", "memory snapshot"},
      {R"({"schema": "attnscope.compare/1", "variants": []})", "a result of attnscope itself"},
      {R"({"traceEvents": [1, 2]})", "hold no event"},
      {R"({"traceEvents": {}})", "its traceEvents is an object, not a list"},
      {R"({"traceEvents": null})", "its traceEvents is null, not a list"},
      {R"({"schema": "attnscope.explain/1"})", "not the trace it was made from"},
      {R"({"schema": "attnscope.compare/1"})", "`attnscope diff` reads two of those"},
      {std::string("\x7f") + "ELF\x02\x01", "ELF"},
      {"PK\x03\x04zip", "zip archive"},
      {"<!DOCTYPE html><html>", "web page"},
      {"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"},
      {"\x80\x04\x95", "Python pickle"},
      {"# Title\nsome text\n", "it starts with \"# Title\""},
      {gzip(gzip("[]")), "compressed twice"},
  };
  for (const Refusal& r : table) {
    const auto t = read_memory(r.content, "some.json");
    ASSERT_FALSE(t) << r.says;
    EXPECT_EQ(t.error().code, ErrorCode::kBadInput) << r.says;
    EXPECT_THAT(t.error().message, HasSubstr(r.says));
    EXPECT_THAT(t.error().message, HasSubstr("some.json"));
    EXPECT_FALSE(t.error().remedy.empty()) << r.says;
  }
}

TEST(Reader, FilesThatCannotBeRead) {
  const Scratch scratch;
  const auto missing = read_file(scratch.path("missing.json"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kIo);
  const auto directory = read_file(scratch.path(""));
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(directory.error().message, HasSubstr("is a directory"));
}

TEST(Reader, HostileNamesAreEscapedInMessages) {
  const auto t = read_memory("hello\x1b[31m", "evil\x1b[2J.json");
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().message.find('\x1b'), std::string::npos);
}

TEST(Reader, AFileThatShrinksWhileReadIsNoticed) {
  const Scratch scratch;
  const std::string path = scratch.file("shrinks.json", document(20000));
  auto source = open_file(path);
  ASSERT_TRUE(source);
  char byte = 0;
  ASSERT_EQ(*(*source)->read(&byte, 1), 1u);
  std::filesystem::resize_file(path, 300000);
  ASSERT_EQ(byte, '{');
  std::string rest = "{";
  const auto t = read_source(std::move(*source), "shrinks.json");
  // The first byte was taken above: what is left starts inside the object.
  ASSERT_FALSE(t);

  const std::string again = scratch.file("again.json", document(20000));
  auto second = open_file(again);
  ASSERT_TRUE(second);
  std::filesystem::resize_file(again, 300000);
  const auto cut = read_source(std::move(*second), "again.json");
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->diagnostics().count(Diag::kFileChanged), 1u);
  EXPECT_TRUE(cut->truncated());
  EXPECT_GT(cut->size(), 1000u);
}

TEST(Reader, ALeftoverTemporaryFileIsNamed) {
  const Scratch scratch;
  const auto t = read_file(scratch.file("trace.json.tmp", document(10).substr(0, 300)));
  ASSERT_TRUE(t);
  EXPECT_EQ(t->diagnostics().count(Diag::kTemporaryFile), 1u);
  EXPECT_TRUE(t->truncated());
}

}  // namespace
}  // namespace attnscope::formats::chrome
