#include "trace/trace.h"

#include "trace/builder.h"
#include "trace/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace attnscope::trace {
namespace {

EventInput op(TraceBuilder& b, const char* name, int64_t ts, int64_t dur) {
  EventInput e;
  e.cls = EventClass::kOperator;
  e.name = b.intern(name);
  e.ts_ns = ts;
  e.dur_ns = dur;
  e.thread = b.thread(1, 1);
  return e;
}

TEST(TraceBuilder, TimesAreRelativeToTheEarliestEventThatHasATime) {
  TraceBuilder b;
  b.add(op(b, "late", 1606910596288081000, 5));
  b.add(op(b, "early", 1606910596288080999, 7));
  b.add(op(b, "lost time stamp", 0, 1));
  const Trace t = b.finish();
  EXPECT_EQ(t.ts_ns(0), 1);
  EXPECT_EQ(t.ts_ns(1), 0);
  EXPECT_EQ(t.ts_ns(2), -1606910596288080999);
  EXPECT_EQ(t.clock().base_ns(), "1606910596288080999");
}

TEST(TraceBuilder, AbsoluteBaseIsExactBeyondDoublesAndInt64) {
  TraceBuilder b;
  b.clock().file_base_ns = "9223372036854775807";
  b.clock().has_file_base = true;
  b.add(op(b, "a", 3, 1));
  EXPECT_EQ(b.finish().clock().base_ns(), "9223372036854775810");
}

TEST(TraceBuilder, OrdinalsSkipEntriesThatAreNotKept) {
  TraceBuilder b;
  std::vector<uint64_t> kept;
  for (uint64_t entry = 0; entry < 5000; ++entry) {
    if (entry % 7 == 3 || (entry > 1000 && entry < 3000)) {
      b.skip_entry();
    } else {
      kept.push_back(entry);
      b.add(op(b, "x", static_cast<int64_t>(entry) + 1, 1));
    }
  }
  const Trace t = b.finish();
  ASSERT_EQ(t.size(), kept.size());
  EXPECT_EQ(t.totals().events, 5000u);
  for (EventIndex i = 0; i < t.size(); ++i) {
    ASSERT_EQ(t.ordinal(i), kept[i]);
    ASSERT_EQ(t.at_ordinal(kept[i]), i);
  }
  EXPECT_EQ(t.at_ordinal(3), kNoEvent);
  EXPECT_EQ(t.at_ordinal(2000), kNoEvent);
  EXPECT_EQ(t.at_ordinal(1 << 20), kNoEvent);
}

TEST(TraceBuilder, LongDurationsAndLargeIdsKeepTheirValues) {
  constexpr int64_t kHour = 3'600'000'000'000;
  constexpr uint64_t kLarge = 10159970886766084423ull;
  TraceBuilder b;
  EventInput slow = op(b, "slow", 1, kHour);
  slow.external_id = kLarge;
  b.add(slow);
  EventInput quick = op(b, "quick", 2, std::numeric_limits<uint32_t>::max());
  quick.external_id = (1u << 31) - 1;
  b.add(quick);
  EventInput kernel;
  kernel.cls = EventClass::kKernel;
  kernel.correlation = kLarge - 1;
  kernel.external_id = std::numeric_limits<uint32_t>::max();
  kernel.ts_ns = 5;
  kernel.thread = b.thread(0, 7);
  b.add(kernel);
  EventInput call;
  call.cls = EventClass::kRuntime;
  call.correlation = kLarge - 1;
  call.ts_ns = 4;
  call.thread = b.thread(1, 1);
  b.add(call);
  const Trace t = b.finish();
  EXPECT_EQ(t.dur_ns(0), kHour);
  EXPECT_EQ(t.dur_ns(1), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(t.external_id(0), kLarge);
  EXPECT_EQ(t.external_id(1), (1u << 31) - 1);
  EXPECT_EQ(t.correlation(2), kLarge - 1);
  EXPECT_EQ(t.external_id(2), std::numeric_limits<uint32_t>::max());
  EXPECT_EQ(t.correlation(3), kLarge - 1);
}

TEST(TraceBuilder, NegativeDurationIsZeroAndCounted) {
  TraceBuilder b;
  b.add(op(b, "x", 10, -4));
  const Trace t = b.finish();
  EXPECT_EQ(t.dur_ns(0), 0);
  EXPECT_EQ(t.diagnostics().count(Diag::kNegativeDuration), 1u);
}

TEST(TraceBuilder, AbsurdTimesAreClampedSoThatSumsStayDefined) {
  TraceBuilder b;
  for (int i = 0; i < 3000; ++i) b.add(op(b, "x", i % 2 ? INT64_MAX : INT64_MIN, INT64_MAX));
  const EventIndex open = b.add(op(b, "open", INT64_MIN, 0));
  b.close(open, INT64_MAX);
  const Trace t = b.finish();
  EXPECT_EQ(t.diagnostics().count(Diag::kTimeOutOfRange), 3001u);
  const Links l = Links::build(t);
  EXPECT_GT(l.range_sum(t.find_text("x")).host_ns, 0);
  for (EventIndex i = 0; i < t.size(); ++i) ASSERT_GE(t.end_ns(i), t.ts_ns(i));
}

TEST(TraceBuilder, SpansCanBeClosedLaterInAnyOrder) {
  constexpr int64_t kLong = 10'000'000'000;
  TraceBuilder b;
  const EventIndex outer = b.add(op(b, "outer", 100, 0));
  const EventIndex inner = b.add(op(b, "inner", 150, 0));
  b.close(inner, 150 + kLong);
  b.close(outer, 100 + 2 * kLong);
  const Trace t = b.finish();
  EXPECT_EQ(t.dur_ns(outer), 2 * kLong);
  EXPECT_EQ(t.dur_ns(inner), kLong);
}

TEST(TraceBuilder, DigitsAndNumbersNameTheSameRow) {
  TraceBuilder b;
  const uint32_t number = b.thread(67844, 4093687616);
  EXPECT_EQ(b.thread("67844", true, "4093687616", false), number);
  const uint32_t spans = b.thread("Spans", false, "PyTorch Profiler", false);
  EXPECT_NE(spans, number);
  b.name_process("67844", "python");
  b.name_thread(number, "main");
  const Trace t = b.finish();
  EXPECT_EQ(t.text(t.threads()[number].process_name), "python");
  EXPECT_EQ(t.text(t.threads()[number].name), "main");
  EXPECT_FALSE(t.threads()[spans].pid_is_number);
}

TEST(TraceBuilder, DevicesWithWorkAreMarked) {
  TraceBuilder b;
  for (const int id : {0, 1}) {
    DeviceProperties d;
    d.id = id;
    b.add_device(d);
  }
  EventInput k;
  k.cls = EventClass::kKernel;
  k.queue = {1, 1, 7};
  k.ts_ns = 1;
  b.thread(1, 7);
  b.add(k);
  const Trace t = b.finish();
  EXPECT_FALSE(t.devices()[0].has_events);
  EXPECT_TRUE(t.devices()[1].has_events);
  EXPECT_EQ(t.queue(0), (Queue{1, 1, 7}));
}

TEST(Trace, EqualKernelConfigurationsAreStoredOnce) {
  TraceBuilder b;
  b.thread(0, 7);
  for (int i = 0; i < 1000; ++i) {
    KernelConfig c;
    c.registers = 32 + i % 3;
    c.grid = {i % 5, 1, 1};
    EventInput k;
    k.cls = EventClass::kKernel;
    k.config = &c;
    k.ts_ns = i + 1;
    b.add(k);
  }
  const Trace t = b.finish();
  EXPECT_EQ(t.kernel_configs().size(), 15u);
  EXPECT_EQ(t.kernel_config(7).registers, 32 + 7 % 3);
  EXPECT_EQ(t.kernel_config(7).grid[0], 7 % 5);
  EXPECT_EQ(t.totals().kernels, 1000u);
}

TEST(Trace, CopyNamesSayKindAndMemory) {
  CopyInfo c;
  describe_copy_name("Memcpy HtoD (Pageable -> Device)", c);
  EXPECT_EQ(c.kind, CopyKind::kHtoD);
  EXPECT_EQ(c.from, MemoryKind::kPageable);
  EXPECT_EQ(c.to, MemoryKind::kDevice);
  c = {};
  describe_copy_name("Memcpy DtoH (Device -> Pinned)", c);
  EXPECT_EQ(c.kind, CopyKind::kDtoH);
  EXPECT_EQ(c.to, MemoryKind::kPinned);
  c = {};
  describe_copy_name("Memcpy PtoP (Device -> Device)", c);
  EXPECT_EQ(c.kind, CopyKind::kPeer);
  c = {};
  describe_copy_name("something else", c);
  EXPECT_EQ(c.kind, CopyKind::kUnknown);
}

TEST(Trace, MoreRowsThanTheLimitShareOne) {
  TraceBuilder b;
  uint32_t last = 0;
  for (int64_t tid = 0; tid < 70000; ++tid) last = b.thread(1, tid);
  EXPECT_LT(last, 65535u);
  EXPECT_EQ(b.diagnostics().count(Diag::kTooManyThreads), 70000u - 65535u);
}

TEST(StringPool, InternsOnceAndFinds) {
  StringPool pool;
  EXPECT_EQ(pool.intern(""), kEmptyString);
  std::vector<StringId> ids;
  for (int i = 0; i < 20000; ++i) ids.push_back(pool.intern("name " + std::to_string(i)));
  for (int i = 0; i < 20000; ++i) {
    const std::string name = "name " + std::to_string(i);
    ASSERT_EQ(pool.intern(name), ids[static_cast<size_t>(i)]);
    ASSERT_EQ(pool.find(name), ids[static_cast<size_t>(i)]);
    ASSERT_EQ(pool.view(ids[static_cast<size_t>(i)]), name);
  }
  EXPECT_EQ(pool.find("absent"), kEmptyString);
}

TEST(Column, GrowsPastTheMappingThresholdAndShrinks) {
  Column<uint64_t> c;
  for (uint64_t i = 0; i < 1'000'000; ++i) c.push_back(i * 3);
  c.shrink_to_fit();
  for (uint64_t i = 0; i < 1'000'000; ++i) ASSERT_EQ(c[i], i * 3);
  EXPECT_EQ(c.capacity_bytes(), 8'000'000u);
  Column<uint64_t> moved = std::move(c);
  EXPECT_EQ(moved.size(), 1'000'000u);
  moved.clear();
  EXPECT_TRUE(moved.empty());
}

}  // namespace
}  // namespace attnscope::trace
