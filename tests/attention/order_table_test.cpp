// The measured order: reading what may be hostile, finding the nearest point, going by it.
#include "attention/order_table.h"

#include "attention/backend.h"
#include "attention/plan_cache.h"
#include "base/cache_folder.h"
#include "support/attention_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace attnscope {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr std::string_view kHead = "attnscope.order/1\ndevice GPU X\narch sm_90\ndriver 13000\nlibrary 1\n";

std::string with(std::string_view points) {
  return std::string(kHead) + std::string(points);
}

TEST(OrderTable, WhatIsWrittenIsRead) {
  OrderTable table{{"GPU X", "sm_90", 13000}, "1", {}};
  table.points.resize(2);
  table.points[0].shape = {DType::kBF16, "causal+window", 8, 16, 4, 1024, 2048, 64, 96};
  table.points[0].times = {{"flash", 59.1}, {"cudnn", 61.93}};
  table.points[1].shape = {DType::kF32, "full", 1, 1, 1, 1, 1, 1, 1};
  table.points[1].times = {{"math", 1e6}};
  const auto read = parse_order_table(write_order_table(table));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->device, table.device);
  ASSERT_EQ(read->points.size(), 2U);
  EXPECT_EQ(read->points[0].shape, table.points[0].shape);
  EXPECT_EQ(read->points[0].times[1].backend, "cudnn");
  EXPECT_DOUBLE_EQ(read->points[0].times[1].us, 61.93);
  EXPECT_EQ(write_order_table(*read), write_order_table(table));
}

TEST(OrderTable, TimesAreSortedAndCommentsSkipped) {
  const auto read =
      parse_order_table(with("# a comment\n\r\nbf16 full 1,1,1,1,1,1,1  math=3   flash=1 cudnn=2\r\n"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->points.front().times.front().backend, "flash");
  EXPECT_EQ(read->points.front().times.back().backend, "math");
}

TEST(OrderTable, EveryOddLineIsNamed) {
  const struct {
    std::string text, message;
  } rows[] = {
      {"", "line 1: no table of orders: ''"},
      {"attnscope.order/2\n", "line 1: no table of orders"},
      {"attnscope.order/1\narch sm_90\nlibrary 1\n", "device, arch or library is missing"},
      {with("driver -3\n"), "line 6: no driver version: '-3'"},
      {with("device \x1b[31mred\n"), "line 6: an odd value: 'device \\x1b[31mred'"},
      {with("device " + std::string(300, 'x') + "\n"), "an odd value"},
      {with("bf16\n"), "line 6: no point"},
      {with("i32 full 1,1,1,1,1,1,1 a=1\n"), "no float type: 'i32'"},
      {with("bf16 FULL 1,1,1,1,1,1,1 a=1\n"), "no features: 'FULL'"},
      {with("bf16 full 1,1,1,1,1,1 a=1\n"), "7 sizes are needed"},
      {with("bf16 full 1,1,1,0,1,1,1 a=1\n"), "not a size: '0'"},
      {with("bf16 full 1,1,1,1,1,1,99999999999999999999 a=1\n"), "not a size"},
      {with("bf16 full 1,1,1,1,1,1,1 a\n"), "no backend=microseconds: 'a'"},
      {with("bf16 full 1,1,1,1,1,1,1 \x1b[0m=1\n"), "no backend=microseconds: '\\x1b[0m=1'"},
      {with("bf16 full 1,1,1,1,1,1,1 a=0\n"), "not a time: 'a=0'"},
      {with("bf16 full 1,1,1,1,1,1,1 a=nan\n"), "not a time"},
      {with("bf16 full 1,1,1,1,1,1,1 a=inf\n"), "not a time"},
      {with("bf16 full 1,1,1,1,1,1,1 a=1 a=2\n"), "a backend twice: 'a'"},
  };
  for (const auto& row : rows) {
    const auto read = parse_order_table(row.text);
    ASSERT_FALSE(read) << row.text;
    EXPECT_EQ(read.error().code, ErrorCode::kBadInput);
    EXPECT_THAT(read.error().message, HasSubstr(row.message)) << row.text;
    EXPECT_EQ(read.error().message.find('\x1b'), std::string::npos);
  }
}

TEST(OrderTable, SizesAreBounded) {
  EXPECT_FALSE(parse_order_table(with(std::string(kMostOrderBytes, '#'))));
  std::string many, wide = "bf16 full 1,1,1,1,1,1,1";
  for (size_t i = 0; i <= kMostOrderPoints; ++i) many += "bf16 full 1,1,1,1,1,1,1 a=1\n";
  EXPECT_THAT(parse_order_table(with(many)).error().message, HasSubstr("more points than are read"));
  for (int i = 0; i < 40; ++i) wide += " b" + std::to_string(i) + "=1";
  EXPECT_THAT(parse_order_table(with(wide)).error().message, HasSubstr("more backends"));
}

// Every prefix and every single damaged byte of a good table is read or refused, nothing else.
TEST(OrderTable, DamageIsReadOrRefused) {
  const std::string good = with("bf16 causal 8,16,16,1024,1024,64,64 flash=59.1 cudnn=61.9 math=2257\n");
  for (size_t n = 0; n < good.size(); ++n) (void)parse_order_table(good.substr(0, n));
  for (size_t n = 0; n < good.size(); ++n)
    for (const char c : {'\0', '\n', ' ', '=', ',', '\xff'}) {
      std::string damaged = good;
      damaged[n] = c;
      (void)parse_order_table(damaged);
    }
}

OrderTable table_of(std::string_view points) {
  return *parse_order_table(with(points));
}

TEST(NearestPoint, SameFeaturesAndSizesNotTooFar) {
  const OrderTable table = table_of(
      "bf16 causal 8,16,16,1024,1024,64,64 a=1\n"
      "bf16 causal 2,16,16,4096,4096,64,64 b=1\n"
      "bf16 full 8,16,16,1024,1024,64,64 c=1\n"
      "bf16 causal 8,16,16,1024,1024,128,128 d=1\n"
      "f32 causal 8,16,16,1024,1024,64,64 e=1\n");
  const auto nearest = [&](OrderShape shape) -> std::string {
    const OrderPoint* point = nearest_point(table, shape);
    return point ? point->times.front().backend : "none";
  };
  const OrderShape base{DType::kBF16, "causal", 8, 16, 16, 1024, 1024, 64, 64};
  EXPECT_EQ(nearest(base), "a");
  OrderShape s = base;
  s.dtype = DType::kF16;
  EXPECT_EQ(nearest(s), "a") << "one kind of dtype";
  s.dtype = DType::kF32;
  EXPECT_EQ(nearest(s), "e");
  s.dtype = DType::kF64;
  EXPECT_EQ(nearest(s), "none");
  s = base, s.features = "full";
  EXPECT_EQ(nearest(s), "c");
  s.features = "causal+window";
  EXPECT_EQ(nearest(s), "none");
  s = base, s.q_len = s.kv_len = 3000, s.batch = 3;
  EXPECT_EQ(nearest(s), "b");
  s.q_len = s.kv_len = 100'000, s.batch = 2;
  EXPECT_EQ(nearest(s), "b") << "beyond 8192 all are long";
  s = base, s.head_dim = s.value_dim = 80;
  EXPECT_EQ(nearest(s), "a");
  s.head_dim = s.value_dim = 112;
  EXPECT_EQ(nearest(s), "d");
  s.head_dim = s.value_dim = 256;
  EXPECT_EQ(nearest(s), "none");
  s = base, s.q_len = 1;
  EXPECT_EQ(nearest(s), "none") << "decoding is something else";
  s = base, s.batch = 1, s.heads = 2;
  EXPECT_EQ(nearest(s), "none") << "fewer tiles than a GPU has multiprocessors";
}

class Orders : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("attnscope-orders-" + std::to_string(getpid()));
    fs::remove_all(root_);
    const char* before = std::getenv("ATTNSCOPE_CACHE");
    before_ = before ? before : "";
    setenv("ATTNSCOPE_CACHE", root_.c_str(), 1);
    unsetenv("ATTNSCOPE_ORDER");
    forget_measured_orders();
    plan_cache().clear();
  }
  void TearDown() override {
    before_.empty() ? unsetenv("ATTNSCOPE_CACHE") : setenv("ATTNSCOPE_CACHE", before_.c_str(), 1);
    unsetenv("ATTNSCOPE_ORDER");
    forget_measured_orders();
    plan_cache().clear();
    fs::remove_all(root_);
  }
  // Where the user's table of the device lies.
  std::string keep(const DeviceIdentity& device, const std::string& text) const {
    const std::string path = *order_path(device);
    EXPECT_TRUE(make_cache_folder(fs::path(path).parent_path().string()));
    EXPECT_TRUE(replace_file(path, text));
    return path;
  }
  static OrderTable current(const DeviceIdentity& device) {
    OrderTable table{device, ATTNSCOPE_VERSION, {}};
    return table;
  }
  fs::path root_;
  std::string before_;
  const DeviceIdentity gpu_{"GPU X/..", "sm_90", 13000};
};

TEST_F(Orders, TheFileOfTheDeviceIsFound) {
  EXPECT_THAT(load_order(gpu_, "").why_not, HasSubstr("attnscope compare --tune"));
  const std::string path = keep(gpu_, write_order_table(current(gpu_)));
  EXPECT_EQ(fs::path(path).filename(), "gpu-x-sm-90.order") << "a device's name is no path";
  const MeasuredOrder order = load_order(gpu_, "");
  EXPECT_EQ(order.source, path);
  EXPECT_EQ(order.why_not, "");
  EXPECT_EQ(load_order(gpu_, "off").why_not, "ATTNSCOPE_ORDER=off");
  EXPECT_EQ(load_order(gpu_, path).source, path);
  EXPECT_THAT(load_order(gpu_, "/does/not/exist").why_not, HasSubstr("/does/not/exist is ignored"));
}

TEST_F(Orders, StaleDamagedAndForeignOnesAreIgnoredWithTheReason) {
  const auto why = [&](OrderTable table) {
    keep(gpu_, write_order_table(table));
    const MeasuredOrder order = load_order(gpu_, "");
    EXPECT_EQ(order.source, "");
    return order.why_not;
  };
  OrderTable other = current(gpu_);
  other.device.driver = 12080;
  EXPECT_THAT(why(other), HasSubstr("it was measured with driver 12080, this is 13000"));
  other = current(gpu_), other.library = "0.0.9";
  EXPECT_THAT(why(other), HasSubstr("it was measured by attnscope 0.0.9"));
  other = current(gpu_), other.device.name = "GPU Y";
  EXPECT_THAT(why(other), HasSubstr("it was measured on GPU Y"));
  other = current(gpu_), other.device.arch = "sm_80";
  EXPECT_THAT(why(other), HasSubstr("it was measured on sm_80"));
  const std::string path = keep(gpu_, "nonsense \x1b[31m\n");
  EXPECT_THAT(load_order(gpu_, "").why_not, HasSubstr("line 1: no table of orders"));
  EXPECT_EQ(load_order(gpu_, "").why_not.find('\x1b'), std::string::npos);
  keep(gpu_, write_order_table(current(gpu_)));
  chmod(fs::path(path).parent_path().c_str(), 0777);
  EXPECT_THAT(load_order(gpu_, "").why_not, HasSubstr("can be written by others"));
}

TEST(OrderTables, ThoseThatShipAreGood) {
  std::error_code none;
  int found = 0;
  for (const auto& file :
       fs::directory_iterator(fs::path(ATTNSCOPE_SOURCE_DIR) / "src/attention/orders", none)) {
    if (file.path().extension() != ".order") continue;
    ++found;
    const auto text = read_file_bounded(file.path().string(), kMostOrderBytes);
    const auto table = parse_order_table(*text);
    ASSERT_TRUE(table) << file.path() << ": " << table.error().message;
    DeviceIdentity device = table->device;
    device.driver = 99990;
    setenv("ATTNSCOPE_CACHE", "/does/not/exist", 1);
    const MeasuredOrder order = load_order(device, "");
    unsetenv("ATTNSCOPE_CACHE");
    EXPECT_EQ(order.source, "built in for " + device.name) << "whatever the driver";
    EXPECT_EQ(order.table.points.size(), table->points.size());
    EXPECT_GT(table->points.size(), 10U);
  }
  EXPECT_GT(found, 0) << "no table ships";
}

std::vector<const Backend*> automatic_of(DeviceType device) {
  std::vector<const Backend*> all;
  for (const Backend* b : registered_backends())
    if (b->device() == device && b->automatic()) all.push_back(b);
  return all;
}

std::vector<std::string> names(const AutomaticOrder& order) {
  std::vector<std::string> all;
  for (const Backend* b : order.backends) all.emplace_back(b->name());
  return all;
}

Request small() {
  Request r;
  r.q = r.k = r.v = TensorView::contiguous(nullptr, DType::kF32, {1, 2, 16, 8});
  return r;
}

TEST(AutomaticOrder, MeasuredOnesTradePlacesTheOthersStay) {
  const std::vector<const Backend*> cpu = automatic_of(DeviceType::kCpu);  // flash, efficient, math
  ASSERT_THAT(names({cpu, nullptr, ""}), ElementsAre("flash", "efficient", "math"));
  const auto by = [&](std::string_view times) {
    return automatic_order(small(), cpu,
                           {table_of("f32 full 1,2,2,16,16,8,8 " + std::string(times) + "\n"), "a file", ""});
  };
  EXPECT_THAT(names(by("flash=3 efficient=2 math=1")), ElementsAre("math", "efficient", "flash"));
  EXPECT_THAT(names(by("flash=3 math=1")), ElementsAre("math", "efficient", "flash"))
      << "efficient was not measured";
  EXPECT_THAT(names(by("efficient=3 math=1 gone=0.1")), ElementsAre("flash", "math", "efficient"));
  EXPECT_THAT(names(by("flash=100 math=98 efficient=200")), ElementsAre("flash", "math", "efficient"))
      << "2 % is noise";
  EXPECT_THAT(by("flash=3").note, HasSubstr("near f32 full 1,2,2,16,16,8,8, a file"));
  const AutomaticOrder far =
      automatic_order(small(), cpu, {table_of("f32 full 1,2,2,9999,16,8,8 flash=3 math=1\n"), "a file", ""});
  EXPECT_THAT(names(far), ElementsAre("flash", "efficient", "math"));
  EXPECT_THAT(far.note, HasSubstr("nothing like f32 full 1,2,2,16,16,8,8 is in the measured order a file"));
}

// The whole way: a file, the dispatcher, the decision, the plan.
TEST_F(Orders, AutoGoesByTheFileAndSaysSo) {
  testing::CaseSpec spec;
  spec.B = 2;
  spec.Hq = spec.Hk = spec.Hv = 2;
  spec.L = spec.S = 16;
  spec.E = spec.Ev = 8;
  testing::AttentionCase test(spec);
  EXPECT_EQ(choose(test.request()).winner_name, "flash");
  EXPECT_THAT(choose(test.request()).why,
              HasSubstr("first in order of preference that takes the request (no order"));

  const DeviceIdentity cpu = device_identity({});
  ASSERT_FALSE(cpu.name.empty());
  OrderTable table = current(cpu);
  table.points.push_back({order_shape(test.request()), {{"math", 1.5}, {"flash", 9}}});
  keep(cpu, write_order_table(table));
  forget_measured_orders();
  plan_cache().clear();
  const Decision decision = choose(test.request());
  EXPECT_EQ(decision.winner_name, "math");
  EXPECT_THAT(decision.why,
              HasSubstr("measured order: math 1.50 µs, flash 9.00 µs (near f32 full 2,2,2,16,16,8,8, "));
  const auto planned = plan(test.request());
  ASSERT_TRUE(planned) << planned.error().message;
  EXPECT_THAT((*planned)->describe(), HasSubstr("chosen: measured order: math"));
  EXPECT_EQ(choose(test.request(), {{"flash"}}).why, "asked for by name");
  // Order is not permission: what refuses is not taken, however fast it was.
  test.request().softcap = 2;
  EXPECT_THAT(choose(test.request()).why, HasSubstr("nothing like f32 softcap"));

  test.request().softcap = 0;
  setenv("ATTNSCOPE_ORDER", "off", 1);
  forget_measured_orders();
  EXPECT_EQ(choose(test.request()).winner_name, "flash");
  EXPECT_THAT(choose(test.request()).why, HasSubstr("ATTNSCOPE_ORDER=off"));
}

}  // namespace
}  // namespace attnscope
