#pragma once
// Figures of a trace, computed once; rules, reports and comparisons read them.

#include "analysis/attention.h"
#include "analysis/gaps.h"
#include "analysis/kernel_name.h"
#include "base/total.h"
#include "trace/link.h"
#include "trace/trace.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attnscope {

// Figures of all events of one name on the host: an operator, a range, a launch call, a span.
struct RangeStats {
  trace::StringId name = trace::kEmptyString;
  trace::EventClass cls = trace::EventClass::kOperator;
  trace::EventIndex first = trace::kNoEvent;     // its first outermost call
  uint32_t thread = 0;                           // of that call
  uint32_t thread_count = 0;                     // threads with calls
  trace::StringId parent = trace::kEmptyString;  // name of the span around that call; empty at the top
  uint64_t events = 0;                           // every event of the name
  uint64_t calls = 0;                            // outermost: not inside another of the same name
  Total host_ns;                                 // summed over calls
  Total self_host_ns;                            // over all events, without what their children took
  trace::WorkSum own_thread;                     // launched inside a call on its thread
  trace::WorkSum process;        // launched on any thread of the process while a call was open
  trace::WorkSum self;           // launched by an event of the name itself, not by a child
  int64_t median_host_ns = 0;    // per call
  int64_t median_device_ns = 0;  // per call, process
};

// Kernels (or copies, or fills) that are the same: one name, one launch configuration, one launching
// operator.
struct KernelGroup {
  trace::StringId name = trace::kEmptyString;
  trace::EventClass cls = trace::EventClass::kKernel;
  uint32_t config = 0;                                // Trace::kernel_configs(); kernels only
  trace::StringId launched_by = trace::kEmptyString;  // operator or range; empty: unlinked or none
  trace::EventIndex first = trace::kNoEvent;
  uint64_t count = 0;
  Total device_ns;
  int64_t median_ns = 0, min_ns = 0, max_ns = 0;
  Total bytes{-1};                      // copies and fills: summed; −1 when any is not recorded
  int64_t median_launch_delay_ns = -1;  // launch call's begin to device start, never below 0; −1: no launch
  trace::LinkBasis basis = trace::LinkBasis::kNone;         // of its first event
  trace::Confidence confidence = trace::Confidence::kNone;  // the lowest of all its events
};

enum class StepSource : uint8_t {
  kProfilerStep,  // ProfilerStep#n
  kRange,         // a repeated outermost user range
  kRepetition,    // the top-level operators repeat
  kWholeTrace,    // nothing repeats: the trace is one step
};
std::string_view step_source_name(StepSource source);

struct StepStats {
  int64_t number = 0;
  int64_t begin_ns = 0, end_ns = 0;                // host
  trace::WorkSum work;                             // launched in it, on any thread
  uint64_t launches = 0;                           // launch calls that led to device work
  int64_t device_begin_ns = 0, device_end_ns = 0;  // first start to last end of that work; equal: none
  Total device_busy_ns;                            // union
};

struct CopyTotals {
  uint64_t count = 0;
  Total bytes, device_ns;
};

struct Metrics {
  const trace::Trace* trace = nullptr;
  const trace::Links* links = nullptr;

  std::vector<RangeStats> ranges;    // by first occurrence
  std::vector<KernelGroup> kernels;  // by device time, longest first; copies and fills included
  std::vector<StepStats> steps;
  StepSource step_source = StepSource::kWholeTrace;
  std::string step_range;  // the name of the range for kRange
  std::vector<AttentionCall> attention_calls;
  std::vector<AttentionGroup> attention_groups;
  GapReport gaps;

  trace::WorkSum total;                        // all device work of the file
  std::array<CopyTotals, 7> copies_by_kind{};  // by trace::CopyKind
  uint64_t launches = 0;                       // launch calls with device work
  int64_t median_kernel_ns = -1;
  int64_t median_launch_delay_ns = -1;  // over linked kernels
  // The trace has no device events but operators of a CPU: then leaf operators that compute are its kernels
  // and every WorkSum above counts those.
  bool cpu_only = false;
  std::vector<trace::EventIndex> cpu_leaves;  // those operators, by time; empty otherwise

  // Decoded name of a kernel (or, in a CPU-only trace, of an operator). Decoded once per distinct name.
  const KernelName& decoded(trace::StringId name) const;
  // Null when the trace has no such host span.
  const RangeStats* range(std::string_view name) const;

  std::unordered_map<trace::StringId, KernelName> names;
  std::unordered_map<trace::StringId, uint32_t> range_index;
};

// `trace` and `links` must outlive the result. O(events · log events), memory of 8 bytes per host call.
Metrics compute_metrics(const trace::Trace& trace, const trace::Links& links);

// Device work launched on any thread of the process while a call of the range was open, grouped like
// Metrics::kernels. O(device work · log).
std::vector<KernelGroup> kernels_inside(const Metrics& metrics, trace::StringId range);

}  // namespace attnscope
