#pragma once
// What `attnscope record` takes; the same in builds that can record and in those that say why they cannot.

#include "cli/command.h"

#include <optional>
#include <string>
#include <vector>

namespace attnscope::cli {

inline constexpr const char* kRecordSummary = "record any CUDA program, unmodified, into a trace";
inline constexpr const char* kRecordExample = "attnscope record -o trace.json.gz -- python3 train.py";

struct RecordOptions {
  std::string output = "trace.json.gz";
  std::string ranges = "nvtx";
  std::string duration;
  std::string steps;
  int flush_ms = 50;
  std::vector<std::string> command;

  // As cli/common.h's parse().
  std::optional<int> parse(Context& context, const Arguments& arguments);
};

}  // namespace attnscope::cli
