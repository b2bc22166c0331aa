// What the unfused variants tell the event sink: the article's counts, nesting, bytes, and that the plan's
// own list says the same.
#include "attention/backend.h"
#include "base/event_sink.h"
#include "support/attention_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace attnscope::testing {
namespace {

using ::testing::ElementsAre;

struct Event {
  std::string name;
  EventKind kind;
  int depth;
  int64_t bytes_read, bytes_written, flops;
};

class Recorder final : public EventSink {
 public:
  Recorder() { g_event_sink.store(this, std::memory_order_release); }
  ~Recorder() override { g_event_sink.store(nullptr, std::memory_order_release); }
  void begin(const EventInfo& info) noexcept override {
    events.push_back(
        {std::string(info.name), info.kind, depth++, info.bytes_read, info.bytes_written, info.flops});
  }
  void end() noexcept override { --depth; }
  void instant(const EventInfo& info) noexcept override {
    events.push_back(
        {std::string(info.name), info.kind, depth, info.bytes_read, info.bytes_written, info.flops});
  }
  int count(EventKind kind) const {
    return static_cast<int>(
        std::count_if(events.begin(), events.end(), [&](const Event& e) { return e.kind == kind; }));
  }
  std::vector<std::string> names(EventKind kind) const {
    std::vector<std::string> found;
    for (const Event& e : events)
      if (e.kind == kind) found.push_back(e.name);
    return found;
  }
  std::vector<Event> events;
  int depth = 0;
};

CaseSpec article() {
  CaseSpec spec;
  spec.dtype = DType::kBF16;
  spec.B = 2;
  spec.Hq = spec.Hk = spec.Hv = 2;
  spec.L = spec.S = 64;
  spec.E = spec.Ev = 32;
  spec.causal = CausalMode::kTopLeft;
  spec.lse = false;
  return spec;
}

Recorder run_recorded(AttentionCase& test, const char* backend) {
  EXPECT_TRUE(plan(test.request(), {{backend}}));  // planning is not what is counted here
  Recorder recorder;
  EXPECT_TRUE(sdpa(test.request(), test.outputs(), {{backend}}));
  return recorder;
}

TEST(UnfusedEvents, NaiveIsFiveKernelsAndTheHiddenCopy) {
  AttentionCase test(article());
  const Recorder r = run_recorded(test, "naive");
  EXPECT_THAT(r.names(EventKind::kOperator),
              ElementsAre("attnscope::sdpa", "attnscope::naive", "attnscope::matmul", "attnscope::mul",
                          "attnscope::masked_fill", "attnscope::softmax", "attnscope::matmul"));
  EXPECT_EQ(r.count(EventKind::kKernel), 5);
  EXPECT_EQ(r.count(EventKind::kCopy), 1);
  EXPECT_EQ(r.count(EventKind::kFill), 0);
  EXPECT_EQ(r.depth, 0);
  // The copy lies inside masked_fill, before its kernel, and moves the scores there and back.
  const auto copy = std::find_if(r.events.begin(), r.events.end(),
                                 [](const Event& e) { return e.kind == EventKind::kCopy; });
  EXPECT_EQ(std::prev(copy)->name, "attnscope::masked_fill");
  EXPECT_EQ(copy->depth, 3);
  EXPECT_EQ(copy->bytes_read, 2 * 2 * 64 * 64 * 2);
  EXPECT_EQ(copy->bytes_written, copy->bytes_read);
  EXPECT_EQ(std::next(copy)->name, "masked_fill_bf16");
}

TEST(UnfusedEvents, InplaceIsFiveKernels) {
  AttentionCase test(article());
  const Recorder r = run_recorded(test, "inplace");
  EXPECT_EQ(r.count(EventKind::kKernel), 5);
  EXPECT_EQ(r.count(EventKind::kCopy), 0);
  EXPECT_EQ(r.names(EventKind::kOperator)[4], "attnscope::masked_fill_");
}

TEST(UnfusedEvents, MathIsThePublishedTwentySteps) {
  AttentionCase test(article());
  const Recorder r = run_recorded(test, "math");
  std::vector<std::string> kernels = r.names(EventKind::kKernel);
  ASSERT_EQ(kernels.size(), 20u);
  // The library behind the products depends on the machine.
  EXPECT_THAT(kernels[10], ::testing::EndsWith("f32"));
  EXPECT_THAT(kernels[18], ::testing::EndsWith("f32"));
  kernels[10] = kernels[18] = "gemm";
  EXPECT_THAT(kernels, ElementsAre("cast_bf16_f32", "cast_bf16_f32", "cast_bf16_f32", "mul_f32", "fill_bool",
                                   "tril_bool", "fill_f32", "fill_f32", "where_f32", "mul_f32", "gemm",
                                   "add_f32", "softmax_f32", "isneginf_f32", "all_bool", "fill_f32",
                                   "where_f32", "cast_f32_bf16", "gemm", "cast_f32_bf16"));
  EXPECT_EQ(r.count(EventKind::kCopy), 0);
  EXPECT_EQ(r.count(EventKind::kFill), 0);
}

TEST(UnfusedEvents, MathWithoutHalvesHasNoCasts) {
  CaseSpec spec = article();
  spec.dtype = DType::kF32;
  AttentionCase test(spec);
  EXPECT_EQ(run_recorded(test, "math").count(EventKind::kKernel), 15);
  spec.causal = CausalMode::kNone;
  AttentionCase full(spec);
  EXPECT_EQ(run_recorded(full, "math").count(EventKind::kKernel), 9);
}

TEST(UnfusedEvents, EveryKernelKnowsItsBytesAndThePlanAgrees) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kF64})
    for (const char* backend : {"naive", "inplace", "math"})
      for (const MaskSpec mask : {MaskSpec::kNone, MaskSpec::kBoolFull, MaskSpec::kBiasF32}) {
        CaseSpec spec = article();
        spec.dtype = dtype;
        spec.mask = mask;
        AttentionCase test(spec);
        const auto made = *plan(test.request(), {{backend}});
        const Recorder r = run_recorded(test, backend);
        EXPECT_EQ(r.count(EventKind::kKernel), made->cost().kernels);
        EXPECT_EQ(r.count(EventKind::kCopy), made->cost().copies);
        EXPECT_EQ(made->impl().steps().size(),
                  static_cast<size_t>(made->cost().kernels + made->cost().copies));
        double moved = 0;
        for (const Event& e : r.events) {
          if (e.kind != EventKind::kKernel && e.kind != EventKind::kCopy) continue;
          EXPECT_GE(e.bytes_read, 0) << e.name;
          EXPECT_GE(e.bytes_written, 0) << e.name;
          moved += static_cast<double>(e.bytes_read + e.bytes_written);
        }
        EXPECT_EQ(moved, made->cost().moved_bytes);
      }
}

TEST(UnfusedEvents, TheProductIsNamedAfterWhatTheOutputTakes) {
  // oneDNN writes dense outputs only: for others a product of ours runs, and that is what the trace says.
  CaseSpec spec = article();
  spec.dtype = DType::kF32;
  for (const char* backend : {"naive", "math"})
    for (const Layout layout : {Layout::kSeqMajor, Layout::kLastStride2}) {
      AttentionCase dense(spec);
      GuardedOutput strided(spec.dtype, {spec.B, spec.Hq, spec.L, spec.Ev}, layout);
      Outputs outputs = dense.outputs();
      outputs.out = strided.view();
      ASSERT_TRUE(plan(dense.request(), {{backend}}));
      Recorder r;
      ASSERT_TRUE(sdpa(dense.request(), outputs, {{backend}}));
      EXPECT_EQ(r.names(EventKind::kKernel).back(), "gemm_f32") << backend;
    }
}

TEST(UnfusedEvents, RowsThatAreWidenedCountAsMemory) {
  CaseSpec spec = article();
  spec.B = spec.Hq = spec.Hk = spec.Hv = spec.L = 1;
  spec.S = 300'000;
  spec.causal = CausalMode::kNone;
  const auto bytes = [&](DType dtype, int threads) {
    spec.dtype = dtype;
    AttentionCase test(spec);
    test.request().limits.threads = threads;
    return static_cast<double>((*plan(test.request(), {{"naive"}}))->workspace_bytes());
  };
  // Two buffers of scores; of 16-bit scores also a row in f32 for each thread.
  EXPECT_LT(bytes(DType::kBF16, 1), 2 * 2 * 3e5 + 4 * 3e5 + 2e6);
  EXPECT_GE(bytes(DType::kBF16, 1), 2 * 2 * 3e5 + 4 * 3e5);
}

TEST(UnfusedEvents, TheWorkspaceIsReportedUnlessTheCallerBroughtIt) {
  AttentionCase test(article());
  const auto made = *plan(test.request(), {{"naive"}});
  {
    Recorder r;
    ASSERT_TRUE(run(*made, test.request(), test.outputs()));
    ASSERT_EQ(r.count(EventKind::kAllocation), 1);
    EXPECT_EQ(r.count(EventKind::kFree), 1);
    for (const Event& e : r.events)
      if (e.kind == EventKind::kAllocation) {
        EXPECT_EQ(e.bytes_written, static_cast<int64_t>(made->workspace_bytes()));
      }
  }
  const HostBuffer buffer = *HostBuffer::allocate(made->workspace_bytes());
  Recorder r;
  ASSERT_TRUE(run(*made, test.request(), test.outputs(), {nullptr, buffer.data(), buffer.bytes()}));
  EXPECT_EQ(r.count(EventKind::kAllocation), 0);
}

}  // namespace
}  // namespace attnscope::testing
