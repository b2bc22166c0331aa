#pragma once
// When a device had nothing to do, and why, as far as the trace can tell.

#include "base/total.h"
#include "trace/link.h"
#include "trace/trace.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace attnscope {

// Why the device waited before a piece of work.
enum class GapCause : uint8_t {
  kSync,    // the host was in a synchronising call that ended inside the gap: the queue had been drained
  kHost,    // the launch call began after the device had run dry, more than 200 µs after the launch before it
  kLaunch,  // the same, but the host was launching all the time: it cannot launch fast enough
  kLatency,   // the launch call was under way when the device ran dry: the launch's own latency
  kSmall,     // the launch was queued in time; the usual pause between two kernels (up to 5 µs)
  kWaiting,   // the launch was queued in time, yet the work started later: a dependency or another queue
  kUnlinked,  // the work after the gap has no launch in the file (capture loss): cannot be told
};
inline constexpr size_t kGapCauses = 7;
std::string_view gap_cause_name(GapCause cause);     // "sync", "host-wait" …
std::string_view gap_cause_meaning(GapCause cause);  // one clause for people

struct Gap {
  int32_t device = 0;
  int64_t begin_ns = 0, end_ns = 0;
  GapCause cause = GapCause::kUnlinked;
  trace::EventIndex before = trace::kNoEvent, after = trace::kNoEvent;  // device work around it
};

// One device over its window: first to last work that a launch in the file explains.
struct DeviceTimeline {
  int32_t device = 0;
  int64_t begin_ns = 0, end_ns = 0;
  Total busy_ns;     // union over all its streams
  Total summed_ns;   // sum of durations; above busy_ns by what ran at the same time
  Total overlap_ns;  // time with at least two pieces of work at once
  std::array<Total, kGapCauses> idle_ns{};
  std::array<uint64_t, kGapCauses> gaps{};
  int64_t idle_total_ns() const;
};

struct GapReport {
  std::vector<DeviceTimeline> devices;
  std::vector<Gap> longest;  // of all devices, longest first, at most 100
};

// Looks at every device with linked work. O(events · log events).
GapReport find_gaps(const trace::Trace& trace, const trace::Links& links);

}  // namespace attnscope
