#pragma once
// The process's one event sink: hands each thread its buffer and keeps all buffers of the current session.
// It is never destroyed, so a scope that ends after its session, or after main, still finds it.

#include "profiler/clock.h"
#include "profiler/thread_buffer.h"

#include <memory>
#include <mutex>
#include <vector>

namespace attnscope::profiler {

class Recorder final : public EventSink {
 public:
  static Recorder& instance();

  bool wants_shapes() const noexcept override { return shapes_.load(std::memory_order_relaxed); }
  void begin(const EventInfo& info) noexcept override;
  void end() noexcept override;
  void instant(const EventInfo& info) noexcept override;

  // Starts a new generation: buffers of an earlier one are left to their threads. Not yet installed.
  void open(bool shapes, int64_t max_events_per_thread);
  // While installed, scopes reach this sink; taking it away makes them free again.
  void install();
  void uninstall();
  // Uninstalls and gives up the buffers of the generation; their threads may still be writing.
  std::vector<std::shared_ptr<ThreadBuffer>> close();

  const TickClock& clock() const { return clock_; }

 private:
  ThreadBuffer* buffer() noexcept;
  ThreadBuffer* attach() noexcept;

  TickClock clock_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<bool> shapes_{false};
  std::mutex mutex_;  // guards what follows
  int64_t max_events_ = 0;
  std::vector<std::shared_ptr<ThreadBuffer>> buffers_;
};

uint64_t current_thread_id();

}  // namespace attnscope::profiler
