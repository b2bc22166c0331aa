#include "profiler/export.h"

#include "base/event_sink.h"
#include "trace/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace attnscope::profiler {
namespace {

using trace::EventClass;

std::vector<trace::EventIndex> of_class(const trace::Trace& t, EventClass cls) {
  std::vector<trace::EventIndex> out;
  for (trace::EventIndex i = 0; i < t.size(); ++i)
    if (t.cls(i) == cls) out.push_back(i);
  return out;
}

// One recorded attention-like call: an operator with two kernels, a copy, a fill and a temporary.
Recording sample() {
  Session session =
      Session::start({.record_shapes = true, .schedule = {.warmup = 1, .active = 1, .repeat = 1}}).value();
  for (int i = 0; i < 2; ++i) {
    {
      Range range("attn_fwd");
      const TensorView q = TensorView::contiguous(nullptr, DType::kBF16, {1, 2, 3, 4});
      const TensorView mask = TensorView::contiguous(nullptr, DType::kBool, {1, 1, 3, 3});
      const TensorView* inputs[] = {&q, &mask};
      EventScope op(EventInfo{
          .name = "attnscope::naive", .kind = EventKind::kOperator, .inputs = inputs, .input_count = 2});
      report_instant(
          EventInfo{.name = "scores", .kind = EventKind::kAllocation, .bytes_written = 96, .address = 7});
      {
        EventScope kernel("gemm", EventKind::kKernel, 10, 20, 30);
      }
      {
        EventScope copy("clone", EventKind::kCopy, 96, 96);
      }
      {
        EventScope fill("zero", EventKind::kFill, -1, 96);
      }
      {
        EventScope kernel("softmax", EventKind::kKernel, 20, 20);
      }
      report_instant(
          EventInfo{.name = "scores", .kind = EventKind::kFree, .bytes_written = 96, .address = 7});
    }
    session.step();
  }
  return session.finish().value();
}

TEST(Export, ClassesNamesAndFigures) {
  const trace::Trace t = to_trace(sample(), {.producer = "attnscope test"});
  EXPECT_EQ(t.metadata().producer, "attnscope test");
  EXPECT_EQ(t.era(), trace::Era::kAttnscope);
  EXPECT_TRUE(t.metadata().record_shapes);
  EXPECT_TRUE(t.clock().has_file_base);

  const auto kernels = of_class(t, EventClass::kKernel);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(t.name(kernels[0]), "gemm");
  EXPECT_EQ(t.category(kernels[0]), "cpu_kernel");
  EXPECT_EQ(t.work(kernels[0]).bytes_read, 10);
  EXPECT_EQ(t.work(kernels[0]).bytes_written, 20);
  EXPECT_EQ(t.work(kernels[0]).flops, 30);
  EXPECT_EQ(t.work(kernels[1]).flops, -1);
  ASSERT_EQ(of_class(t, EventClass::kMemcpy).size(), 1u);
  EXPECT_EQ(t.copy(of_class(t, EventClass::kMemcpy)[0]).bytes, 96);
  ASSERT_EQ(of_class(t, EventClass::kMemset).size(), 1u);

  const auto ops = of_class(t, EventClass::kOperator);
  ASSERT_EQ(ops.size(), 1u);
  EXPECT_EQ(t.name(ops[0]), "attnscope::naive");
  EXPECT_EQ(t.operator_args(ops[0]).input_dims, "[[1, 2, 3, 4], [1, 1, 3, 3]]");
  EXPECT_EQ(t.operator_args(ops[0]).input_types, R"(["c10::BFloat16", "bool"])");

  const auto ranges = of_class(t, EventClass::kUserRange);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(t.name(ranges[0]), "ProfilerStep#1");
  EXPECT_EQ(t.name(ranges[1]), "attn_fwd");

  const auto memory = of_class(t, EventClass::kMemory);
  ASSERT_EQ(memory.size(), 2u);
  EXPECT_EQ(t.memory(memory[0]).bytes, 96);
  EXPECT_EQ(t.memory(memory[0]).total_allocated, 96);
  EXPECT_EQ(t.memory(memory[1]).bytes, -96);
  EXPECT_EQ(t.memory(memory[1]).total_allocated, 0);
}

TEST(Export, LinksFindTheCpuKernelsUnderTheirOperator) {
  const trace::Trace t = to_trace(sample());
  const trace::Links links = trace::Links::build(t);
  ASSERT_EQ(links.steps().size(), 1u);
  EXPECT_EQ(links.steps()[0].number, 1);
  const auto range = links.range_sum(t.find_text("attn_fwd"));
  EXPECT_EQ(range.calls, 1u);
  EXPECT_EQ(range.own_thread.kernels, 2u);
  EXPECT_EQ(range.own_thread.copies, 1u);
  EXPECT_EQ(range.own_thread.fills, 1u);
  for (const trace::EventIndex kernel : of_class(t, EventClass::kKernel)) {
    EXPECT_EQ(links.device_link(kernel).basis, trace::LinkBasis::kCpu);
    EXPECT_EQ(t.name(links.launched_by(kernel)), "attnscope::naive");
  }
}

TEST(Export, RunningTotalCrossesThreads) {
  Session session = Session::start().value();
  const auto allocate = [](int64_t bytes) {
    report_instant(EventInfo{.name = "t", .kind = EventKind::kAllocation, .bytes_written = bytes});
  };
  allocate(100);
  std::thread([&] { allocate(50); }).join();
  allocate(1);
  const trace::Trace t = to_trace(session.finish().value());
  std::vector<int64_t> totals;
  for (const trace::EventIndex i : of_class(t, EventClass::kMemory))
    totals.push_back(t.memory(i).total_allocated);
  EXPECT_THAT(totals, ::testing::ElementsAre(100, 150, 151));
}

TEST(Export, GpuWorkGetsItsRowAndItsLaunch) {
  Recording recording;
  recording.process = 42;
  recording.runtime_events.push_back({"cudaLaunchKernel", false, 9, 100, 110, 5});
  DeviceEvent kernel;
  kernel.name = "flash_fwd";
  kernel.stream = 7;
  kernel.begin_ns = 120;
  kernel.end_ns = 200;
  kernel.correlation = 5;
  kernel.registers_per_thread = 255;
  kernel.block = {128, 1, 1};
  recording.device_events.push_back(kernel);
  DeviceEvent copy;
  copy.kind = RecordKind::kCopy;
  copy.copy_kind = "HtoD";
  copy.from_memory = "Pageable";
  copy.to_memory = "Device";
  copy.stream = 7;
  copy.bytes = 4096;
  recording.device_events.push_back(copy);
  recording.devices.push_back({0, "NVIDIA H200", {{"numSms", 132}}});
  const trace::Trace t = to_trace(recording);
  const auto kernels = of_class(t, EventClass::kKernel);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(t.category(kernels[0]), "kernel");
  EXPECT_EQ(t.thread_of(kernels[0]).tid, "7");
  EXPECT_EQ(t.kernel_config(kernels[0]).registers, 255);
  EXPECT_EQ(trace::Links::build(t).device_link(kernels[0]).basis, trace::LinkBasis::kCorrelation);
  const auto copies = of_class(t, EventClass::kMemcpy);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(t.copy(copies[0]).kind, trace::CopyKind::kHtoD);
  EXPECT_EQ(t.copy(copies[0]).from, trace::MemoryKind::kPageable);
  ASSERT_NE(t.device(0), nullptr);
  EXPECT_EQ(t.device(0)->num_sms, 132);
}

TEST(Export, AWaitLiesOnTheDeviceOfItsContext) {
  Recording recording;
  for (const int device : {0, 1}) {
    DeviceEvent kernel;
    kernel.name = "flash_fwd";
    kernel.device = device;
    kernel.context = device + 1;
    kernel.stream = 7;
    recording.device_events.push_back(kernel);
    recording.sync_events.push_back({"Stream Sync", device + 1, 7, 0, 10, 0});
  }
  const trace::Trace t = to_trace(recording);
  const auto kernels = of_class(t, EventClass::kKernel), waits = of_class(t, EventClass::kSync);
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(t.thread(waits[0]), t.thread(kernels[0]));
  EXPECT_EQ(t.thread(waits[1]), t.thread(kernels[1]));
  EXPECT_NE(t.thread(waits[0]), t.thread(waits[1]));
}

}  // namespace
}  // namespace attnscope::profiler
