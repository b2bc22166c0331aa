// Every figure of facts.json, found by an independent reader, from the trace and its links.

#include "formats/chrome/reader.h"
#include "support/trace_files.h"
#include "trace/link.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

namespace attnscope::formats::chrome {
namespace {

using nlohmann::json;

double micros(int64_t ns) {
  return static_cast<double>(ns) / 1000;
}

json sum_json(const trace::WorkSum& w) {
  return {
      {"kernels", w.kernels}, {"copies", w.copies}, {"fills", w.fills}, {"device_us", micros(w.device_ns)}};
}

// The facts of one file as this reader finds them, for the ranges that `wanted` names.
json facts_of(const support::LoadedTrace& loaded, const json& wanted) {
  const trace::Trace& t = loaded.trace;
  json out;
  out["events"] = t.totals().events;
  out["complete_events"] = t.totals().complete_events;
  out["kernels"] = t.totals().kernels;
  out["copies"] = t.totals().copies;
  out["fills"] = t.totals().fills;
  out["devices"] = json::array();
  for (const trace::DeviceProperties& d : t.devices()) out["devices"].push_back(d.name);
  out["unlinked"] = json::object();
  const trace::WorkSum& lost = loaded.links.unlinked_sum();
  if (lost.kernels) out["unlinked"]["kernels"] = lost.kernels;
  if (lost.copies) out["unlinked"]["copies"] = lost.copies;
  if (lost.fills) out["unlinked"]["fills"] = lost.fills;
  out["ranges"] = json::object();
  for (const auto& [name, unused] : wanted.at("ranges").items()) {
    const trace::RangeSum r = loaded.links.range_sum(t.find_text(name));
    out["ranges"][name] = {{"calls", r.calls},
                           {"host_us", micros(r.host_ns)},
                           {"own_thread", sum_json(r.own_thread)},
                           {"process", sum_json(r.process)}};
  }
  return out;
}

// Equal. Sums of device times agree to the nanosecond. Host times in facts.json were computed in doubles of
// absolute microseconds, (ts + dur) − ts, which are 0.98 ns apart at these times: each call may be off by
// one.
void expect_same(const json& found, const json& fact, const std::string& where, double tolerance_us = 1e-4) {
  if (fact.is_object()) {
    ASSERT_EQ(found.size(), fact.size()) << where << ": " << found.dump() << " against " << fact.dump();
    for (const auto& [key, value] : fact.items()) {
      ASSERT_TRUE(found.contains(key)) << where << "." << key;
      const double host_us = key == "host_us" ? fact.at("calls").get<double>() * 0.00098 : 1e-4;
      expect_same(found.at(key), value, where + "." + key, host_us);
    }
  } else if (fact.is_number_float() || found.is_number_float()) {
    EXPECT_NEAR(found.get<double>(), fact.get<double>(), tolerance_us + 1e-6) << where;
  } else {
    EXPECT_EQ(found, fact) << where;
  }
}

json all_facts() {
  std::ifstream file(support::trace_path("facts.json"));
  return json::parse(file);
}

TEST(Facts, EveryFigureOfEveryFileIsReproduced) {
  const json facts = all_facts();
  ASSERT_GE(facts.size(), 19u);
  size_t ranges = 0;
  for (const auto& [file, fact] : facts.items()) {
    const auto loaded = support::load_trace(file);
    expect_same(facts_of(*loaded, fact), fact, file);
    EXPECT_FALSE(loaded->trace.truncated()) << file;
    ranges += fact.at("ranges").size();
  }
  EXPECT_GT(ranges, 50u);
}

// Breaks linking on purpose: one launch's correlation is changed in the text of the file.
TEST(Facts, ABrokenCorrelationIsCaught) {
  const json fact = all_facts().at("article/naive.json.gz");
  auto source = unpack(std::move(*open_file(support::trace_path("article/naive.json.gz"))));
  ASSERT_TRUE(source);
  std::string text(1 << 20, '\0');
  size_t size = 0;
  for (size_t n = 1; n != 0; size += n) n = *(*source)->read(text.data() + size, text.size() - size);
  text.resize(size);

  const auto whole = support::load_json(text);
  ASSERT_EQ(facts_of(*whole, fact), facts_of(*support::load_trace("article/naive.json.gz"), fact));

  const size_t launch = text.find("cudaLaunchKernel");
  ASSERT_NE(launch, std::string::npos);
  const size_t id = text.find("\"correlation\": ", launch) + 15;
  text[id] = text[id] == '9' ? '8' : '9';
  const auto broken = support::load_json(text);
  const json found = facts_of(*broken, fact);
  EXPECT_NE(found.at("unlinked"), fact.at("unlinked"));
  EXPECT_EQ(found.at("unlinked").at("kernels").get<int>(), fact.at("unlinked").at("kernels").get<int>() + 1);
  EXPECT_NE(found.at("ranges").at("attn_fwd").at("own_thread"),
            fact.at("ranges").at("attn_fwd").at("own_thread"));
}

// Taking External id instead of the correlation, as some tools do, would be caught in the older eras.
TEST(Facts, PublicFilesAreReadOrRefused) {
  const std::string folder = std::string(ATTNSCOPE_SOURCE_DIR) + "/../shared/traces/public/";
  if (!std::ifstream(folder + "FILES.md")) GTEST_SKIP() << "no public traces beside the project";
  struct Expected {
    const char* file;
    uint64_t events;     // entries of the event list
    uint64_t unlinked;   // device work without a launch in the file
    uint64_t lone_ends;  // flow ends without a start
    uint64_t overlaps;
    trace::Era era;
  };
  using trace::Era;
  const Expected table[] = {
      {"GPUModel__3d6081d__trace2.json", 104, 0, 5, 0, Era::kTorch27},
      {"HTA__07019a1__df_index_resolver__df_index_resolver.json.gz", 216092, 0, 20083, 0, Era::kTorch111},
      {"HTA__3c22b41__mtia_trace_single_rank__mtia_rank_0.json.gz", 455739, 0, 0, 0, Era::kTorch24},
      {"HTA__409ef99__large_integer_trace__rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz", 2, 1, 0, 0,
       Era::kTorch111},
      {"HTA__5ac5659__amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz", 220, 0, 5, 0, Era::kTorch24},
      {"HTA__949c3c4__trace_diff__test__test.json.gz", 105167, 614, 11797, 31, Era::kTorch111},
      {"HTA__e8fe4d1__ns_resolution_trace__rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 68692, 0, 8928, 0,
       Era::kTorch24},
      {"TraceLens__6f3f588__tests__traces__h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 18221, 509, 1230,
       0, Era::kTorch24},
      {"TraceLens__7a9929e__tests__traces__mi300__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 18090, 463, 1116,
       0, Era::kTorch24},
      {"TraceLens__e443f32__tests__traces__b200__eager_trace.json.gz", 24656, 0, 441, 74, Era::kTorch27},
      {"TriForce-legacy__39de60e__trace_flash.json", 3073, 0, 3, 0, Era::kTorch20},
      {"kineto__2d19c63__tb_plugin__samples__resnet50_num_workers_0__worker0.pt.trace.json.gz", 82276, 765,
       765, 0, Era::kTorch18Dev},
      {"kineto__769c3eb__tb_plugin__samples__resnet50_num_workers_0__worker0.1623143089861.pt.trace.json.gz",
       75718, 0, 0, 0, Era::kTorch19},
      {"kineto__d3fb407__tb_plugin__samples__resnet50_num_workers_0__worker0.pt.trace.json.gz", 73639, 733,
       733, 0, Era::kTorch18},
      {"kineto__db36f7b__docs__traces__before_fix_trace.json", 75, 0, 2, 0, Era::kTorch2026},
      {"luxmea__69c5696__votenet_original__profiler_trace.json", 1442, 0, 0, 0, Era::kNotKineto},
      {"ml-serving-system-building__702b8be__chrome_trace.json", 2000, 0, 0, 0, Era::kNotKineto},
      {"zoology__97cb07e__trace.json", 1784, 0, 2, 0, Era::kTorch20},
  };
  for (const Expected& e : table) {
    const auto loaded = support::load(read_file(folder + e.file));
    const trace::WorkSum& lost = loaded->links.unlinked_sum();
    EXPECT_EQ(loaded->trace.totals().events, e.events) << e.file;
    EXPECT_EQ(lost.kernels + lost.copies + lost.fills, e.unlinked) << e.file;
    EXPECT_EQ(loaded->trace.diagnostics().count(trace::Diag::kFlowWithoutStart), e.lone_ends) << e.file;
    EXPECT_EQ(loaded->links.diagnostics().count(trace::Diag::kOverlappingKernels), e.overlaps) << e.file;
    EXPECT_EQ(era_text(loaded->trace.era()), era_text(e.era)) << e.file;
  }
  for (const char* refused : {"HTA__2407644__execution_trace__benchmark_simple_add_et.json.gz",
                              "HTA__a2c3a8a__memory_analysis__memory_timeline.raw.gz",
                              "flow_matching__7f116ae__profile.json", "FILES.md"}) {
    const auto result = read_file(folder + refused);
    ASSERT_FALSE(result) << refused;
    EXPECT_EQ(result.error().code, ErrorCode::kBadInput) << refused;
  }
}

}  // namespace
}  // namespace attnscope::formats::chrome
