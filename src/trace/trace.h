#pragma once
// The immutable trace: what every format is read into and every analysis starts from.
//
// Events are struct-of-arrays columns in file order; the index of an event (EventIndex) is dense over the
// events that are kept. Metadata and flow events are counted, not kept. Times are integer nanoseconds
// relative to the trace's base, exact; identity in reports is (ordinal, ts_ns).

#include "trace/column.h"
#include "trace/diagnostics.h"
#include "trace/strings.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnscope::trace {

using EventIndex = uint32_t;
inline constexpr EventIndex kNoEvent = UINT32_MAX;
inline constexpr uint64_t kNoId = UINT64_MAX;  // correlation, external id, sequence: not recorded

enum class EventClass : uint8_t {
  kOperator,       // cpu_op, Operator: an ATen (or other) operator on a host thread
  kUserRange,      // user_annotation: record_function, ProfilerStep#n, our own ranges
  kGpuAnnotation,  // gpu_user_annotation: first-to-last linked work of a user range on a stream
  kRuntime,        // cuda_runtime, hip*, mtia_runtime, xpu_runtime
  kDriver,         // cuda_driver, xpu_driver
  kKernel,         // device kernel (or a CPU recording's kernel of ours)
  kMemcpy,
  kMemset,
  kSync,         // cuda_sync, cuda_event rows
  kOverhead,     // profiler overhead
  kPython,       // python_function
  kMemory,       // instant "[memory]": an allocation or a free
  kInstant,      // any other instant
  kCounter,      // "C" events; the value is the first series
  kDeviceOther,  // other device-side work (mtia_ccp_events, cuda_profiler_range …)
  kSpan,         // a host span of another producer (viztracer, legacy autograd, B/E pairs)
  kAsyncSpan,    // async b/e pair: has no thread nesting
  kProfiler,     // the profiler's own "Trace" window span
  kOther,        // anything else with a category of its own
};
std::string_view class_name(EventClass c);
// Work that ran on a device queue: kernels, copies, fills.
constexpr bool is_device_work(EventClass c) {
  return c == EventClass::kKernel || c == EventClass::kMemcpy || c == EventClass::kMemset;
}
// Spans that nest on a host thread.
constexpr bool is_host_span(EventClass c) {
  return c == EventClass::kOperator || c == EventClass::kUserRange || c == EventClass::kRuntime ||
         c == EventClass::kDriver || c == EventClass::kPython || c == EventClass::kSpan;
}
constexpr bool is_launch_api(EventClass c) {
  return c == EventClass::kRuntime || c == EventClass::kDriver;
}

// One row of the timeline: a host thread, or a device's stream.
struct Thread {
  std::string pid;  // as text; numbers in decimal ("447"), strings as they stood ("Spans")
  std::string tid;
  bool pid_is_number = true, tid_is_number = true;
  StringId name = kEmptyString;          // thread_name metadata
  StringId process_name = kEmptyString;  // process_name metadata
  StringId process_labels = kEmptyString;
  uint32_t process = 0;  // dense number of the pid
  std::optional<int64_t> sort_index;
  friend bool operator==(const Thread&, const Thread&) = default;
};

// deviceProperties; a figure that was not recorded is −1 (never 0).
struct DeviceProperties {
  int id = -1;
  std::string name;
  int64_t total_memory_bytes = -1;
  int compute_major = -1, compute_minor = -1;
  int64_t max_threads_per_block = -1, max_threads_per_sm = -1;
  int64_t regs_per_block = -1, regs_per_sm = -1;
  int64_t warp_size = -1;
  int64_t shared_per_block = -1, shared_per_block_optin = -1, shared_per_sm = -1;
  int64_t num_sms = -1;
  bool has_events = false;  // at least one kernel, copy or fill names this device
  friend bool operator==(const DeviceProperties&, const DeviceProperties&) = default;
};

// What a launch asked for: the part of a kernel event that repeats. −1: not recorded.
struct KernelConfig {
  int32_t registers = -1;         // per thread
  int64_t shared_bytes = -1;      // static + dynamic, as recorded
  int64_t static_shared = -1;     // ours only
  int64_t dynamic_shared = -1;    // ours only
  int64_t shared_optin = -1;      // ours only: the limit that was in force for this kernel
  int64_t local_per_thread = -1;  // ours only: spills and stack
  std::array<int32_t, 3> grid{-1, -1, -1};
  std::array<int32_t, 3> block{-1, -1, -1};
  std::array<int32_t, 3> cluster{-1, -1, -1};
  double blocks_per_sm = -1;
  double warps_per_sm = -1;
  double reported_occupancy_pct = -1;        // "est. achieved occupancy %", or 1.8's theoretical figure
  int32_t reported_active_blocks = -1;       // 2026: occupancy.activeBlocksPerMultiprocessor
  StringId reported_limiter = kEmptyString;  // 2026: occupancy.limitingFactors, e.g. "SMEM|REGS"
  friend bool operator==(const KernelConfig&, const KernelConfig&) = default;
};

// Where device work ran. −1: not recorded.
struct Queue {
  int32_t device = -1;
  int32_t context = -1;
  int64_t stream = -1;
  friend bool operator==(const Queue&, const Queue&) = default;
};

enum class CopyKind : uint8_t { kUnknown, kHtoD, kDtoH, kDtoD, kHtoH, kPeer, kArray };
enum class MemoryKind : uint8_t { kUnknown, kPageable, kPinned, kDevice, kArray, kManaged };
std::string_view copy_kind_name(CopyKind k);  // "HtoD" …; unknown is "unknown"
struct CopyInfo {
  CopyKind kind = CopyKind::kUnknown;  // copies only
  MemoryKind from = MemoryKind::kUnknown, to = MemoryKind::kUnknown;
  int64_t bytes = -1;
  int32_t from_device = -1, to_device = -1;  // peer copies
  Queue queue;
  friend bool operator==(const CopyInfo&, const CopyInfo&) = default;
};

// Kind and memory kinds out of a copy's name, "Memcpy HtoD (Pageable -> Device)".
void describe_copy_name(std::string_view name, CopyInfo& out);

struct KernelInfo {
  Queue queue;
  uint64_t graph_id = kNoId, graph_node_id = kNoId;  // recorded from 2026 on; 0 means "no graph" there
  uint32_t config = 0;                               // Trace::kernel_configs()
  friend bool operator==(const KernelInfo&, const KernelInfo&) = default;
};

// Raw JSON text of the recorded inputs ("[[8, 16], []]"); empty views when not recorded.
struct OperatorArgs {
  std::string_view input_dims, input_strides, input_types, concrete_inputs;
  bool recorded() const { return !input_dims.empty() || !input_types.empty(); }
  friend bool operator==(const OperatorArgs&, const OperatorArgs&) = default;
};

struct MemoryInfo {
  uint64_t address = 0;
  int64_t bytes = 0;  // signed: a free is negative
  int64_t total_allocated = -1, total_reserved = -1;
  int32_t device_type = -1, device_id = -1;  // torch's numbers: type 0 CPU, 1 CUDA
  friend bool operator==(const MemoryInfo&, const MemoryInfo&) = default;
};

struct SyncInfo {
  StringId kind = kEmptyString;  // "Stream Sync", "Event Sync", "Stream Wait Event", "Context Sync"
  int64_t stream = -1, wait_on_stream = -1;
  int32_t device = -1;
  friend bool operator==(const SyncInfo&, const SyncInfo&) = default;
};

struct PythonInfo {
  uint32_t id = UINT32_MAX, parent_id = UINT32_MAX, module_id = UINT32_MAX;
  friend bool operator==(const PythonInfo&, const PythonInfo&) = default;
};

// What a step moved and computed, when the producer says so (our own recordings). −1: not known.
struct WorkInfo {
  int64_t bytes_read = -1, bytes_written = -1, flops = -1;
  friend bool operator==(const WorkInfo&, const WorkInfo&) = default;
};

enum class Era : uint8_t {
  kNotKineto,   // no mark of Kineto: another producer
  kTorch18Dev,  // top-level array, capitalised categories
  kTorch18,     // 1.8: object, capitalised categories, no occupancy
  kTorch19,     // 1.9–1.10: deviceProperties, occupancy
  kTorch111,    // 1.11–1.13: lower-case categories
  kTorch20,     // 2.0–2.2: External id of device events is its own correlation
  kTorch23,     // 2.3
  kTorch24,     // 2.4–2.6: fractional ns, base at the tail
  kTorch27,     // ≥ 2.7: base before traceEvents
  kTorch2026,   // 2026 nightlies: graph ids, occupancy object
  kAttnscope,   // recorded by us
};
std::string_view era_text(Era e);  // "PyTorch ≥ 2.7"

struct Metadata {
  std::string producer;  // "PyTorch (Kineto)", "attnscope 0.1.0", "viztracer", "Chrome trace" …
  std::optional<int64_t> schema_version;
  std::optional<int64_t> cuda_driver_version, cuda_runtime_version, cupti_version;
  std::optional<int64_t> hip_driver_version, hip_runtime_version;
  bool record_shapes = false, profile_memory = false, with_stack = false, with_flops = false,
       with_modules = false;
  std::string distributed_info;  // raw JSON object, "" when absent
  std::optional<int64_t> rank, world_size;
  std::string trace_id, host_name, trace_name, display_time_unit;
  // Every other top-level scalar or object, raw JSON text, in file order: written back by --repair.
  std::vector<std::pair<std::string, std::string>> other;
  friend bool operator==(const Metadata&, const Metadata&) = default;
};

// Time zero of the trace. An absolute time is file_base_ns + origin_ns + ts_ns.
struct Clock {
  std::string file_base_ns = "0";  // baseTimeNanoseconds as it stood, decimal
  bool has_file_base = false;
  int64_t origin_ns = 0;        // the file's own time of the trace's zero (its earliest event)
  std::string base_ns() const;  // file_base_ns + origin_ns, decimal: exact beyond 2^53
  friend bool operator==(const Clock&, const Clock&) = default;
};

struct Totals {
  uint64_t events = 0;           // entries of traceEvents, metadata and flows included
  uint64_t complete_events = 0;  // "X" entries
  uint64_t metadata_events = 0, flow_events = 0;
  uint64_t kernels = 0, copies = 0, fills = 0;
  friend bool operator==(const Totals&, const Totals&) = default;
};

class Trace {
 public:
  Trace(Trace&&) noexcept = default;
  Trace& operator=(Trace&&) noexcept = default;

  // -- events; every accessor is O(1) but ordinal() and the sparse ones (O(log n)) --
  size_t size() const { return ts_.size(); }
  EventClass cls(EventIndex i) const { return kinds_[kind_of(i)].cls; }
  StringId name_id(EventIndex i) const { return name_[i]; }
  std::string_view name(EventIndex i) const { return strings_.view(name_[i]); }
  StringId category_id(EventIndex i) const { return kinds_[kind_of(i)].category; }
  std::string_view category(EventIndex i) const { return strings_.view(category_id(i)); }
  int64_t ts_ns(EventIndex i) const { return ts_[i]; }
  int64_t dur_ns(EventIndex i) const { return dur_[i] != kWide ? int64_t{dur_[i]} : wide_duration(i); }
  int64_t end_ns(EventIndex i) const { return ts_[i] + dur_ns(i); }
  uint32_t thread(EventIndex i) const { return thread_kind_[i] & kThreadMask; }
  uint64_t ordinal(EventIndex i) const;           // position in traceEvents
  EventIndex at_ordinal(uint64_t ordinal) const;  // kNoEvent when that entry was not kept

  uint64_t correlation(EventIndex i) const;     // launches and device work; kNoId when absent
  uint64_t external_id(EventIndex i) const;     // operators, ranges, device work
  uint64_t sequence(EventIndex i) const;        // operators: autograd sequence number
  uint64_t forward_thread(EventIndex i) const;  // operators: "Fwd thread id"

  // -- per class; calling one on another class gives the empty value --
  KernelInfo kernel(EventIndex i) const;
  const KernelConfig& kernel_config(EventIndex i) const { return kernel_configs_[kernel(i).config]; }
  CopyInfo copy(EventIndex i) const;  // kMemcpy and kMemset
  Queue queue(EventIndex i) const;    // device work
  OperatorArgs operator_args(EventIndex i) const;
  StringId operator_args_id(EventIndex i) const;  // equal ids: equal recorded inputs (fast grouping)
  MemoryInfo memory(EventIndex i) const;
  SyncInfo sync(EventIndex i) const;
  PythonInfo python(EventIndex i) const;
  double counter(EventIndex i) const;
  WorkInfo work(EventIndex i) const;

  // -- tables --
  std::string_view text(StringId id) const { return strings_.view(id); }
  StringId find_text(std::string_view s) const { return strings_.find(s); }  // kEmptyString: no such name
  size_t text_count() const { return strings_.size(); }
  std::span<const Thread> threads() const { return threads_; }
  const Thread& thread_of(EventIndex i) const { return threads_[thread(i)]; }
  std::span<const KernelConfig> kernel_configs() const { return kernel_configs_; }
  std::span<const DeviceProperties> devices() const { return devices_; }
  const DeviceProperties* device(int id) const;  // null when the trace does not describe it
  const Metadata& metadata() const { return metadata_; }
  const Clock& clock() const { return clock_; }
  const Totals& totals() const { return totals_; }
  const Diagnostics& diagnostics() const { return diagnostics_; }
  Era era() const { return era_; }
  bool truncated() const { return truncated_; }
  size_t memory_bytes() const;  // what the columns hold, for bench and doctor

 private:
  friend class TraceBuilder;
  static constexpr uint32_t kThreadBits = 20;
  static constexpr uint32_t kThreadMask = (1u << kThreadBits) - 1;
  static constexpr uint32_t kWide = UINT32_MAX;
  static constexpr uint32_t kSideFlag = 1u << 31;
  static constexpr uint32_t kNone32 = UINT32_MAX, kEscape32 = UINT32_MAX - 1;  // no id · id in wide_ids_
  static constexpr uint32_t kNoneSide = kSideFlag - 1, kEscapeSide = kSideFlag - 2;  // the same in side_

  struct Kind {
    EventClass cls;
    StringId category;
  };
  struct KernelSide {
    uint32_t correlation, external_id, config, graph_id, graph_node_id;
    uint32_t queue;
  };
  struct CopySide {
    uint32_t correlation, external_id, queue;
    int16_t from_device, to_device;
    int64_t bytes;
  };
  struct OpSide {
    uint32_t external_id, args, sequence, forward_thread;
  };
  template <typename V>
  struct Sparse {
    EventIndex event;
    V value;
  };
  struct WideIds {
    uint64_t correlation, external_id, sequence, graph_id, graph_node_id;
  };

  Trace() = default;
  uint32_t kind_of(EventIndex i) const { return thread_kind_[i] >> kThreadBits; }
  int64_t wide_duration(EventIndex i) const;
  const WideIds* wide(EventIndex i) const;
  uint64_t widen(uint32_t id, EventIndex i, uint64_t WideIds::* member) const;
  const OpSide* op_side(EventIndex i) const;

  // Per event. `side_` means, by class: operators and ranges an external id, or kSideFlag | row of ops_;
  // launches a correlation; kernels, copies, memory … a row of their table.
  Column<int64_t> ts_;
  Column<uint32_t> dur_;
  Column<StringId> name_;
  Column<uint32_t> thread_kind_;
  Column<uint32_t> side_;
  Column<uint64_t> kept_;       // bit per entry of traceEvents: kept as an event
  Column<uint32_t> kept_rank_;  // kept entries before each 512-bit block

  StringPool strings_;
  std::vector<Kind> kinds_;
  std::vector<Thread> threads_;
  std::vector<Queue> queues_;
  std::vector<KernelConfig> kernel_configs_;
  std::vector<DeviceProperties> devices_;
  Column<KernelSide> kernels_;
  Column<CopySide> copies_;
  Column<OpSide> ops_;
  Column<MemoryInfo> memory_;
  Column<SyncInfo> syncs_;
  Column<PythonInfo> python_;
  Column<double> counters_;
  Column<Sparse<int64_t>> wide_dur_;
  Column<Sparse<WideIds>> wide_ids_;
  Column<Sparse<WorkInfo>> work_;
  Metadata metadata_;
  Clock clock_;
  Totals totals_;
  Diagnostics diagnostics_;
  Era era_ = Era::kNotKineto;
  bool truncated_ = false;
};

}  // namespace attnscope::trace
