#pragma once
// Builds a Trace event by event; used by the format readers and by our own profiler alike.

#include "trace/trace.h"

#include <memory>

namespace attnscope::trace {

// One event on its way in. Only `cls`, `name`, `ts_ns` and `thread` are always needed; the rest by class.
struct EventInput {
  EventClass cls = EventClass::kOther;
  StringId name = kEmptyString;
  // kEmptyString: the class's usual Kineto category. Work that ran inline on a host thread (our CPU
  // recordings) is kKernel, kMemcpy or kMemset with category "cpu_kernel", "cpu_copy" or "cpu_fill".
  StringId category = kEmptyString;
  int64_t ts_ns = 0;    // the producer's own clock; the builder finds the base
  int64_t dur_ns = 0;   // negative is diagnosed and becomes 0
  uint32_t thread = 0;  // TraceBuilder::thread()
  uint64_t correlation = kNoId;
  uint64_t external_id = kNoId;
  uint64_t sequence = kNoId;
  uint64_t forward_thread = kNoId;
  // Operators: raw JSON members, e.g. `"Input Dims": [[8, 16]], "Input type": ["float"]`, interned.
  StringId operator_args = kEmptyString;
  const KernelConfig* config = nullptr;  // kernels
  Queue queue;                           // kernels, copies, fills
  uint64_t graph_id = kNoId, graph_node_id = kNoId;
  int64_t bytes = -1;  // copies and fills
  int32_t from_device = -1, to_device = -1;
  const MemoryInfo* memory = nullptr;
  const SyncInfo* sync = nullptr;
  PythonInfo python;
  double counter = 0;
  WorkInfo work;
};

class TraceBuilder {
 public:
  TraceBuilder();
  ~TraceBuilder();
  TraceBuilder(TraceBuilder&&) noexcept;
  TraceBuilder& operator=(TraceBuilder&&) noexcept;

  StringId intern(std::string_view text);
  std::string_view text(StringId id) const;
  // The row of (pid, tid), made at first use. Rows past the limit share one, with a diagnostic.
  uint32_t thread(int64_t pid, int64_t tid);
  uint32_t thread(std::string_view pid, bool pid_is_number, std::string_view tid, bool tid_is_number);
  void name_thread(uint32_t thread, std::string_view name);
  void sort_thread(uint32_t thread, int64_t sort_index);
  void name_process(std::string_view pid, std::string_view name);
  void label_process(std::string_view pid, std::string_view labels);

  // Adds one entry of traceEvents and returns its index.
  EventIndex add(const EventInput& event);
  // Counts one entry that is not kept (metadata, flow, unreadable).
  void skip_entry();
  // Sets the duration of a span that was added at its begin.
  void close(EventIndex i, int64_t end_ns);
  // Entries so far: the ordinal of the next one.
  uint64_t next_ordinal() const;

  void add_device(DeviceProperties device);
  Metadata& metadata();
  Clock& clock();    // file_base_ns and has_file_base; origin_ns is found by finish()
  Totals& totals();  // complete_events, metadata_events, flow_events are the caller's to count
  Diagnostics& diagnostics();
  void set_era(Era era);
  void set_truncated();
  // Readers of events that were added.
  EventClass cls(EventIndex i) const;
  int64_t ts_ns(EventIndex i) const;  // still on the producer's clock
  size_t size() const;
  int64_t latest_ns() const;  // latest end seen

  // Gives the finished trace; the builder is spent.
  Trace finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnscope::trace
