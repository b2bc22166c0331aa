#pragma once
// Recording what a program does: sessions with a schedule, named ranges, and the plain data they leave.
//
//   auto session = profiler::Session::start({.record_shapes = true});
//   { profiler::Range range("attn_fwd");  sdpa(request, outputs); }
//   Recording recording = session->finish().value();
//
// One session at a time per process. Ranges and the library's own operators, kernels, copies, fills and
// allocations are recorded on every thread; when no session is active they cost a load and a branch.

#include "attnscope/dtype.h"
#include "attnscope/result.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {
class EventSink;
}

namespace attnscope::profiler {

// Which steps are kept, as torch.profiler counts them: after skip_first steps come repeat cycles of wait
// (nothing is recorded), warmup (recorded, thrown away) and active (kept). active = 0: every step is kept.
struct Schedule {
  int skip_first = 0;
  int wait = 0;
  int warmup = 0;
  int active = 0;
  int repeat = 0;  // 0 = cycles until finish()
};

enum class Phase : uint8_t { kWait, kWarmup, kActive };
// What the schedule does with step number `step` (from 0).
Phase phase_of(const Schedule& schedule, int64_t step);

enum class Activity : uint8_t {
  kCpu,   // operators, ranges and CPU kernels
  kCuda,  // kernels, copies, fills, launches and synchronisation on the GPUs
};

struct SessionOptions {
  std::vector<Activity> activities{Activity::kCpu};
  bool record_shapes = false;  // sizes, strides and dtypes of every operator's inputs
  Schedule schedule{};
  int64_t max_events_per_thread = int64_t{1} << 22;  // more are counted as dropped, never silently lost
};

// Mirrors EventKind of src/base/event_sink.h.
enum class RecordKind : uint8_t {
  kRange,
  kOperator,
  kKernel,
  kCopy,
  kFill,
  kRuntime,
  kAllocation,
  kFree,
};
std::string_view record_kind_name(RecordKind kind);

struct RecordedInput {
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, 4> sizes{};
  std::array<int64_t, 4> strides{};
};

struct RecordedEvent {
  std::string name;
  RecordKind kind = RecordKind::kKernel;
  bool complete = true;  // false: still open when the session ended; end_ns is then the session's end
  uint64_t thread = 0;   // the operating system's thread id
  int64_t begin_ns = 0;  // since Recording::base_ns
  int64_t end_ns = 0;
  int32_t parent = -1;  // index of the enclosing event of the same thread, −1 at the top
  int64_t bytes_read = -1;
  int64_t bytes_written = -1;  // allocations and frees: the size
  int64_t flops = -1;
  uint64_t address = 0;  // allocations and frees
  std::vector<RecordedInput> inputs;
};

// What happened on a GPU; filled by the CUDA activity source.
struct DeviceEvent {
  std::string name;
  RecordKind kind = RecordKind::kKernel;  // kKernel, kCopy, kFill
  int device = 0;
  int64_t stream = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t correlation = 0;  // joins it to the RuntimeEvent that launched it
  int64_t bytes = -1;        // copies and fills
  std::array<int, 3> grid{};
  std::array<int, 3> block{};
  int registers_per_thread = -1;
  int64_t shared_bytes = -1;
  std::array<int, 3> cluster{1, 1, 1};
  uint64_t graph_id = 0;  // 0: not launched by a graph
  uint64_t graph_node_id = 0;
  int context = -1;
  // Kernels: parts of shared_bytes, the limit in force (opt-in or not), what the hardware set aside per
  // multiprocessor, and local memory (spills, stack). −1: not recorded.
  int64_t static_shared_bytes = -1;
  int64_t dynamic_shared_bytes = -1;
  int64_t shared_limit_bytes = -1;
  int64_t shared_executed_bytes = -1;
  int64_t local_bytes_per_thread = -1;
  std::string copy_kind;                 // copies: "DtoD", "HtoD", …
  std::string from_memory;               // copies: "Device", "Pageable", "Pinned", "Managed", "Array"
  std::string to_memory;                 // copies and fills
  int from_device = -1, to_device = -1;  // copies between GPUs
};
// A wait of the host or of a stream, as the driver saw it.
struct SyncEvent {
  std::string name;  // "Stream Sync", "Event Sync", "Context Sync", "Stream Wait Event"
  int64_t context = -1;
  int64_t stream = -1;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t correlation = 0;
};
// Time that the profiler or the driver took for itself: buffer flush, lazy loading, compilation.
struct OverheadEvent {
  std::string name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};
// What the GPU side of a recording lost or could not see; every count is shown.
struct ActivityLoss {
  int64_t dropped_records = 0;    // reported by CUPTI
  int64_t lost_buffers = 0;       // handed to CUPTI and never returned
  int64_t unknown_records = 0;    // kinds or sizes this build does not know
  int64_t malformed_records = 0;  // end before begin, and the like
  std::vector<std::string> notes;
};
struct RuntimeEvent {
  std::string name;  // cudaLaunchKernel …
  bool driver = false;
  uint64_t thread = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t correlation = 0;
};

struct RecordedStep {
  int64_t index = 0;  // ProfilerStep#index
  uint64_t thread = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// One line of the header's deviceProperties.
struct DeviceProperties {
  int id = 0;
  std::string name;
  std::vector<std::pair<std::string, int64_t>> values;  // "numSms" → 132 …
};

// Everything a session saw, as plain data. Events are ordered by thread, then by begin, outer before inner.
struct Recording {
  int64_t base_ns = 0;      // Unix time of relative time 0
  int64_t duration_ns = 0;  // of the session, waits included
  uint64_t process = 0;
  bool record_shapes = false;
  // GPU activity was recorded: kernels are device_events, and what the host reported of a launch is a host
  // event only.
  bool has_device_activity = false;
  int64_t dropped = 0;  // events over max_events_per_thread
  std::vector<RecordedEvent> events;
  std::vector<RecordedStep> steps;
  std::vector<DeviceEvent> device_events;
  std::vector<RuntimeEvent> runtime_events;
  std::vector<SyncEvent> sync_events;
  std::vector<OverheadEvent> overhead_events;
  ActivityLoss activity_loss;
  std::vector<DeviceProperties> devices;
};

// How another device's activities get into a session: its backend folder passes a factory once, at start-up.
class ActivitySource {
 public:
  virtual ~ActivitySource() = default;
  [[nodiscard]] virtual Status start() = 0;
  // Adds device_events, runtime_events and devices; their times are Unix time minus recording.base_ns.
  [[nodiscard]] virtual Status stop(Recording& recording) = 0;
};
using ActivitySourceFactory = Result<std::unique_ptr<ActivitySource>> (*)();
void set_cuda_activity_source(ActivitySourceFactory factory);

class Session {
 public:
  // Errors: kInvalidArgument for a schedule with negative counts or no activity, kUnavailable when another
  // session is active or an activity has no source on this machine.
  [[nodiscard]] static Result<Session> start(SessionOptions options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();  // stops and throws away what was not finished

  // Ends a step and begins the next, on the calling thread.
  void step();
  // Stops and returns what was recorded in active steps. kInvalidArgument when called twice.
  [[nodiscard]] Result<Recording> finish();

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Is a session recording right now?
bool recording();

namespace detail {
extern const std::atomic<EventSink*>& range_sink;
void begin_range(EventSink* sink, std::string_view name) noexcept;
void end_range(EventSink* sink) noexcept;
}  // namespace detail

// A named range of the calling thread; the name is copied. Ranges nest and end on the thread they began on.
class Range {
 public:
  explicit Range(std::string_view name) noexcept : sink_(detail::range_sink.load(std::memory_order_acquire)) {
    if (sink_) [[unlikely]]
      detail::begin_range(sink_, name);
  }
  ~Range() {
    if (sink_) [[unlikely]]
      detail::end_range(sink_);
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  EventSink* sink_;
};

}  // namespace attnscope::profiler
