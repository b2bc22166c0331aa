// Every figure of facts.json, found by an independent reader, against `explain --json`.
#include "analysis/metrics.h"
#include "report/explain_model.h"
#include "report/json/explain_json.h"
#include "support/json_schema.h"
#include "support/trace_files.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attnscope {
namespace {

using Json = nlohmann::json;

Json read_json(const std::string& path) {
  return Json::parse(support::read_text(path), nullptr, false);
}

Json explain(const support::LoadedTrace& loaded, const std::string& name) {
  const Metrics metrics = compute_metrics(loaded.trace, loaded.links);
  const report::ExplainModel model = report::make_explain_model(name, metrics, run_rules(metrics));
  return Json::parse(report::explain_json(model, "test"), nullptr, false);
}

const Json* range_of(const Json& document, const std::string& name) {
  for (const Json& range : document["ranges"])
    if (range["name"] == name) return &range;
  return nullptr;
}

std::vector<std::string> files_with_facts() {
  std::vector<std::string> names;
  const Json facts = read_json(support::trace_path("facts.json"));
  for (const auto& [name, unused] : facts.items()) names.push_back(name);
  return names;
}

class Facts : public testing::TestWithParam<std::string> {};

TEST_P(Facts, AreReproduced) {
  const Json facts = read_json(support::trace_path("facts.json"))[GetParam()];
  const Json document = explain(*support::load_trace(GetParam()), GetParam());
  const Json& trace = document["trace"];
  EXPECT_EQ(trace["events"], facts["events"]);
  EXPECT_EQ(trace["complete_events"], facts["complete_events"]);
  EXPECT_EQ(trace["kernels"], facts["kernels"]);
  EXPECT_EQ(trace["copies"]["total"], facts["copies"]);
  EXPECT_EQ(trace["fills"], facts["fills"]);
  EXPECT_EQ(trace["unlinked"], facts["unlinked"]);
  EXPECT_EQ(trace["devices"], facts["devices"]);
  for (const auto& [name, fact] : facts["ranges"].items()) {
    SCOPED_TRACE(name);
    const Json* range = range_of(document, name);
    ASSERT_NE(range, nullptr);
    EXPECT_EQ((*range)["calls"], fact["calls"]);
    EXPECT_EQ((*range)["own_thread"], fact["own_thread"]);
    EXPECT_EQ((*range)["process"], fact["process"]);
    // The reader behind the facts took each call's time as the difference of two doubles of 5·10^12 µs, which
    // are 2^-10 µs apart: half of that per call is its rounding. Ours is exact, and torch's table agrees.
    const double rounding = fact["calls"].get<double>() / 2048 + 0.0005;
    EXPECT_NEAR((*range)["host_us"].get<double>(), fact["host_us"].get<double>(), rounding);
  }
}
INSTANTIATE_TEST_SUITE_P(All, Facts, testing::ValuesIn(files_with_facts()), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

TEST(Facts, ThereAreNineteenFiles) {
  EXPECT_EQ(files_with_facts().size(), 19u);
}

TEST(ExplainJson, FitsItsSchemaOnEveryTrace) {
  const Json schema = read_json(std::string(ATTNSCOPE_SOURCE_DIR) + "/docs/schemas/explain.schema.json");
  ASSERT_FALSE(schema.is_discarded());
  for (const std::string& name : files_with_facts())
    EXPECT_EQ(support::schema_mismatch(schema, explain(*support::load_trace(name), name), schema), "")
        << name;
}

// A trace of one operator and one kernel, with the launch's correlation as given.
std::string tiny_trace(int launch_correlation) {
  return R"([{"ph":"X","cat":"cpu_op","name":"aten::mul","pid":1,"tid":1,"ts":0,"dur":20},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":5,"dur":5,"args":{"correlation":)" +
         std::to_string(launch_correlation) + R"(}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":12,"dur":4,"args":{"correlation":7,"device":0,"stream":7}}])";
}

TEST(Facts, WouldFailWithoutLinks) {
  const auto linked = support::load_json(tiny_trace(7)), broken = support::load_json(tiny_trace(8));
  const Json with = explain(*linked, "t"), without = explain(*broken, "t");
  EXPECT_EQ((*range_of(with, "aten::mul"))["own_thread"]["kernels"], 1);
  EXPECT_EQ(with["trace"]["unlinked"], Json::object());
  EXPECT_EQ((*range_of(without, "aten::mul"))["own_thread"]["kernels"], 0);
  EXPECT_EQ(without["trace"]["unlinked"], Json({{"kernels", 1}}));
}

TEST(ExplainJson, UnknownFiguresAreNullWithAReason) {
  const Json document = explain(*support::load_trace("programs/launch_bound.json.gz"), "t");
  ASSERT_FALSE(document["attention"].empty());
  const Json& attention = document["attention"][0];
  EXPECT_EQ(attention["calls"], 100);
  EXPECT_EQ(attention["kernels"], 100);
  EXPECT_TRUE(attention["flops"].is_null());
  EXPECT_EQ(attention["flops_reason"], "shapes-not-recorded");
  EXPECT_TRUE(attention["shape"].is_null());
  EXPECT_TRUE(attention["tflops"].is_null());
}

TEST(ExplainJson, InvalidUtf8InNamesStaysValidJson) {
  const auto loaded = support::load_json(
      "[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"bad\xff\x01name\",\"pid\":1,\"tid\":1,\"ts\":0,\"dur\":"
      "20}]");
  EXPECT_FALSE(explain(*loaded, "t").is_discarded());
}

}  // namespace
}  // namespace attnscope
