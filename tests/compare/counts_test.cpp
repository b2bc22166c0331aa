#include "compare/counts.h"

#include <gtest/gtest.h>

namespace attnscope::compare {
namespace {

using profiler::RecordedEvent;
using profiler::Recording;
using profiler::RecordKind;

// Builds recordings by hand: times in microseconds.
class Builder {
 public:
  void step(int64_t begin, int64_t end) {
    recording.steps.push_back({static_cast<int64_t>(recording.steps.size()), 1, begin * 1000, end * 1000});
  }
  int32_t add(const char* name, RecordKind kind, int64_t begin, int64_t end, int32_t parent = -1,
              int64_t read = -1, int64_t written = -1) {
    RecordedEvent e;
    e.name = name;
    e.kind = kind;
    e.thread = 1;
    e.begin_ns = begin * 1000;
    e.end_ns = end * 1000;
    e.parent = parent;
    e.bytes_read = read;
    e.bytes_written = written;
    recording.events.push_back(e);
    return static_cast<int32_t>(recording.events.size()) - 1;
  }
  Recording recording;
};

// One call of an operator with a kernel, a copy and a second kernel: 100 µs, of which 60 in its work.
void add_call(Builder& b, int64_t at) {
  b.step(at, at + 110);
  const int32_t op = b.add("sdpa", RecordKind::kOperator, at, at + 100);
  b.add("allocate", RecordKind::kAllocation, at + 1, at + 1, op, -1, 1000);
  const int32_t inner = b.add("masked_fill", RecordKind::kOperator, at + 10, at + 60, op);
  b.add("clone", RecordKind::kCopy, at + 10, at + 30, inner, 400, 400);
  b.add("allocate", RecordKind::kAllocation, at + 30, at + 30, inner, -1, 500);
  b.add("fill", RecordKind::kKernel, at + 30, at + 50, inner, 400, 400);
  b.add("free", RecordKind::kFree, at + 55, at + 55, inner, -1, 500);
  b.add("softmax", RecordKind::kKernel, at + 70, at + 90, op, 100, 100);
  b.add("free", RecordKind::kFree, at + 95, at + 95, op, -1, 1000);
}

TEST(Counts, OfOneCallFromSeveral) {
  Builder b;
  b.add("before", RecordKind::kKernel, 0, 5);  // outside every step
  add_call(b, 100);
  add_call(b, 300);
  add_call(b, 500);
  const CallCounts c = count_calls(b.recording);
  EXPECT_EQ(c.calls, 3);
  EXPECT_TRUE(c.steady);
  EXPECT_EQ(c.kernels, 2);
  EXPECT_EQ(c.copies, 1);
  EXPECT_EQ(c.fills, 0);
  EXPECT_EQ(c.bytes_moved, 400 + 400 + 400 + 400 + 100 + 100);
  EXPECT_EQ(c.copied_bytes, 400);
  EXPECT_EQ(c.intermediate_bytes, 1500);
  EXPECT_DOUBLE_EQ(c.work_us.p50, 60);
  EXPECT_DOUBLE_EQ(c.host_us.p50, 40);
  ASSERT_EQ(c.rows.size(), 3u);
  EXPECT_EQ(c.rows[0].name, "clone");
  EXPECT_EQ(c.rows[0].op, "masked_fill");
  EXPECT_EQ(c.rows[2].op, "sdpa");
  EXPECT_DOUBLE_EQ(c.rows[0].time_us, 20);
}

TEST(Counts, SaysWhenCallsDiffer) {
  Builder b;
  add_call(b, 100);
  add_call(b, 300);
  b.add("extra", RecordKind::kKernel, 395, 398);
  EXPECT_FALSE(count_calls(b.recording).steady);
}

TEST(Counts, UnknownBytesAreNotZero) {
  Builder b;
  b.step(0, 100);
  b.add("k", RecordKind::kKernel, 1, 2);
  EXPECT_EQ(count_calls(b.recording).bytes_moved, -1);
}

TEST(Counts, NothingRecorded) {
  EXPECT_EQ(count_calls(Recording{}).calls, 0);
}

TEST(Counts, DeviceWorkBelongsToTheCallThatLaunchedIt) {
  Builder b;
  b.step(0, 100);
  b.step(200, 300);
  const int32_t op = b.add("flash", RecordKind::kOperator, 10, 50);
  b.add("flash_kernel", RecordKind::kKernel, 20, 30, op, 64, 32);  // the launch, as the host tells it
  b.recording.has_device_activity = true;
  b.recording.runtime_events.push_back({"cudaLaunchKernel", false, 1, 22'000, 24'000, 9});
  b.recording.runtime_events.push_back({"cudaLaunchKernel", false, 1, 222'000, 224'000, 10});
  profiler::DeviceEvent kernel;
  kernel.name = "flash_fwd_sm90";
  kernel.correlation = 9;
  kernel.begin_ns = 120'000;  // runs after its call returned
  kernel.end_ns = 150'000;
  kernel.registers_per_thread = 168;
  kernel.block = {384, 1, 1};
  b.recording.device_events.push_back(kernel);
  kernel.correlation = 10;
  kernel.begin_ns = 230'000;
  kernel.end_ns = 260'000;
  b.recording.device_events.push_back(kernel);
  const CallCounts c = count_calls(b.recording);
  EXPECT_EQ(c.kernels, 1);
  EXPECT_EQ(c.rows[0].name, "flash_fwd_sm90");
  EXPECT_EQ(c.rows[0].op, "flash");
  EXPECT_EQ(c.rows[0].bytes_read, 64);
  EXPECT_EQ(c.rows[0].registers, 168);
  EXPECT_DOUBLE_EQ(c.work_us.mean, 30);
  EXPECT_DOUBLE_EQ(c.host_us.max, 40);
}

// cuBLAS and cuDNN put a 4-byte fill before their kernel, under the same described launch.
TEST(Counts, AFillUnderADescribedKernelKeepsItsOwnBytes) {
  Builder b;
  b.step(0, 100);
  const int32_t op = b.add("matmul", RecordKind::kOperator, 10, 50);
  b.add("gemm", RecordKind::kKernel, 20, 40, op, 64, 32);
  b.recording.has_device_activity = true;
  b.recording.runtime_events.push_back({"cudaMemsetAsync", false, 1, 21'000, 22'000, 8});
  b.recording.runtime_events.push_back({"cudaLaunchKernel", false, 1, 23'000, 24'000, 9});
  profiler::DeviceEvent fill, kernel;
  fill.kind = RecordKind::kFill;
  fill.bytes = 4;
  fill.correlation = 8;
  fill.begin_ns = 25'000;
  fill.end_ns = 26'000;
  kernel.correlation = 9;
  kernel.begin_ns = 26'000;
  kernel.end_ns = 30'000;
  b.recording.device_events = {fill, kernel};
  const CallCounts c = count_calls(b.recording);
  ASSERT_EQ(c.rows.size(), 2u);
  EXPECT_EQ(c.rows[0].bytes_read, -1);
  EXPECT_EQ(c.rows[0].bytes_written, 4);
  EXPECT_EQ(c.rows[0].flops, -1);
  EXPECT_EQ(c.rows[1].bytes_read, 64);
  EXPECT_EQ(c.rows[1].bytes_written, 32);
  EXPECT_DOUBLE_EQ(c.bytes_moved, 100);
}

}  // namespace
}  // namespace attnscope::compare
