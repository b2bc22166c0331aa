#include "attnscope/profiler.h"
#include "base/event_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace attnscope::profiler {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> names(const Recording& recording) {
  std::vector<std::string> out;
  for (const RecordedEvent& e : recording.events) out.push_back(e.name);
  return out;
}

TEST(Session, KeepsNestingKindsAndFigures) {
  Session session = Session::start({.record_shapes = true}).value();
  {
    Range range(std::string("attn ") + "forward");  // the name is a temporary: it must be copied
    const TensorView q = TensorView::contiguous(nullptr, DType::kBF16, {1, 2, 3, 4});
    const TensorView* inputs[] = {&q};
    EventScope op(
        EventInfo{.name = "matmul", .kind = EventKind::kOperator, .inputs = inputs, .input_count = 1});
    report_instant(
        EventInfo{.name = "scores", .kind = EventKind::kAllocation, .bytes_written = 96, .address = 7});
    EventScope kernel("gemm", EventKind::kKernel, 10, 20, 30);
  }
  const Recording recording = session.finish().value();
  ASSERT_THAT(names(recording), ::testing::ElementsAre("attn forward", "matmul", "scores", "gemm"));
  const auto& e = recording.events;
  EXPECT_EQ(e[0].parent, -1);
  EXPECT_EQ(e[1].parent, 0);
  EXPECT_EQ(e[2].parent, 1);
  EXPECT_EQ(e[3].parent, 1);
  EXPECT_EQ(e[0].kind, RecordKind::kRange);
  EXPECT_EQ(e[3].kind, RecordKind::kKernel);
  EXPECT_EQ(e[3].bytes_read, 10);
  EXPECT_EQ(e[3].bytes_written, 20);
  EXPECT_EQ(e[3].flops, 30);
  EXPECT_EQ(e[2].address, 7u);
  EXPECT_EQ(e[2].begin_ns, e[2].end_ns);
  ASSERT_EQ(e[1].inputs.size(), 1u);
  EXPECT_EQ(e[1].inputs[0].dtype, DType::kBF16);
  EXPECT_THAT(e[1].inputs[0].sizes, ::testing::ElementsAre(1, 2, 3, 4));
  for (const RecordedEvent& event : e) {
    EXPECT_TRUE(event.complete);
    EXPECT_LE(event.begin_ns, event.end_ns);
    EXPECT_LE(event.end_ns, recording.duration_ns);
    if (event.parent >= 0) {
      EXPECT_GE(event.begin_ns, e[static_cast<size_t>(event.parent)].begin_ns);
      EXPECT_LE(event.end_ns, e[static_cast<size_t>(event.parent)].end_ns);
    }
  }
  EXPECT_TRUE(recording.steps.empty());
}

TEST(Session, NothingIsKeptOutside) {
  {
    Range before("before");
  }
  Session session = Session::start().value();
  {
    Range inside("inside");
  }
  const Recording recording = session.finish().value();
  {
    Range after("after");
  }
  EXPECT_THAT(names(recording), ::testing::ElementsAre("inside"));
  EXPECT_FALSE(profiler::recording());
}

TEST(Session, OverlappingSessionsAreRefused) {
  Session session = Session::start().value();
  const Result<Session> second = Session::start();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message, HasSubstr("another profiler session"));
  ASSERT_TRUE(session.finish());
  EXPECT_TRUE(Session::start());
}

TEST(Session, FinishingTwiceIsAnError) {
  Session session = Session::start().value();
  ASSERT_TRUE(session.finish());
  const auto again = session.finish();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ErrorCode::kInvalidArgument);
}

TEST(Session, DroppedSessionMakesRoom) {
  {
    Session session = Session::start().value();
  }
  EXPECT_FALSE(profiler::recording());
  EXPECT_TRUE(Session::start());
}

TEST(Session, OpenEventsAreMarked) {
  Session session = Session::start().value();
  auto range = std::make_unique<Range>("open");
  const Recording recording = session.finish().value();
  ASSERT_EQ(recording.events.size(), 1u);
  EXPECT_FALSE(recording.events[0].complete);
  EXPECT_EQ(recording.events[0].end_ns, recording.duration_ns);
  // Its end arrives under the next session and must disturb nothing there.
  Session next = Session::start().value();
  Range inner("inner");
  range.reset();
  const Recording second = next.finish().value();
  EXPECT_THAT(names(second), ::testing::ElementsAre("inner"));
}

TEST(Session, ThreadsAreToldApart) {
  Session session = Session::start().value();
  constexpr int kThreads = 4, kRanges = 3000;  // more than one chunk each
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < kRanges; ++i) {
        Range outer("outer " + std::to_string(t));
        EventScope inner("kernel", EventKind::kKernel);
      }
    });
  for (std::thread& thread : threads) thread.join();
  const Recording recording = session.finish().value();
  ASSERT_EQ(recording.events.size(), size_t{2 * kThreads * kRanges});
  EXPECT_EQ(recording.dropped, 0);
  for (size_t i = 0; i < recording.events.size(); i += 2) {
    const RecordedEvent& outer = recording.events[i];
    const RecordedEvent& inner = recording.events[i + 1];
    ASSERT_THAT(outer.name, ::testing::StartsWith("outer"));
    ASSERT_EQ(inner.name, "kernel");
    ASSERT_EQ(inner.parent, static_cast<int32_t>(i));
    ASSERT_EQ(inner.thread, outer.thread);
  }
}

TEST(Session, FinishWhileOtherThreadsRecord) {
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    while (!stop.load()) {
      Range outer("outer");
      Range inner("inner");
    }
  });
  for (int i = 0; i < 20; ++i) {
    Session session = Session::start().value();
    std::this_thread::yield();
    const Recording recording = session.finish().value();
    for (const RecordedEvent& e : recording.events) ASSERT_LE(e.begin_ns, e.end_ns);
  }
  stop.store(true);
  worker.join();
}

TEST(Session, MoreThanTheLimitIsCounted) {
  Session session = Session::start({.max_events_per_thread = 10}).value();
  for (int i = 0; i < 16; ++i) Range range("r");
  const Recording recording = session.finish().value();
  EXPECT_EQ(recording.events.size(), 10u);
  EXPECT_EQ(recording.dropped, 6);
}

TEST(Session, DeepNestingIsCountedAndStaysBalanced) {
  Session session = Session::start().value();
  {
    std::vector<std::unique_ptr<Range>> nest;
    for (int i = 0; i < 600; ++i) nest.push_back(std::make_unique<Range>("deep"));
    while (!nest.empty()) nest.pop_back();
  }
  {
    Range after("after");
  }
  const Recording recording = session.finish().value();
  EXPECT_EQ(recording.dropped, 600 - 512);
  EXPECT_EQ(recording.events.back().name, "after");
  EXPECT_EQ(recording.events.back().parent, -1);
}

TEST(Schedule, PhasesFollowTorch) {
  const Schedule s{.skip_first = 1, .wait = 1, .warmup = 1, .active = 2, .repeat = 2};
  std::string phases;
  for (int step = 0; step < 11; ++step) phases += "wua"[static_cast<int>(phase_of(s, step))];
  EXPECT_EQ(phases, "wwuaawuaaww");
  EXPECT_EQ(phase_of({}, 100), Phase::kActive);
}

TEST(Schedule, KeepsOnlyActiveSteps) {
  Session session = Session::start({.schedule = {.wait = 1, .warmup = 1, .active = 3}}).value();
  for (int i = 0; i < 5; ++i) {
    {
      Range range("iteration " + std::to_string(i));
    }
    session.step();
  }
  const Recording recording = session.finish().value();
  EXPECT_THAT(names(recording), ::testing::ElementsAre("iteration 2", "iteration 3", "iteration 4"));
  ASSERT_EQ(recording.steps.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(recording.steps[i].index, static_cast<int64_t>(i) + 2);
    EXPECT_LE(recording.steps[i].begin_ns, recording.events[i].begin_ns);
    EXPECT_GE(recording.steps[i].end_ns, recording.events[i].end_ns);
  }
}

TEST(Schedule, StepsWithoutAScheduleAreKept) {
  Session session = Session::start().value();
  for (int i = 0; i < 2; ++i) {
    {
      Range range("r");
    }
    session.step();
  }
  EXPECT_EQ(session.finish().value().steps.size(), 2u);
}

TEST(Schedule, BadOnesAreRefused) {
  EXPECT_EQ(Session::start({.schedule = {.wait = -1, .active = 1}}).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_THAT(Session::start({.schedule = {.wait = 2}}).error().message, HasSubstr("would keep no step"));
  EXPECT_THAT(Session::start({.activities = {}}).error().message, HasSubstr("no activity"));
}

// A GPU whose records are given: what the session keeps of them must follow the launches.
class FakeGpu final : public ActivitySource {
 public:
  static inline std::vector<std::pair<int64_t, int64_t>> launches;  // Unix ns of launch, of execution
  Status start() override { return {}; }
  Status stop(Recording& recording) override {
    uint64_t correlation = 1;
    for (const auto& [launch, run] : launches) {
      const int64_t at = launch - recording.base_ns, ran = run - recording.base_ns;
      recording.runtime_events.push_back({"cudaLaunchKernel", false, 1, at, at + 10, correlation});
      DeviceEvent kernel;
      kernel.name = "kernel " + std::to_string(correlation);
      kernel.begin_ns = ran;
      kernel.end_ns = ran + 10;
      kernel.correlation = correlation;
      recording.device_events.push_back(kernel);
      recording.sync_events.push_back({"Stream Sync", 1, 7, at, at + 10, correlation});
      recording.overhead_events.push_back({"Buffer Flush", at, at + 10});
      ++correlation;
    }
    return {};
  }
};

TEST(Session, DeviceWorkFollowsItsLaunch) {
  set_cuda_activity_source(+[]() -> Result<std::unique_ptr<ActivitySource>> {
    return std::unique_ptr<ActivitySource>(std::make_unique<FakeGpu>());
  });
  FakeGpu::launches.clear();
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  };
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  Session session = Session::start({.activities = {Activity::kCpu, Activity::kCuda},
                                    .schedule = {.wait = 1, .active = 1, .repeat = 1}})
                        .value();
  pause();
  const int64_t early = now();
  pause();
  session.step();
  pause();
  const int64_t active = now();
  pause();
  session.step();
  pause();
  // Launched in the wait, ran in the active step; launched in the active step, ran after it.
  FakeGpu::launches = {{early, active}, {active, now()}};
  const Recording recording = session.finish().value();
  ASSERT_EQ(recording.device_events.size(), 1u);
  EXPECT_EQ(recording.device_events[0].name, "kernel 2");
  EXPECT_EQ(recording.runtime_events.size(), 1u);
  // Waits and the profiler's own time as well.
  ASSERT_EQ(recording.sync_events.size(), 1u);
  EXPECT_EQ(recording.sync_events[0].correlation, 2u);
  EXPECT_EQ(recording.overhead_events.size(), 1u);
  set_cuda_activity_source(nullptr);
}

TEST(Session, GpuActivityWithoutASourceSaysSo) {
  const auto session = Session::start({.activities = {Activity::kCuda}});
  ASSERT_FALSE(session);
  EXPECT_EQ(session.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(session.error().message, HasSubstr("no GPU activity"));
  EXPECT_TRUE(Session::start());  // the failed one left nothing behind
}

}  // namespace
}  // namespace attnscope::profiler
