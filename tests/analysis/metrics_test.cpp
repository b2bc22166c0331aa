#include "analysis/metrics.h"

#include "analysis/ranges.h"
#include "analysis/roofline.h"
#include "support/trace_files.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace {

using support::load_json;
using support::load_trace;

Metrics metrics_of(const support::LoadedTrace& loaded) {
  return compute_metrics(loaded.trace, loaded.links);
}

std::string op(const char* name, int tid, double ts, double dur, const char* cat = "cpu_op") {
  return std::string(R"({"ph":"X","cat":")") + cat + R"(","name":")" + name + R"(","pid":1,"tid":)" +
         std::to_string(tid) + R"(,"ts":)" + std::to_string(ts) + R"(,"dur":)" + std::to_string(dur) + "}";
}
std::string launch(int correlation, int tid, double ts, double dur = 2,
                   const char* name = "cudaLaunchKernel") {
  return std::string(R"({"ph":"X","cat":"cuda_runtime","name":")") + name + R"(","pid":1,"tid":)" +
         std::to_string(tid) + R"(,"ts":)" + std::to_string(ts) + R"(,"dur":)" + std::to_string(dur) +
         R"(,"args":{"correlation":)" + std::to_string(correlation) + "}}";
}
std::string kernel(int correlation, double ts, double dur, int stream = 7) {
  return R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":)" + std::to_string(stream) + R"(,"ts":)" +
         std::to_string(ts) + R"(,"dur":)" + std::to_string(dur) + R"(,"args":{"device":0,"stream":)" +
         std::to_string(stream) + R"(,"correlation":)" + std::to_string(correlation) + "}}";
}
std::string events(std::initializer_list<std::string> parts) {
  std::string text = "[";
  for (const std::string& part : parts) text += (text.size() > 1 ? "," : "") + part;
  return text + "]";
}

TEST(Ranges, AgreeWithTheLinkersOwnSums) {
  for (const char* name : {"article/math.json.gz", "programs/autocast_encoder_train.json.gz",
                           "programs/llama_decode_sdpa.json.gz", "programs/llama_cuda_graph.json.gz"}) {
    const auto loaded = load_trace(name);
    const Metrics metrics = metrics_of(*loaded);
    for (const RangeStats& range : metrics.ranges) {
      if (range.cls != trace::EventClass::kOperator && range.cls != trace::EventClass::kUserRange) continue;
      const trace::RangeSum sum = loaded->links.range_sum(range.name);
      SCOPED_TRACE(std::string(name) + " " + std::string(loaded->trace.text(range.name)));
      EXPECT_EQ(range.calls, sum.calls);
      EXPECT_EQ(range.host_ns, sum.host_ns);
      EXPECT_EQ(range.own_thread, sum.own_thread);
      EXPECT_EQ(range.process, sum.process);
    }
  }
}

TEST(Ranges, CountOutermostCallsAndOtherThreads) {
  const auto loaded = load_json(
      events({op("step", 1, 0, 100, "user_annotation"), op("a", 1, 10, 50), op("a", 1, 20, 20),
              launch(1, 1, 25), op("b", 2, 30, 20), launch(2, 2, 35), kernel(1, 40, 5), kernel(2, 50, 7)}));
  const Metrics metrics = metrics_of(*loaded);
  const RangeStats* step = metrics.range("step");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->own_thread.kernels, 1u);
  EXPECT_EQ(step->process.kernels, 2u);
  EXPECT_EQ(step->process.device_ns, 12'000);
  EXPECT_EQ(step->self_host_ns, 50'000);
  const RangeStats* a = metrics.range("a");
  EXPECT_EQ(a->calls, 1u);
  EXPECT_EQ(a->events, 2u);
  EXPECT_EQ(a->host_ns, 50'000);
  EXPECT_EQ(a->self.kernels, 1u);
}

TEST(Ranges, LeafOperatorsAreTheKernelsOfACpuOnlyTrace) {
  const auto loaded =
      load_json(events({op("aten::linear", 1, 0, 100), op("aten::t", 1, 5, 2), op("aten::addmm", 1, 10, 80),
                        op("aten::empty", 1, 12, 3), op("aten::relu", 1, 110, 7)}));
  const Metrics metrics = metrics_of(*loaded);
  EXPECT_TRUE(metrics.cpu_only);
  ASSERT_EQ(metrics.cpu_leaves.size(), 2u);
  EXPECT_EQ(metrics.range("aten::linear")->own_thread.kernels, 1u);
  EXPECT_EQ(metrics.range("aten::linear")->own_thread.device_ns, 80'000);
  EXPECT_EQ(metrics.total.device_ns, 87'000);
}

TEST(Kernels, LaunchDelayCountsFromTheCallsBeginAndIsNeverNegative) {
  const auto loaded =
      load_json(events({launch(1, 1, 10, 20), kernel(1, 12, 5), launch(2, 1, 40, 2), kernel(2, 39, 5)}));
  const Metrics metrics = metrics_of(*loaded);
  ASSERT_EQ(metrics.kernels.size(), 1u);
  EXPECT_EQ(metrics.kernels[0].count, 2u);
  EXPECT_EQ(metrics.kernels[0].median_launch_delay_ns, 1'000);  // of 2 µs and 0
}

TEST(Median, IsTheMiddleOrBetweenTheTwo) {
  std::vector<int64_t> none, one{5}, two{10, 4}, five{9, 1, 5, 7, 3};
  EXPECT_EQ(median_of(none), -1);
  EXPECT_EQ(median_of(one), 5);
  EXPECT_EQ(median_of(two), 7);
  EXPECT_EQ(median_of(five), 5);
}

GapCause only_gap(const std::string& text) {
  const auto loaded = load_json(text);
  const GapReport report = find_gaps(loaded->trace, loaded->links);
  EXPECT_EQ(report.longest.size(), 1u);
  return report.longest.empty() ? GapCause::kUnlinked : report.longest[0].cause;
}

TEST(Gaps, TellWhyTheDeviceWaited) {
  // Work of 10 µs ends at 30; the next one starts at 130.
  EXPECT_EQ(only_gap(events({launch(1, 1, 15), kernel(1, 20, 10), launch(2, 1, 120), kernel(2, 130, 10)})),
            GapCause::kLaunch);
  EXPECT_EQ(only_gap(events({launch(1, 1, 15), kernel(1, 20, 10), launch(2, 1, 620), kernel(2, 630, 10)})),
            GapCause::kHost);
  EXPECT_EQ(
      only_gap(events({launch(1, 1, 15), kernel(1, 20, 10), launch(9, 1, 18, 14, "cudaStreamSynchronize"),
                       launch(2, 1, 120), kernel(2, 130, 10)})),
      GapCause::kSync);
  EXPECT_EQ(only_gap(events({launch(1, 1, 15), kernel(1, 20, 10), launch(2, 1, 17), kernel(2, 33, 10)})),
            GapCause::kSmall);
  EXPECT_EQ(only_gap(events({launch(1, 1, 15), kernel(1, 20, 10), launch(2, 1, 25), kernel(2, 39, 10)})),
            GapCause::kLatency);
  EXPECT_EQ(only_gap(events({launch(1, 1, 0), launch(2, 1, 3), kernel(1, 20, 10), kernel(2, 130, 10)})),
            GapCause::kWaiting);
  EXPECT_EQ(only_gap(events({launch(1, 1, 15), kernel(1, 20, 10), kernel(2, 130, 10)})), GapCause::kUnlinked);
}

TEST(Gaps, CountOverlapOnceAndStartAtTheFirstLinkedWork) {
  const auto loaded = load_json(events(
      {kernel(99, 1, 9), launch(1, 1, 15), launch(2, 1, 16), kernel(1, 20, 10), kernel(2, 25, 10, 8)}));
  const GapReport report = find_gaps(loaded->trace, loaded->links);
  ASSERT_EQ(report.devices.size(), 1u);
  EXPECT_EQ(report.devices[0].begin_ns, 19'000);  // the trace's zero is its first event
  EXPECT_EQ(report.devices[0].busy_ns, 15'000);
  EXPECT_EQ(report.devices[0].summed_ns, 20'000);
  EXPECT_EQ(report.devices[0].overlap_ns, 5'000);
  EXPECT_EQ(report.devices[0].idle_total_ns(), 0);
}

TEST(Steps, AreTakenFromProfilerStepThenRangesThenRepetition) {
  EXPECT_EQ(metrics_of(*load_trace("article/naive.json.gz")).step_source, StepSource::kProfilerStep);
  const auto by_range = load_json(events({op("iter", 1, 0, 40, "user_annotation"), launch(1, 1, 5),
                                          op("iter", 1, 50, 40, "user_annotation"), launch(2, 1, 55),
                                          kernel(1, 20, 10), kernel(2, 70, 12)}));
  const Metrics ranged = metrics_of(*by_range);
  EXPECT_EQ(ranged.step_source, StepSource::kRange);
  ASSERT_EQ(ranged.steps.size(), 2u);
  EXPECT_EQ(ranged.steps[1].work.device_ns, 12'000);

  std::string repeated = "[";
  for (int i = 0; i < 40; ++i)
    repeated += (i ? "," : "") + op(("aten::op" + std::to_string(i % 10)).c_str(), 1, i * 10, 5);
  const Metrics periodic = metrics_of(*load_json(repeated + "]"));
  EXPECT_EQ(periodic.step_source, StepSource::kRepetition);
  EXPECT_EQ(periodic.steps.size(), 4u);

  const Metrics whole = metrics_of(*load_json(events({op("aten::a", 1, 0, 5), op("aten::b", 1, 10, 5)})));
  EXPECT_EQ(whole.step_source, StepSource::kWholeTrace);
  EXPECT_EQ(whole.steps.size(), 1u);
}

TEST(Roofline, KnowsTheBoundAndTheFraction) {
  trace::DeviceProperties device;
  device.name = "NVIDIA H200";
  const auto peaks = known_peaks(device);
  ASSERT_TRUE(peaks.has_value());
  const auto compute = roofline(989e12, 1.0, 2e6, NumericType::kBF16, peaks);  // one second's worth in two
  ASSERT_TRUE(compute.has_value());
  EXPECT_EQ(compute->bound, Bound::kCompute);
  EXPECT_NEAR(compute->fraction, 0.5, 1e-9);
  const auto memory = roofline(1.0, 4.8e12, 2e6, NumericType::kBF16, peaks);
  EXPECT_EQ(memory->bound, Bound::kMemory);
  EXPECT_NEAR(memory->fraction, 0.5, 1e-9);
  device.name = "Voodoo 2";
  EXPECT_FALSE(known_peaks(device).has_value());
  EXPECT_FALSE(roofline(1.0, 1.0, 0, NumericType::kBF16, peaks).has_value());
}

}  // namespace
}  // namespace attnscope
