#pragma once
// The committed traces, read once per test program.

#include "formats/chrome/reader.h"
#include "trace/link.h"
#include "trace/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace attnscope::support {

inline std::string trace_path(const std::string& name) {
  return std::string(ATTNSCOPE_SOURCE_DIR) + "/tests/data/traces/" + name;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A trace with its links. Links point into the trace, so neither may move.
struct LoadedTrace {
  trace::Trace trace;
  trace::Links links;
  explicit LoadedTrace(trace::Trace t) : trace(std::move(t)), links(trace::Links::build(trace)) {}
  LoadedTrace(const LoadedTrace&) = delete;
  LoadedTrace& operator=(const LoadedTrace&) = delete;
};

inline std::unique_ptr<LoadedTrace> load(Result<trace::Trace> trace) {
  if (!trace) {
    ADD_FAILURE() << trace.error().message;
    std::abort();
  }
  return std::make_unique<LoadedTrace>(std::move(*trace));
}
// "article/naive.json.gz"
inline std::unique_ptr<LoadedTrace> load_trace(const std::string& name) {
  return load(formats::chrome::read_file(trace_path(name)));
}
// Events as JSON text: "[{…}, …]" or a whole document.
inline std::unique_ptr<LoadedTrace> load_json(const std::string& text) {
  return load(formats::chrome::read_memory(text, "test"));
}

}  // namespace attnscope::support
