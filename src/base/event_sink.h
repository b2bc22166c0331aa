#pragma once
// How backends tell whoever listens what they do. The library never prints; the profiler implements
// this interface, and when nobody listens a scope costs one relaxed load and a branch.

#include "attnscope/tensor_view.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace attnscope {

enum class EventKind : uint8_t {
  kRange,       // a user's named range (profiler.h), nesting others
  kOperator,    // one call of the public API or one step of an unfused variant's algorithm
  kKernel,      // one primitive that executes on the device (on the CPU: one parallel loop nest)
  kCopy,        // bytes moved unchanged, same dtype
  kFill,        // memory set to a constant
  kRuntime,     // host call into a driver or library (plan search, JIT compile, launch)
  kAllocation,  // instant: bytes obtained (address in `address`)
  kFree,        // instant: bytes returned
};

// What is known when the work starts. All views must outlive only the call; the sink copies.
struct EventInfo {
  std::string_view name;  // stable string: literal or interned
  EventKind kind = EventKind::kKernel;
  int64_t bytes_read = -1;  // −1: not known (never 0 for unknown)
  int64_t bytes_written = -1;
  int64_t flops = -1;
  const TensorView* const* inputs = nullptr;  // shapes, dtypes and strides are recorded when the session asks
  int input_count = 0;
  uint64_t address = 0;  // allocations only
};

class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual bool wants_shapes() const noexcept { return false; }
  // Called on the thread that does the work. end() follows begin() on the same thread, properly nested.
  virtual void begin(const EventInfo& info) noexcept = 0;
  virtual void end() noexcept = 0;
  virtual void instant(const EventInfo& info) noexcept = 0;
};

// The one sink of the process, or null. Install and remove through profiler::Session only.
inline std::atomic<EventSink*> g_event_sink{nullptr};

// RAII scope around a piece of work.
class EventScope {
 public:
  explicit EventScope(const EventInfo& info) noexcept : sink_(g_event_sink.load(std::memory_order_acquire)) {
    if (sink_) [[unlikely]]
      sink_->begin(info);
  }
  EventScope(std::string_view name, EventKind kind, int64_t bytes_read = -1, int64_t bytes_written = -1,
             int64_t flops = -1) noexcept
      : EventScope(EventInfo{name, kind, bytes_read, bytes_written, flops}) {}
  ~EventScope() {
    if (sink_) [[unlikely]]
      sink_->end();
  }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;

 private:
  EventSink* sink_;
};

inline void report_instant(const EventInfo& info) noexcept {
  if (EventSink* sink = g_event_sink.load(std::memory_order_acquire)) sink->instant(info);
}

}  // namespace attnscope
