// What does a range cost, and what does it cost when nobody records?
//
// "idle" is a range without a session, "recording" one with; "nothing" is the same loop without a range, so
// that idle − nothing is what a program pays for leaving its ranges in. The goal is ≤ 100 ns when recording.
#include "attnscope/profiler.h"
#include "base/event_sink.h"

#include <benchmark/benchmark.h>

namespace attnscope::profiler {
namespace {

void nothing(benchmark::State& state) {
  for (auto _ : state) benchmark::ClobberMemory();
}
BENCHMARK(nothing);

void range_idle(benchmark::State& state) {
  for (auto _ : state) {
    Range range("attn_fwd");
    benchmark::ClobberMemory();
  }
}
BENCHMARK(range_idle);
BENCHMARK(range_idle)->Threads(2);

// Sessions are restarted every so often, as a program's would be: memory for the events is taken within the
// measured time, assembling the recording is not.
template <typename Body>
void recorded(benchmark::State& state, SessionOptions options, Body body) {
  constexpr int kPerSession = 100'000;
  int left = 0;
  Result<Session> session = fail(ErrorCode::kInternal, "not started");
  for (auto _ : state) {
    if (left-- == 0) {
      state.PauseTiming();
      session = fail(ErrorCode::kInternal, "between sessions");
      session = Session::start(options);
      left = kPerSession;
      state.ResumeTiming();
    }
    body();
    benchmark::ClobberMemory();
  }
}

void range_recording(benchmark::State& state) {
  recorded(state, {}, [] { Range range("attn_fwd"); });
}
BENCHMARK(range_recording);

void kernel_event_recording(benchmark::State& state) {
  recorded(state, {}, [] { EventScope scope("gemm", EventKind::kKernel, 1, 2, 3); });
}
BENCHMARK(kernel_event_recording);

void operator_with_shapes_recording(benchmark::State& state) {
  const TensorView q = TensorView::contiguous(nullptr, DType::kF32, {8, 16, 1024, 64});
  const TensorView* inputs[] = {&q, &q, &q};
  recorded(state, {.record_shapes = true}, [&] {
    EventInfo info{"attnscope::sdpa", EventKind::kOperator};
    info.inputs = inputs;
    info.input_count = 3;
    EventScope scope(info);
  });
}
BENCHMARK(operator_with_shapes_recording);

}  // namespace
}  // namespace attnscope::profiler

BENCHMARK_MAIN();
