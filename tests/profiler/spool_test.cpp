// The file between a recorded program and `attnscope record`: round trip, a writer that dies, foreign files,
// and what becomes of its content.
#include "profiler/injection/spool.h"

#include "profiler/injection/assemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

namespace attnscope::profiler::spool {
namespace {

using ::testing::ElementsAre;

class SpoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "spool-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(pid_t process = getpid()) const {
    return folder_ + "/" + std::to_string(process) + ".spool";
  }

  std::string folder_;
};

void name(Writer& writer, uint32_t id, std::string_view text) {
  const NameRecord record{id, static_cast<uint32_t>(text.size())};
  writer.append(RecordType::kName, &record, sizeof(record), text.data(), text.size());
}

KernelRecord kernel(uint32_t name_id, uint32_t correlation, uint64_t begin) {
  KernelRecord k;
  k.name = name_id;
  k.correlation = correlation;
  k.begin_ns = begin;
  k.end_ns = begin + 10;
  return k;
}

TEST_F(SpoolTest, WhatIsAppendedIsRead) {
  Writer* writer = Writer::create(folder_);
  ASSERT_NE(writer, nullptr);
  name(*writer, 7, "flash_fwd");
  name(*writer, 1u << 20, "attn_fwd");
  writer->append(RecordType::kKernel, kernel(7, 3, 2000));
  writer->append(RecordType::kKernel, kernel(7, 2, 1000));
  writer->append(RecordType::kRange, RangeRecord{1u << 20, 42, 900, 1500});
  writer->append(RecordType::kLoss, LossCounts{1, 2, 3, 4, 5});
  writer->append(RecordType::kLoss, LossCounts{1, 0, 0, 0, 0});
  writer->append(RecordType::kNote, "hello", 5);
  const auto content = read(file());
  ASSERT_TRUE(content) << content.error().message;
  EXPECT_EQ(content->process, static_cast<uint32_t>(getpid()));
  ASSERT_EQ(content->records.kernels.size(), 2u);
  EXPECT_EQ(content->records.kernels[0].correlation, 2u) << "in time order";
  EXPECT_EQ(content->names.text(content->records.kernels[0].name), "flash_fwd");
  ASSERT_EQ(content->ranges.size(), 1u);
  EXPECT_EQ(content->names.text(content->ranges[0].name), "attn_fwd");
  EXPECT_EQ(content->records.loss.dropped, 2u);
  EXPECT_EQ(content->records.loss.broken_buffers, 5u);
  EXPECT_THAT(content->notes, ElementsAre("hello"));
}

TEST_F(SpoolTest, ManyRecordsFromManyThreadsCrossWindows) {
  Writer* writer = Writer::create(folder_);
  ASSERT_NE(writer, nullptr);
  constexpr int kEach = 60'000;  // 4 × 60,000 kernel records are several windows of 8 MiB
  auto work = [&](uint32_t first) {
    for (uint32_t i = 0; i < kEach; ++i)
      writer->append(RecordType::kKernel, kernel(0, first + i, 1 + first + i));
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) threads.emplace_back(work, t * kEach);
  for (std::thread& t : threads) t.join();
  const auto content = read(file());
  ASSERT_TRUE(content);
  ASSERT_EQ(content->records.kernels.size(), 4u * kEach);
  for (uint32_t i = 0; i < 4 * kEach; ++i) ASSERT_EQ(content->records.kernels[i].correlation, i);
  EXPECT_EQ(content->records.loss.unknown, 0u);
}

TEST_F(SpoolTest, AKilledWriterLeavesItsWholeRecords) {
  const pid_t child = fork();
  if (child == 0) {
    Writer* writer = Writer::create(folder_);
    for (uint32_t i = 0; i < 1000; ++i) writer->append(RecordType::kKernel, kernel(0, i, 1 + i));
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto content = read(file(child));
  ASSERT_TRUE(content);
  EXPECT_EQ(content->records.kernels.size(), 1000u);
}

TEST_F(SpoolTest, ForeignAndShortFilesAreRefused) {
  std::ofstream(folder_ + "/a.spool") << "not a spool";
  EXPECT_FALSE(read(folder_ + "/a.spool"));
  std::ofstream(folder_ + "/b.spool") << std::string(8192, 'x');
  const auto foreign = read(folder_ + "/b.spool");
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, ErrorCode::kBadInput);
  EXPECT_FALSE(read(folder_ + "/missing.spool"));
}

TEST_F(SpoolTest, AMissingFolderGivesNoWriter) {
  EXPECT_EQ(Writer::create(folder_ + "/no/such"), nullptr);
}

TEST_F(SpoolTest, ALyingCounterDoesNotReadPastTheFile) {
  Writer* writer = Writer::create(folder_);
  ASSERT_NE(writer, nullptr);
  writer->append(RecordType::kKernel, kernel(0, 1, 1));
  std::FILE* f = std::fopen(file().c_str(), "r+");
  ASSERT_NE(f, nullptr);
  const uint64_t huge = ~uint64_t{0};
  std::fseek(f, static_cast<long>(offsetof(Header, committed)), SEEK_SET);
  std::fwrite(&huge, sizeof(huge), 1, f);
  std::fclose(f);
  const auto content = read(file());
  ASSERT_TRUE(content);
  EXPECT_EQ(content->records.kernels.size(), 1u);
}

Content sample() {
  Content c;
  c.process = 9;
  c.started_ns = 1'000'000;
  auto range = [&](const char* text, uint32_t thread, uint64_t begin, uint64_t end) {
    c.ranges.push_back({c.names.intern(text), thread, begin, end});
  };
  // Inner ranges end first, so they come first.
  range("aten::mm, seq = 3, sizes = [[2, 2], [2, 2]]", 5, 1'000'200, 1'000'300);
  range("attn_fwd", 5, 1'000'100, 1'000'400);
  range("step", 5, 1'000'050, 1'000'500);
  range("step", 5, 1'000'600, 1'000'700);
  range("other thread", 6, 1'000'150, 1'000'250);
  range("still open", 5, 1'000'800, 0);
  KernelRecord k = kernel(c.names.intern("gemm"), 1, 1'000'900);
  k.static_shared = 0;
  k.dynamic_shared = 100'000;
  k.shared_optin = true;
  c.records.kernels.push_back(k);
  DeviceRecord d;
  d.shared_per_block = 49'152;
  d.shared_per_block_optin = 232'448;
  std::strcpy(d.name, "NVIDIA H200");
  c.devices = {d, d};
  return c;
}

TEST(Assemble, NestsRangesAndNamesOperators) {
  const Recording r = assemble(sample());
  ASSERT_EQ(r.events.size(), 6u);
  auto find = [&](std::string_view text) {
    for (const RecordedEvent& e : r.events)
      if (e.name == text) return &e;
    return static_cast<const RecordedEvent*>(nullptr);
  };
  const RecordedEvent* mm = find("aten::mm");
  ASSERT_NE(mm, nullptr);
  EXPECT_EQ(mm->kind, RecordKind::kOperator);
  EXPECT_EQ(mm->begin_ns, 200);
  EXPECT_EQ(r.events[static_cast<size_t>(mm->parent)].name, "attn_fwd");
  EXPECT_EQ(r.events[static_cast<size_t>(find("attn_fwd")->parent)].name, "step");
  EXPECT_EQ(find("attn_fwd")->kind, RecordKind::kRange);
  EXPECT_EQ(find("other thread")->parent, -1);
  const RecordedEvent* open = find("still open");
  EXPECT_FALSE(open->complete);
  EXPECT_EQ(open->end_ns, 910) << "to the end of what was seen";
}

TEST(Assemble, StepsAndDevices) {
  const Recording r = assemble(sample(), {.step_range = "step"});
  ASSERT_EQ(r.steps.size(), 2u);
  EXPECT_EQ(r.steps[1].index, 1);
  EXPECT_EQ(r.steps[1].begin_ns, 600);
  EXPECT_EQ(r.events.size(), 4u);
  ASSERT_EQ(r.devices.size(), 1u) << "a device is told once";
  ASSERT_EQ(r.device_events.size(), 1u);
  EXPECT_EQ(r.device_events[0].shared_limit_bytes, 232'448);
  EXPECT_TRUE(r.has_device_activity);
}

}  // namespace
}  // namespace attnscope::profiler::spool
