// Sessions: which steps are kept, and how the threads' buffers become a Recording.
#include "attnscope/profiler.h"
#include "profiler/recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

namespace attnscope::profiler {
namespace {

std::atomic<bool> g_session_active{false};
std::atomic<ActivitySourceFactory> g_cuda_source{nullptr};

struct Window {
  uint64_t begin = 0, end = 0;  // ticks
};
struct StepMark {
  int64_t index = 0;
  uint64_t thread = 0;
  uint64_t begin = 0, end = 0;
};

Status check(const SessionOptions& options) {
  const Schedule& s = options.schedule;
  if (s.skip_first < 0 || s.wait < 0 || s.warmup < 0 || s.active < 0 || s.repeat < 0)
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a schedule counts steps from 0; got skip_first {}, wait {}, warmup {}, active {}, "
                    "repeat {}",
                    s.skip_first, s.wait, s.warmup, s.active, s.repeat));
  if (s.active == 0 && (s.skip_first | s.wait | s.warmup | s.repeat) != 0)
    return fail(ErrorCode::kInvalidArgument, "a schedule with active 0 would keep no step",
                "set active to the number of steps to keep, or leave the schedule empty to keep everything");
  if (options.activities.empty())
    return fail(ErrorCode::kInvalidArgument, "a session with no activity would record nothing",
                "ask for Activity::kCpu, Activity::kCuda or both");
  if (options.max_events_per_thread < 1)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("max_events_per_thread is {}; at least 1", options.max_events_per_thread));
  return {};
}

// Windows follow each other in time; a long session with a schedule has many.
bool inside(const std::vector<Window>& windows, uint64_t ticks) {
  const auto later = std::upper_bound(windows.begin(), windows.end(), ticks,
                                      [](uint64_t at, const Window& w) { return at < w.begin; });
  return later != windows.begin() && ticks <= std::prev(later)->end;
}

RecordedEvent recorded(const EventSlot& slot, uint64_t thread, const TickScale& scale, uint64_t session_end) {
  RecordedEvent event;
  event.name.assign(slot.name ? slot.name : "", slot.name ? slot.name_length : 0);
  event.kind = static_cast<RecordKind>(slot.kind);
  event.thread = thread;
  const uint64_t end = slot.end.load(std::memory_order_acquire);
  event.complete = end != 0 && end <= session_end;
  event.begin_ns = scale.ns(slot.begin);
  event.end_ns = std::max(event.begin_ns, scale.ns(event.complete ? end : session_end));
  event.bytes_read = slot.bytes_read;
  event.bytes_written = slot.bytes_written;
  event.flops = slot.flops;
  event.address = slot.address;
  for (int i = 0; i < slot.input_count; ++i)
    event.inputs.push_back(
        {slot.inputs[i].dtype, slot.inputs[i].rank, slot.inputs[i].sizes, slot.inputs[i].strides});
  return event;
}

// Appends the buffer's events that began in a window; a child whose parent did not is put at the top.
void read_buffer(const ThreadBuffer& buffer, const std::vector<Window>& windows, const TickScale& scale,
                 uint64_t session_end, Recording& recording) {
  std::vector<int32_t> open;  // by depth: index of the event open there, −1 when it was not kept
  for (const EventChunk* chunk = &buffer.first_chunk(); chunk;
       chunk = chunk->next.load(std::memory_order_acquire)) {
    const uint32_t count = chunk->count.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i) {
      const EventSlot& slot = chunk->slots[i];
      open.resize(slot.depth, -1);  // an event dropped for want of room leaves a hole
      const bool kept = slot.begin <= session_end && inside(windows, slot.begin);
      if (kept) {
        RecordedEvent event = recorded(slot, buffer.thread(), scale, session_end);
        const auto parent = std::find_if(open.rbegin(), open.rend(), [](int32_t p) { return p >= 0; });
        if (parent != open.rend()) event.parent = *parent;
        recording.events.push_back(std::move(event));
      }
      open.push_back(kept ? static_cast<int32_t>(recording.events.size()) - 1 : -1);
    }
  }
  recording.dropped += buffer.dropped();
}

// Launches outside the kept windows go, and with them the device work and the waits they started; of a
// schedule what the profiler took for itself there, too.
void keep_windows(const std::vector<Window>& windows, bool scheduled, const TickScale& scale,
                  Recording& recording) {
  const auto kept = [&](int64_t ns) {
    const auto later = std::upper_bound(windows.begin(), windows.end(), ns,
                                        [&](int64_t at, const Window& w) { return at < scale.ns(w.begin); });
    return later != windows.begin() && ns <= scale.ns(std::prev(later)->end);
  };
  std::vector<uint64_t> launched, launched_outside;
  for (const RuntimeEvent& e : recording.runtime_events)
    (kept(e.begin_ns) ? launched : launched_outside).push_back(e.correlation);
  std::sort(launched.begin(), launched.end());
  std::sort(launched_outside.begin(), launched_outside.end());
  std::erase_if(recording.runtime_events, [&](const RuntimeEvent& e) { return !kept(e.begin_ns); });
  const auto outside = [&](const auto& e) {
    if (std::binary_search(launched.begin(), launched.end(), e.correlation)) return false;
    return std::binary_search(launched_outside.begin(), launched_outside.end(), e.correlation) ||
           !kept(e.begin_ns);
  };
  std::erase_if(recording.device_events, outside);
  std::erase_if(recording.sync_events, outside);
  if (scheduled)
    std::erase_if(recording.overhead_events, [&](const OverheadEvent& e) { return !kept(e.begin_ns); });
}

}  // namespace

Phase phase_of(const Schedule& schedule, int64_t step) {
  if (schedule.active == 0) return Phase::kActive;
  if (step < schedule.skip_first) return Phase::kWait;
  const int64_t since = step - schedule.skip_first;
  const int64_t cycle = int64_t{schedule.wait} + schedule.warmup + schedule.active;
  if (schedule.repeat > 0 && since / cycle >= schedule.repeat) return Phase::kWait;
  const int64_t at = since % cycle;
  if (at < schedule.wait) return Phase::kWait;
  return at < int64_t{schedule.wait} + schedule.warmup ? Phase::kWarmup : Phase::kActive;
}

std::string_view record_kind_name(RecordKind kind) {
  switch (kind) {
    case RecordKind::kRange: return "range";
    case RecordKind::kOperator: return "operator";
    case RecordKind::kKernel: return "kernel";
    case RecordKind::kCopy: return "copy";
    case RecordKind::kFill: return "fill";
    case RecordKind::kRuntime: return "runtime";
    case RecordKind::kAllocation: return "allocation";
    case RecordKind::kFree: return "free";
  }
  return "?";
}

void set_cuda_activity_source(ActivitySourceFactory factory) {
  g_cuda_source.store(factory);
}

struct Session::Impl {
  SessionOptions options;
  std::mutex mutex;  // step() may come from any thread
  bool stepped = false;
  bool finished = false;
  CalibrationPoint first;
  int64_t base_ns = 0;
  int64_t step = 0;
  Phase phase = Phase::kActive;
  uint64_t phase_begin = 0;
  std::vector<Window> windows;
  std::vector<StepMark> steps;
  std::unique_ptr<ActivitySource> device;

  bool wants(Activity activity) const {
    return std::find(options.activities.begin(), options.activities.end(), activity) !=
           options.activities.end();
  }
  bool records_steps() const { return stepped || options.schedule.active > 0; }
  void enter(uint64_t now);
  void leave(uint64_t now);
  Recording assemble(std::vector<std::shared_ptr<ThreadBuffer>> buffers, uint64_t end_ticks);
  void stop_quietly();
};

// Begins the current step: recording or not as the schedule says.
void Session::Impl::enter(uint64_t now) {
  Recorder& recorder = Recorder::instance();
  const bool was_recording = recording();
  phase = phase_of(options.schedule, step);
  phase_begin = now;
  steps.push_back({step, current_thread_id(), now, 0});
  if (phase == Phase::kWait && was_recording) recorder.uninstall();
  if (phase != Phase::kWait && !was_recording && wants(Activity::kCpu)) recorder.install();
}

void Session::Impl::leave(uint64_t now) {
  steps.back().end = now;
  if (phase != Phase::kActive) {
    steps.pop_back();
    return;
  }
  if (!windows.empty() && windows.back().end == phase_begin)
    windows.back().end = now;
  else
    windows.push_back({phase_begin, now});
}

Recording Session::Impl::assemble(std::vector<std::shared_ptr<ThreadBuffer>> buffers, uint64_t end_ticks) {
  const TickScale scale(first, CalibrationPoint::take(Recorder::instance().clock()));
  Recording recording;
  recording.base_ns = base_ns;
  recording.process = static_cast<uint64_t>(getpid());
  recording.record_shapes = options.record_shapes;
  recording.has_device_activity = wants(Activity::kCuda);
  recording.duration_ns = scale.ns(end_ticks);
  std::sort(buffers.begin(), buffers.end(),
            [](const auto& a, const auto& b) { return a->thread() < b->thread(); });
  for (const auto& buffer : buffers) read_buffer(*buffer, windows, scale, end_ticks, recording);
  if (!records_steps()) return recording;
  for (const StepMark& mark : steps)
    recording.steps.push_back({mark.index, mark.thread, scale.ns(mark.begin), scale.ns(mark.end)});
  // step() at the end of a loop opens a step that finish() closes at once: not one of the program's.
  if (stepped && !recording.steps.empty() && recording.steps.back().index == step) {
    const int64_t begin = recording.steps.back().begin_ns;
    const bool used = std::any_of(recording.events.begin(), recording.events.end(),
                                  [begin](const RecordedEvent& e) { return e.begin_ns >= begin; });
    if (!used) recording.steps.pop_back();
  }
  return recording;
}

void Session::Impl::stop_quietly() {
  if (finished) return;
  finished = true;
  (void)Recorder::instance().close();
  if (device) {
    Recording thrown_away;
    (void)device->stop(thrown_away);
  }
  g_session_active.store(false);
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&& other) noexcept {
  if (this != &other) {
    if (impl_) impl_->stop_quietly();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
Session::~Session() {
  if (impl_) impl_->stop_quietly();
}

Result<Session> Session::start(SessionOptions options) {
  ATTNSCOPE_TRY(check(options));
  if (g_session_active.exchange(true))
    return fail(ErrorCode::kUnavailable, "another profiler session is active in this process",
                "finish it first: two would each see half of the events");
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  if (impl->wants(Activity::kCuda)) {
    const ActivitySourceFactory factory = g_cuda_source.load();
    Result<std::unique_ptr<ActivitySource>> source =
        factory ? factory()
                : fail(ErrorCode::kUnavailable, "this build records no GPU activity",
                       "build with CUDA (ATTNSCOPE_CUDA=ON), or ask for Activity::kCpu only");
    Status started = source ? (*source)->start() : Status(tl::unexpected(source.error()));
    if (!started) {
      g_session_active.store(false);
      return tl::unexpected(started.error());
    }
    impl->device = std::move(*source);
  }
  Recorder& recorder = Recorder::instance();
  recorder.open(impl->options.record_shapes, impl->options.max_events_per_thread);
  impl->first = CalibrationPoint::take(recorder.clock());
  impl->base_ns = clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - impl->first.monotonic_ns);
  impl->enter(impl->first.ticks);
  return Session(std::move(impl));
}

void Session::step() {
  if (!impl_) return;
  std::lock_guard lock(impl_->mutex);
  if (impl_->finished) return;
  const uint64_t now = Recorder::instance().clock().now();
  impl_->leave(now);
  impl_->stepped = true;
  ++impl_->step;
  impl_->enter(now);
}

Result<Recording> Session::finish() {
  if (!impl_ || impl_->finished)
    return fail(ErrorCode::kInvalidArgument, "this session was finished before", "start another one");
  std::lock_guard lock(impl_->mutex);
  const uint64_t end_ticks = Recorder::instance().clock().now();
  impl_->leave(end_ticks);
  auto buffers = Recorder::instance().close();
  impl_->finished = true;
  Recording recording = impl_->assemble(std::move(buffers), end_ticks);
  Status device_stopped;
  if (impl_->device) {
    device_stopped = impl_->device->stop(recording);
    keep_windows(impl_->windows, impl_->options.schedule.active > 0,
                 TickScale(impl_->first, CalibrationPoint::take(Recorder::instance().clock())), recording);
  }
  g_session_active.store(false);
  ATTNSCOPE_TRY(device_stopped);
  return recording;
}

}  // namespace attnscope::profiler
