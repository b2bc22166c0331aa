#pragma once
// The program's NVTX ranges, with our own clock and the system's thread ids.

#include <cstdint>

namespace attnscope::profiler::injection {

// Called for each range that ends (and, at the end of a process, for each still open: end_ns 0).
using RangeSink = void (*)(const char* name, uint32_t thread, uint64_t begin_ns, uint64_t end_ns);
void set_range_sink(RangeSink sink);
// Gives the calling thread's open ranges to the sink.
void close_open_ranges();

}  // namespace attnscope::profiler::injection
