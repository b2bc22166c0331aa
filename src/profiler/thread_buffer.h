#pragma once
// Where one thread puts its events. Written by that thread without locks, read by finish() at any time:
// everything of a slot but its end is published by the chunk's count, the end by its own atomic.

#include "base/event_sink.h"
#include "profiler/clock.h"

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

namespace attnscope::profiler {

// What is kept of an input's view.
struct InputSlot {
  DType dtype;
  int rank;
  std::array<int64_t, 4> sizes;
  std::array<int64_t, 4> strides;
};

struct EventSlot {
  std::atomic<uint64_t> end{0};  // ticks; 0 while the event is open
  uint64_t begin = 0;
  const char* name = nullptr;
  uint32_t name_length = 0;
  EventKind kind = EventKind::kKernel;
  uint8_t input_count = 0;
  uint16_t depth = 0;
  int64_t bytes_read = -1;
  int64_t bytes_written = -1;
  int64_t flops = -1;
  uint64_t address = 0;
  const InputSlot* inputs = nullptr;
};

struct EventChunk {
  static constexpr uint32_t kSlots = 1024;
  std::array<EventSlot, kSlots> slots;
  std::atomic<uint32_t> count{0};
  std::atomic<EventChunk*> next{nullptr};
};

// Blocks of bytes that live as long as the buffer: copied names and input shapes.
class Arena {
 public:
  // Null when out of memory. Alignment 8.
  void* take(size_t bytes) noexcept {
    bytes = (bytes + 7) & ~size_t{7};
    if (bytes > left_ && !grow(bytes)) return nullptr;
    char* at = at_;
    at_ += bytes;
    left_ -= bytes;
    return at;
  }

 private:
  bool grow(size_t bytes) noexcept;
  std::vector<std::unique_ptr<char[]>> blocks_;
  char* at_ = nullptr;
  size_t left_ = 0;
};

class ThreadBuffer {
 public:
  ThreadBuffer(uint64_t generation, uint64_t thread, int64_t max_events, bool shapes)
      : generation_(generation), thread_(thread), max_events_(max_events), shapes_(shapes) {}
  ~ThreadBuffer();
  ThreadBuffer(const ThreadBuffer&) = delete;
  ThreadBuffer& operator=(const ThreadBuffer&) = delete;

  uint64_t generation() const { return generation_; }
  uint64_t thread() const { return thread_; }
  int64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  const EventChunk& first_chunk() const { return first_; }

  // Owner thread only.
  void begin(const EventInfo& info, bool copy_name, const TickClock& clock) noexcept;
  void end(uint64_t now) noexcept;
  void instant(const EventInfo& info, uint64_t now) noexcept;

 private:
  static constexpr uint32_t kMaxDepth = 512;

  EventSlot* next_slot() noexcept;
  void fill(EventSlot& slot, const EventInfo& info, bool copy_name) noexcept;
  void copy_inputs(EventSlot& slot, const EventInfo& info) noexcept;
  void publish() noexcept { chunk_->count.store(++used_, std::memory_order_release); }

  const uint64_t generation_;
  const uint64_t thread_;
  const int64_t max_events_;
  const bool shapes_;
  int64_t events_ = 0;
  std::atomic<int64_t> dropped_{0};
  uint32_t used_ = 0;   // slots of chunk_
  uint32_t depth_ = 0;  // open events, those without a slot included
  EventChunk first_;
  EventChunk* chunk_ = &first_;
  std::array<EventSlot*, kMaxDepth> open_{};
  Arena arena_;
};

inline EventSlot* ThreadBuffer::next_slot() noexcept {
  if (used_ == EventChunk::kSlots) [[unlikely]] {
    if (events_ >= max_events_) return nullptr;
    auto* fresh = new (std::nothrow) EventChunk;
    if (!fresh) return nullptr;
    chunk_->next.store(fresh, std::memory_order_release);
    chunk_ = fresh;
    used_ = 0;
  }
  if (events_ >= max_events_) [[unlikely]]
    return nullptr;
  ++events_;
  return &chunk_->slots[used_];
}

inline void ThreadBuffer::fill(EventSlot& slot, const EventInfo& info, bool copy_name) noexcept {
  slot.name = info.name.data();
  slot.name_length = static_cast<uint32_t>(info.name.size());
  if (copy_name) {
    char* copy = static_cast<char*>(arena_.take(info.name.size()));
    if (copy)
      std::memcpy(copy, info.name.data(), info.name.size());
    else
      slot.name_length = 0;
    slot.name = copy;
  }
  slot.kind = info.kind;
  slot.depth = static_cast<uint16_t>(depth_);
  slot.bytes_read = info.bytes_read;
  slot.bytes_written = info.bytes_written;
  slot.flops = info.flops;
  slot.address = info.address;
  if (shapes_ && info.input_count > 0) copy_inputs(slot, info);
}

inline void ThreadBuffer::begin(const EventInfo& info, bool copy_name, const TickClock& clock) noexcept {
  EventSlot* slot = depth_ < kMaxDepth ? next_slot() : nullptr;
  if (slot) {
    fill(*slot, info, copy_name);
    slot->begin = clock.now();
    publish();
  } else {
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }
  if (depth_ < kMaxDepth) open_[depth_] = slot;
  ++depth_;
}

inline void ThreadBuffer::end(uint64_t now) noexcept {
  if (depth_ == 0) return;  // began under an earlier session
  --depth_;
  if (depth_ < kMaxDepth && open_[depth_]) open_[depth_]->end.store(now, std::memory_order_release);
}

inline void ThreadBuffer::instant(const EventInfo& info, uint64_t now) noexcept {
  EventSlot* slot = depth_ < kMaxDepth ? next_slot() : nullptr;
  if (!slot) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  fill(*slot, info, false);
  slot->begin = now;
  slot->end.store(now, std::memory_order_relaxed);
  publish();
}

}  // namespace attnscope::profiler
