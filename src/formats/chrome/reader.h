#pragma once
// Reads Chrome/Kineto JSON traces, leniently, in one pass and bounded memory.

#include "attnscope/result.h"
#include "formats/byte_source.h"
#include "trace/trace.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace attnscope::formats::chrome {

class RepairWriter;

struct ReadOptions {
  InputLimits limits;
  size_t max_event_bytes = size_t{64} << 20;  // a longer event is skipped, with a diagnostic
  RepairWriter* repair = nullptr;             // follows the read and writes what was read; see repair.h
};

// What a read cost, for bench and progress.
struct ReadStats {
  uint64_t plain_bytes = 0;
};

// Reads the trace at path ("-": standard input). Anything odd is a diagnostic of the trace. Errors: kIo when
// the file cannot be read, kBadInput when it is no trace (saying what it looks like) or passes a limit,
// kOutOfMemory.
Result<trace::Trace> read_file(const std::string& path, const ReadOptions& options = {},
                               ReadStats* stats = nullptr);
// The same from bytes in memory; name is used in messages.
Result<trace::Trace> read_memory(std::string_view bytes, const std::string& name = "trace",
                                 const ReadOptions& options = {}, ReadStats* stats = nullptr);
// The same from any source of (possibly compressed) bytes.
Result<trace::Trace> read_source(std::unique_ptr<ByteSource> packed, const std::string& name,
                                 const ReadOptions& options = {}, ReadStats* stats = nullptr);

}  // namespace attnscope::formats::chrome
