#pragma once
// Host spans by name: calls, self and total times, and the device work under them. Part of metrics.h.

#include "analysis/metrics.h"

namespace attnscope {

// Fills metrics.ranges and metrics.range_index; reads metrics.cpu_only and metrics.names.
void compute_ranges(const trace::Trace& trace, const trace::Links& links, Metrics& metrics);

// Operators of a CPU that only look at memory in another way, or allocate: no work of their own.
bool is_bookkeeping_operator(std::string_view name);

// Device work by the launch that explains it.
class LaunchedWork {
 public:
  LaunchedWork(const trace::Trace& trace, const trace::Links& links);
  // Device events of one launch, in time order; empty for any other event.
  std::span<const trace::EventIndex> of(trace::EventIndex launch) const;
  // Every launch with work, ascending by event index.
  std::span<const trace::EventIndex> launches() const { return launches_; }

 private:
  std::vector<trace::EventIndex> launches_;
  std::vector<uint32_t> begin_;  // into work_, one more than launches
  std::vector<trace::EventIndex> work_;
};

// Sums of work over intervals of host time, per process: work counts where it was launched.
class WorkTimeline {
 public:
  WorkTimeline(const trace::Trace& trace, const Metrics& metrics, const LaunchedWork& launched);
  // Work launched by the process at a time in [begin_ns, end_ns].
  trace::WorkSum between(uint32_t process, int64_t begin_ns, int64_t end_ns) const;
  uint64_t launches_between(uint32_t process, int64_t begin_ns, int64_t end_ns) const;
  size_t process_count() const { return by_process_.size(); }

 private:
  struct Point {
    int64_t ts_ns;
    trace::WorkSum before;  // everything launched earlier
  };
  std::pair<size_t, size_t> bounds(uint32_t process, int64_t begin_ns, int64_t end_ns) const;
  std::vector<std::vector<Point>> by_process_;  // each ends with a sentinel that holds the total
};

trace::WorkSum& operator+=(trace::WorkSum& sum, const trace::WorkSum& more);
trace::WorkSum operator-(trace::WorkSum sum, const trace::WorkSum& less);
void add_work(trace::WorkSum& sum, trace::EventClass cls, int64_t dur_ns);
// The median of the values, halves of a nanosecond dropped; −1 when there are none. Reorders them.
int64_t median_of(std::vector<int64_t>& values);

}  // namespace attnscope
