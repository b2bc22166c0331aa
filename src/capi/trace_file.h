#pragma once
// A recording as a Kineto-compatible trace file.

#include "attnscope/profiler.h"

#include <string>

namespace attnscope::capi {

// Compressed when the name ends in .gz. kIo when it cannot be written; a half-written file never stays.
[[nodiscard]] Status write_trace_file(const profiler::Recording& recording, const std::string& path);

}  // namespace attnscope::capi
