// Traces whose numbers lie at the ends of their types: every figure stays defined, sums stop at the end of 64
// bits. (Under sanitizers an overflow ends this program.)
#include "analysis/check.h"
#include "analysis/diff.h"
#include "analysis/guess.h"
#include "analysis/metrics.h"
#include "analysis/rule.h"
#include "analysis/table.h"
#include "formats/chrome/reader.h"
#include "report/explain_model.h"
#include "report/json/explain_json.h"
#include "report/json/table_json.h"
#include "report/text/diff_text.h"
#include "report/text/explain_text.h"
#include "report/text/torch_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace attnscope {
namespace {

constexpr int64_t kMost = INT64_MAX;

// One event, `extra` being members and `args` its arguments.
std::string event(const char* category, const std::string& name, const char* row, const std::string& args) {
  // Longer than the longest that is taken, 2^52 ns.
  return fmt::format(
      R"({{"ph":"X","cat":"{}","name":"{}",{},"ts":-2000000000000000,"dur":4000000000000000,"args":{{{}}}}})",
      category, name, row, args);
}

// Steps, operators, launches, kernels, copies and fills of the longest times and the most bytes, `count` of
// each.
std::string far_trace(const char* kernel_args, const char* shapes, int count = 6) {
  constexpr const char* kHost = R"("pid":1,"tid":2)";
  constexpr const char* kDevice = R"("pid":0,"tid":7)";
  std::string events;
  const auto add = [&](const std::string& text) { events += (events.empty() ? "" : ",\n") + text; };
  for (int i = 1; i <= count; ++i) {
    const std::string linked = fmt::format(R"("correlation":{0},"External id":{0})", i);
    add(event("user_annotation", fmt::format("ProfilerStep#{}", i), kHost, ""));
    add(event("user_annotation", "naive", kHost, ""));
    add(event("cpu_op", "aten::bmm", kHost, fmt::format(R"("External id":{},"Input Dims":{})", i, shapes)));
    add(event("cpu_op", "aten::scaled_dot_product_attention", kHost,
              fmt::format(R"("External id":{},"Input Dims":{},"Input type":["float","float","float"])", i,
                          shapes)));
    add(event("cuda_runtime", "cudaLaunchKernel", kHost, linked));
    add(event("kernel", "ampere_sgemm_128x64_tn", kDevice,
              fmt::format(R"({},"device":0,"stream":7,{})", linked, kernel_args)));
    add(event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", kDevice,
              fmt::format(R"("correlation":{},"device":0,"stream":7,"bytes":{})", 10000 + i, kMost)));
    add(event("gpu_memset", "Memset (Device)", kDevice,
              fmt::format(R"("correlation":{},"device":0,"stream":7,"bytes":{})", 20000 + i, kMost)));
    add(event(
        "cpu_instant_event", "[memory]", kHost,
        fmt::format(R"("Bytes":{0},"Total Allocated":{0},"Device Type":1,"Device Id":0,"Addr":1)", kMost)));
  }
  return R"({"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H200","computeMajor":9,"computeMinor":0,
    "maxThreadsPerBlock":1024,"maxThreadsPerMultiprocessor":2048,"regsPerBlock":65536,"warpSize":32,"sharedMemPerBlock":49152,
    "numSms":132,"regsPerMultiprocessor":65536,"sharedMemPerBlockOptin":232448,"sharedMemPerMultiprocessor":233472}],
    "traceEvents":[)" +
         events + "]}";
}

constexpr const char* kKernelArgs[] = {
    R"("grid":[2147483647,2147483647,2147483647],"block":[2147483647,2147483647,2147483647],"registers per thread":2147483647,"shared memory":2147483647)",
    R"("grid":[1,1,1],"block":[128,1,1],"registers per thread":255,"shared memory":0,"est. achieved occupancy %":1e308)",
};
constexpr const char* kShapes[] = {
    "[[4611686018427387904,4611686018427387904,64],[4611686018427387904,64,1024],[8,16,1024,64]]",
    "[[4611686018427387904,16,1024,64],[8,16,4611686018427387904,64],[8,16,1024,64]]",
    "[[-9223372036854775808,16,1024,64],[8,-16,1024,64],[8,16,1024,64]]",
};

TEST(Extremes, SumsStopAtTheEndOfSixtyFourBits) {
  // 3 · 700 pieces of work of 2^52 ns.
  const auto trace = formats::chrome::read_memory(far_trace(kKernelArgs[1], kShapes[0], 700));
  ASSERT_TRUE(trace) << trace.error().message;
  const trace::Links links = trace::Links::build(*trace);
  const Metrics metrics = compute_metrics(*trace, links);
  EXPECT_EQ(metrics.total.device_ns, kMost);
  int64_t copied = 0;
  for (const CopyTotals& copies : metrics.copies_by_kind) copied = std::max<int64_t>(copied, copies.bytes);
  EXPECT_EQ(copied, kMost);
  const Table table = make_table(*trace, links, {});
  EXPECT_EQ(table.self_device_total_ns, kMost);
}

TEST(Extremes, EveryReportOfThemIsMade) {
  for (const char* kernel_args : kKernelArgs)
    for (const char* shapes : kShapes) {
      const auto trace = formats::chrome::read_memory(far_trace(kernel_args, shapes));
      ASSERT_TRUE(trace) << trace.error().message;
      const trace::Links links = trace::Links::build(*trace);
      const Metrics metrics = compute_metrics(*trace, links);
      const report::ExplainModel model = report::make_explain_model("far", metrics, run_rules(metrics));
      EXPECT_TRUE(nlohmann::json::accept(report::explain_json(model, "0")));
      EXPECT_FALSE(report::explain_text(model, {}).empty());
      const Table table = make_table(*trace, links, {TableSort::kSelfCpuMemory, true});
      EXPECT_TRUE(nlohmann::json::accept(report::table_json(table, "far", 100, "0")));
      EXPECT_FALSE(report::torch_table(table, {}).empty());
      const Diff diff = diff_traces(metrics, metrics, {});
      EXPECT_TRUE(nlohmann::json::accept(report::diff_json(diff, "a", "b", 0.05, "0")));
      const auto written = write_guess(metrics);
      ASSERT_TRUE(written) << written.error().message;
      const auto guess = parse_guess(*written, "far.toml");
      ASSERT_TRUE(guess) << guess.error().message;
      EXPECT_EQ(check_guess(metrics, *guess).broken, 0u) << *written;
    }
}

}  // namespace
}  // namespace attnscope
