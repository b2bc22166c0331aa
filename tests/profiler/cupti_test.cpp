// The CUPTI half of the profiler against a fake CUPTI: no GPU, every failure on demand.
#include "attnscope/profiler.h"
#include "cuda/device.h"
#include "profiler/cupti_collector.h"
#include "profiler/cupti_convert.h"
#include "support/fake_cupti.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnscope::profiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kBase = 1'000'000'000;

FakeCupti::Record kernel(const char* name, uint32_t correlation, uint64_t begin, uint64_t end) {
  CUpti_ActivityKernel10 k{};
  k.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  k.name = name;
  k.correlationId = correlation;
  k.start = begin;
  k.end = end;
  k.deviceId = 0;
  k.contextId = 1;
  k.streamId = 7;
  k.gridX = 132;
  k.gridY = k.gridZ = 1;
  k.blockX = 384;
  k.blockY = k.blockZ = 1;
  k.registersPerThread = 168;
  k.staticSharedMemory = 1024;
  k.dynamicSharedMemory = 133'120;
  k.sharedMemoryExecuted = 233'472;
  k.shmemLimitConfig = CUPTI_FUNC_SHMEM_LIMIT_OPTIN;
  k.localMemoryPerThread = 16;
  k.clusterX = 2;
  k.clusterY = k.clusterZ = 1;
  k.graphNodeId = 77;
  k.graphId = 5;
  return FakeCupti::record(k);
}

FakeCupti::Record api(CUpti_ActivityKind kind, uint32_t cbid, uint32_t correlation, uint64_t begin,
                      uint64_t end, uint32_t thread = 42) {
  CUpti_ActivityAPI a{};
  a.kind = kind;
  a.cbid = cbid;
  a.start = begin;
  a.end = end;
  a.processId = 9;
  a.threadId = thread;
  a.correlationId = correlation;
  return FakeCupti::record(a);
}

FakeCupti::Record copy(uint32_t correlation, uint64_t bytes, uint64_t begin, uint64_t end) {
  CUpti_ActivityMemcpy6 c{};
  c.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  c.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
  c.srcKind = c.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  c.bytes = bytes;
  c.start = begin;
  c.end = end;
  c.streamId = 7;
  c.correlationId = correlation;
  return FakeCupti::record(c);
}

FakeCupti::Record fill(uint32_t correlation, uint64_t bytes, uint64_t begin, uint64_t end) {
  CUpti_ActivityMemset4 f{};
  f.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  f.bytes = bytes;
  f.start = begin;
  f.end = end;
  f.correlationId = correlation;
  f.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  return FakeCupti::record(f);
}

// Larger than any known record, with a kind that no header has yet.
FakeCupti::Record unknown_kind() {
  struct {
    uint32_t kind = 4000;
    uint8_t rest[300] = {};
  } u;
  return FakeCupti::record(u);
}

FakeCupti named_fake() {
  FakeCupti fake;
  fake.runtime_names = {
      {211, "cudaLaunchKernel_v7000"}, {16, "cudaGetDevice_v3020"}, {41, "cudaMemcpyAsync_v3020"}};
  fake.driver_names = {{307, "cuLaunchKernel"}, {652, "cuLaunchKernelEx"}, {3, "cuDeviceGet"}};
  return fake;
}

TEST(CuptiCollector, SetsTheClockAndThreadIdsBeforeAnyKind) {
  FakeCupti fake;
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_GE(fake.calls.size(), 4u);
  EXPECT_EQ(fake.calls[0], "clock");
  EXPECT_EQ(fake.calls[1], "thread ids");
  EXPECT_EQ(fake.calls[2], "buffers");
  EXPECT_THAT(fake.calls[3], HasSubstr("enable"));
  const uint64_t before = CuptiCollector::now_ns();
  const uint64_t told = fake.clock();
  EXPECT_GE(told, before);
  EXPECT_LE(told, CuptiCollector::now_ns());
  (void)collector.stop();
}

TEST(CuptiCollector, RecordsComeBackInTimeOrderHoweverBuffersComplete) {
  FakeCupti fake = named_fake();
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer(
      {kernel("late", 3, kBase + 300, kBase + 400), kernel("middle", 2, kBase + 200, kBase + 250)}));
  ASSERT_TRUE(fake.write_buffer({kernel("early", 1, kBase + 100, kBase + 150)}));
  fake.complete_newest();
  const ActivityRecords records = collector.stop();
  ASSERT_EQ(records.kernels.size(), 3u);
  EXPECT_EQ(collector.names().text(records.kernels[0].name), "early");
  EXPECT_EQ(collector.names().text(records.kernels[1].name), "middle");
  EXPECT_EQ(collector.names().text(records.kernels[2].name), "late");
  EXPECT_EQ(records.loss.lost_buffers, 0u);
}

TEST(CuptiCollector, KernelsKeepWhatOccupancyNeeds) {
  FakeCupti fake = named_fake();
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer({kernel("k", 1, kBase, kBase + 57'000)}));
  const ActivityRecords records = collector.stop();
  ASSERT_EQ(records.kernels.size(), 1u);
  const KernelRecord& k = records.kernels[0];
  EXPECT_EQ(k.registers_per_thread, 168u);
  EXPECT_EQ(k.static_shared, 1024);
  EXPECT_EQ(k.dynamic_shared, 133'120);
  EXPECT_EQ(k.shared_executed, 233'472u);
  EXPECT_TRUE(k.shared_optin);
  EXPECT_EQ(k.local_per_thread, 16u);
  EXPECT_THAT(k.cluster, ElementsAre(2u, 1u, 1u));
  EXPECT_THAT(k.grid, ElementsAre(132, 1, 1));
  EXPECT_THAT(k.block, ElementsAre(384, 1, 1));
  EXPECT_EQ(k.graph, 5u);
  EXPECT_EQ(k.graph_node, 77u);
}

TEST(CuptiCollector, KernelNamesAreDemangledAsInPyTorchsTraces) {
  FakeCupti fake = named_fake();
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer({kernel("_ZN3foo3barIfLi8EEEvPT_", 1, kBase, kBase + 1),
                                 kernel("_ZN3foo3barIfLi8EEEvPT_", 2, kBase + 2, kBase + 3),
                                 kernel("_Znot a symbol", 3, kBase + 4, kBase + 5)}));
  const ActivityRecords records = collector.stop();
  ASSERT_EQ(records.kernels.size(), 3u);
  EXPECT_EQ(collector.names().text(records.kernels[0].name), "void foo::bar<float, 8>(float*)");
  EXPECT_EQ(records.kernels[0].name, records.kernels[1].name);
  EXPECT_EQ(collector.names().text(records.kernels[2].name), "_Znot a symbol");
}

TEST(CuptiCollector, UnknownKindsAndBrokenTimesAreCountedAndSkipped) {
  FakeCupti fake = named_fake();
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(
      fake.write_buffer({unknown_kind(), kernel("reversed", 1, kBase + 10, kBase + 5),
                         kernel("never ran", 2, 0, 0), unknown_kind(), kernel("good", 3, kBase, kBase + 1)}));
  const ActivityRecords records = collector.stop();
  ASSERT_EQ(records.kernels.size(), 1u);
  EXPECT_EQ(collector.names().text(records.kernels[0].name), "good");
  EXPECT_EQ(records.loss.unknown, 2u);
  EXPECT_EQ(records.loss.malformed, 2u);
}

TEST(CuptiCollector, DroppedRecordsAreReportedOnce) {
  FakeCupti fake = named_fake();
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer({kernel("a", 1, kBase, kBase + 1)}));
  fake.dropped = 12;
  fake.complete_oldest();
  ASSERT_TRUE(fake.write_buffer({kernel("b", 2, kBase, kBase + 1)}));
  const ActivityRecords records = collector.stop();
  EXPECT_EQ(records.loss.dropped, 12u);
}

TEST(CuptiCollector, WhenEveryBufferIsOutThatIsSaid) {
  FakeCupti fake = named_fake();
  CollectorOptions options;
  options.max_buffers = 2;
  options.buffer_bytes = 4096;
  CuptiCollector collector(fake, options);
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer({kernel("a", 1, kBase, kBase + 1)}));
  ASSERT_TRUE(fake.write_buffer({kernel("b", 2, kBase, kBase + 1)}));
  EXPECT_FALSE(fake.write_buffer({kernel("c", 3, kBase, kBase + 1)}));
  fake.complete_oldest();
  EXPECT_TRUE(fake.write_buffer({kernel("d", 4, kBase, kBase + 1)}));  // the returned one is used again
  const ActivityRecords records = collector.stop();
  EXPECT_EQ(records.kernels.size(), 3u);
  EXPECT_EQ(records.loss.dropped, 1u);
  EXPECT_THAT(collector.notes(), ElementsAre(HasSubstr("when all 2 were full")));
}

TEST(CuptiCollector, ABufferThatNeverComesBackIsLost) {
  FakeCupti fake = named_fake();
  fake.keep_buffers = true;
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer({kernel("a", 1, kBase, kBase + 1)}));
  const ActivityRecords records = collector.stop();
  EXPECT_TRUE(records.kernels.empty());
  EXPECT_EQ(records.loss.lost_buffers, 1u);
  EXPECT_THAT(collector.notes(), ElementsAre(HasSubstr("another profiler")));
}

TEST(CuptiCollector, ALateBufferAfterStopIsHarmless) {
  FakeCupti fake = named_fake();
  fake.keep_buffers = true;
  {
    CuptiCollector collector(fake, {});
    ASSERT_TRUE(collector.start());
    ASSERT_TRUE(fake.write_buffer({kernel("a", 1, kBase, kBase + 1)}));
    (void)collector.stop();
  }
  fake.complete_oldest();
  EXPECT_EQ(fake.open_buffers(), 0u);
  EXPECT_FALSE(fake.write_buffer({kernel("b", 2, kBase, kBase + 1)}));
}

TEST(CuptiCollector, OnlyOneAtATime) {
  FakeCupti fake;
  CuptiCollector first(fake, {}), second(fake, {});
  ASSERT_TRUE(first.start());
  const Status refused = second.start();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  (void)first.stop();
  EXPECT_TRUE(second.start());
  (void)second.stop();
}

TEST(CuptiCollector, MissingPermissionComesWithItsRemedyAndLeavesNothingOn) {
  FakeCupti fake;
  fake.refuse[CUPTI_ACTIVITY_KIND_MEMSET] = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  CuptiCollector collector(fake, {});
  const Status refused = collector.start();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().remedy, HasSubstr("NVreg_RestrictProfilingToAdminUsers=0"));
  int on = 0;
  for (const std::string& call : fake.calls) {
    if (call.starts_with("enable")) ++on;
    if (call.starts_with("disable")) --on;
  }
  EXPECT_EQ(on, 1);  // the refused one was never on
  fake.refuse.clear();
  EXPECT_TRUE(collector.start());
  (void)collector.stop();
}

TEST(CuptiCollector, AnOptionalKindThatIsRefusedIsANote) {
  FakeCupti fake;
  fake.refuse[CUPTI_ACTIVITY_KIND_OVERHEAD] = CUPTI_ERROR_NOT_SUPPORTED;
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  (void)collector.stop();
  EXPECT_THAT(collector.notes(), ElementsAre(HasSubstr("activity kind 17")));
}

TEST(CuptiCollector, ASpoolingConsumerTakesRecordsAway) {
  FakeCupti fake = named_fake();
  CollectorOptions options;
  size_t spooled = 0;
  options.on_records = [&](ActivityRecords& records, NameTable&) {
    spooled += records.kernels.size();
    records.kernels.clear();
  };
  CuptiCollector collector(fake, options);
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer({kernel("a", 1, kBase, kBase + 1)}));
  fake.complete_oldest();
  ASSERT_TRUE(fake.write_buffer({kernel("b", 2, kBase, kBase + 1), kernel("c", 3, kBase, kBase + 1)}));
  EXPECT_TRUE(collector.stop().kernels.empty());
  EXPECT_EQ(spooled, 3u);
}

TEST(CuptiDecoder, StateCallsAreLeftOutAndVersionsCutOff) {
  FakeCupti fake = named_fake();
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer({api(CUPTI_ACTIVITY_KIND_RUNTIME, 211, 1, kBase, kBase + 5),
                                 api(CUPTI_ACTIVITY_KIND_RUNTIME, 16, 2, kBase + 6, kBase + 7),
                                 api(CUPTI_ACTIVITY_KIND_DRIVER, 652, 3, kBase + 8, kBase + 9),
                                 api(CUPTI_ACTIVITY_KIND_DRIVER, 3, 4, kBase + 10, kBase + 11),
                                 api(CUPTI_ACTIVITY_KIND_RUNTIME, 9999, 5, kBase + 12, kBase + 13)}));
  const ActivityRecords records = collector.stop();
  std::vector<std::string> names;
  for (const ApiRecord& r : records.apis) names.emplace_back(collector.names().text(r.name));
  EXPECT_THAT(names, ElementsAre("cudaLaunchKernel", "cuLaunchKernelEx", "runtime call 9999"));
}

TEST(CuptiDecoder, ATornBufferKeepsWhatCameBefore) {
  FakeCupti fake = named_fake();
  CuptiDecoder decoder(fake);
  std::vector<uint8_t> buffer(4096, 0);
  const FakeCupti::Record r = kernel("whole", 1, kBase, kBase + 1);
  const auto bytes = static_cast<uint32_t>(r.bytes.size());
  std::memcpy(buffer.data(), &bytes, sizeof(bytes));
  std::memcpy(buffer.data() + 8, r.bytes.data(), bytes);
  ActivityRecords records;
  decoder.decode(buffer.data(), buffer.size(), records);
  EXPECT_EQ(records.kernels.size(), 1u);
  EXPECT_EQ(records.loss.broken_buffers, 1u);
  decoder.decode(nullptr, 100, records);
  decoder.decode(buffer.data(), 0, records);
  EXPECT_EQ(records.kernels.size(), 1u);
}

cuda::DeviceInfo h200() {
  cuda::DeviceInfo info;
  info.name = "NVIDIA H200";
  info.major = 9;
  info.sm_count = 132;
  info.shared_per_block = 49'152;
  info.shared_per_block_optin = 232'448;
  return info;
}

TEST(CuptiConvert, FillsTheRecordingsGpuHalf) {
  FakeCupti fake = named_fake();
  CuptiCollector collector(fake, {});
  ASSERT_TRUE(collector.start());
  ASSERT_TRUE(fake.write_buffer(
      {api(CUPTI_ACTIVITY_KIND_RUNTIME, 211, 1, kBase + 10, kBase + 20),
       api(CUPTI_ACTIVITY_KIND_DRIVER, 307, 1, kBase + 12, kBase + 18),  // inside the above
       api(CUPTI_ACTIVITY_KIND_DRIVER, 652, 2, kBase + 30, kBase + 40),
       api(CUPTI_ACTIVITY_KIND_RUNTIME, 41, 3, kBase + 50, kBase + 60),
       copy(3, 268'435'456, kBase + 500, kBase + 127'500), kernel("flash", 2, kBase + 100, kBase + 400),
       fill(4, 4, kBase + 450, kBase + 452)}));
  const ActivityRecords records = collector.stop();
  Recording recording;
  recording.base_ns = kBase;
  const cuda::DeviceInfo info = h200();
  const cuda::DeviceInfo* devices[] = {&info};
  add_activity(records, collector.names(), devices, recording);

  ASSERT_EQ(recording.runtime_events.size(), 3u);
  EXPECT_EQ(recording.runtime_events[0].name, "cudaLaunchKernel");
  EXPECT_EQ(recording.runtime_events[0].begin_ns, 10);
  EXPECT_EQ(recording.runtime_events[0].thread, 42u);
  EXPECT_TRUE(recording.runtime_events[1].driver);

  ASSERT_EQ(recording.device_events.size(), 3u);
  const DeviceEvent& k = recording.device_events[0];
  EXPECT_EQ(k.name, "flash");
  EXPECT_EQ(k.shared_bytes, 134'144);
  EXPECT_EQ(k.shared_limit_bytes, 232'448);
  EXPECT_EQ(k.correlation, 2u);
  EXPECT_EQ(k.end_ns - k.begin_ns, 300);
  const DeviceEvent& f = recording.device_events[1];
  EXPECT_EQ(f.kind, RecordKind::kFill);
  EXPECT_EQ(f.bytes, 4);
  const DeviceEvent& c = recording.device_events[2];
  EXPECT_EQ(c.kind, RecordKind::kCopy);
  EXPECT_EQ(c.name, "Memcpy DtoD (Device -> Device)");
  EXPECT_EQ(c.bytes, 268'435'456);
  ASSERT_EQ(recording.devices.size(), 1u);
  EXPECT_EQ(recording.devices[0].name, "NVIDIA H200");
}

TEST(CuptiConvert, LossesReachTheRecording) {
  ActivityRecords records;
  records.loss = {.dropped = 3, .lost_buffers = 1, .unknown = 2, .malformed = 4, .broken_buffers = 1};
  Recording recording;
  add_activity(records, NameTable(), {}, recording);
  EXPECT_EQ(recording.activity_loss.dropped_records, 3);
  EXPECT_EQ(recording.activity_loss.lost_buffers, 2);
  EXPECT_EQ(recording.activity_loss.unknown_records, 2);
  EXPECT_EQ(recording.activity_loss.malformed_records, 4);
}

}  // namespace
}  // namespace attnscope::profiler
