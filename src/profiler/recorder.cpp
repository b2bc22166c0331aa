#include "profiler/recorder.h"

#include "attnscope/profiler.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace attnscope::profiler {
namespace {

// The fast path reads a plain thread-local pointer; the owner keeps the buffer alive, and says when the
// thread is too far into its end to get another one.
constinit thread_local ThreadBuffer* t_buffer = nullptr;
constinit thread_local bool t_ending = false;

struct BufferOwner {
  std::shared_ptr<ThreadBuffer> buffer;
  ~BufferOwner() {
    t_buffer = nullptr;
    t_ending = true;
  }
};
thread_local BufferOwner t_owner;

}  // namespace

uint64_t current_thread_id() {
  return static_cast<uint64_t>(syscall(SYS_gettid));
}

bool Arena::grow(size_t bytes) noexcept {
  constexpr size_t kBlock = 64 * 1024;
  const size_t size = std::max(bytes, kBlock);
  try {
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
  } catch (...) {
    return false;
  }
  at_ = blocks_.back().get();
  left_ = size;
  return true;
}

ThreadBuffer::~ThreadBuffer() {
  for (EventChunk* chunk = first_.next.load(std::memory_order_relaxed); chunk;) {
    EventChunk* next = chunk->next.load(std::memory_order_relaxed);
    delete chunk;
    chunk = next;
  }
}

void ThreadBuffer::copy_inputs(EventSlot& slot, const EventInfo& info) noexcept {
  const int count = std::min(info.input_count, 255);
  auto* inputs = static_cast<InputSlot*>(arena_.take(sizeof(InputSlot) * static_cast<size_t>(count)));
  if (!inputs) return;
  for (int i = 0; i < count; ++i) {
    const TensorView& view = *info.inputs[i];
    inputs[i] = {view.dtype, view.rank, view.sizes, view.strides};
  }
  slot.inputs = inputs;
  slot.input_count = static_cast<uint8_t>(count);
}

Recorder& Recorder::instance() {
  static auto* recorder = new Recorder;
  return *recorder;
}

ThreadBuffer* Recorder::buffer() noexcept {
  ThreadBuffer* mine = t_buffer;
  if (mine && mine->generation() == generation_.load(std::memory_order_relaxed)) [[likely]]
    return mine;
  return attach();
}

ThreadBuffer* Recorder::attach() noexcept {
  if (t_ending) return nullptr;
  try {
    std::lock_guard lock(mutex_);
    auto fresh =
        std::make_shared<ThreadBuffer>(generation_.load(std::memory_order_relaxed), current_thread_id(),
                                       max_events_, shapes_.load(std::memory_order_relaxed));
    // A scope that loaded the sink just before close() lands here afterwards: it writes to a buffer
    // nobody will read.
    if (g_event_sink.load(std::memory_order_relaxed)) buffers_.push_back(fresh);
    t_owner.buffer = std::move(fresh);
    t_buffer = t_owner.buffer.get();
    return t_buffer;
  } catch (...) {
    return nullptr;
  }
}

void Recorder::begin(const EventInfo& info) noexcept {
  if (ThreadBuffer* mine = buffer()) mine->begin(info, info.kind == EventKind::kRange, clock_);
}

void Recorder::end() noexcept {
  const uint64_t now = clock_.now();
  if (t_buffer) t_buffer->end(now);
}

void Recorder::instant(const EventInfo& info) noexcept {
  if (ThreadBuffer* mine = buffer()) mine->instant(info, clock_.now());
}

void Recorder::open(bool shapes, int64_t max_events_per_thread) {
  std::lock_guard lock(mutex_);
  buffers_.clear();
  max_events_ = max_events_per_thread;
  shapes_.store(shapes, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_relaxed);
}

void Recorder::install() {
  g_event_sink.store(this, std::memory_order_release);
}

void Recorder::uninstall() {
  g_event_sink.store(nullptr, std::memory_order_release);
}

std::vector<std::shared_ptr<ThreadBuffer>> Recorder::close() {
  std::lock_guard lock(mutex_);
  uninstall();
  return std::move(buffers_);
}

namespace detail {

constinit const std::atomic<EventSink*>& range_sink = g_event_sink;

void begin_range(EventSink* sink, std::string_view name) noexcept {
  sink->begin(EventInfo{name, EventKind::kRange});
}
void end_range(EventSink* sink) noexcept {
  sink->end();
}

}  // namespace detail

bool recording() {
  return g_event_sink.load(std::memory_order_acquire) != nullptr;
}

}  // namespace attnscope::profiler
