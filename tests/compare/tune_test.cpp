// Measuring the order of backends over a small grid of the CPU.
#include "compare/tune.h"

#include "support/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace attnscope::compare {
namespace {

using ::testing::HasSubstr;

Problem tiny(DType dtype, CausalMode causal) {
  Problem p;
  p.heads = p.kv_heads = 2;
  p.q_len = p.kv_len = 64;
  p.head_dim = p.value_dim = 16;
  p.dtype = dtype;
  p.causal = causal;
  return p;
}

TuneResult tuned(std::vector<Problem> grid) {
  const auto device = open_cpu_device(0);
  TuneOptions options;
  options.grid = std::move(grid);
  options.min_time_s = 0;
  Result<TuneResult> result = tune(*device, options);
  EXPECT_TRUE(result) << result.error().message;
  return *result;
}

TEST(Tune, EveryPointHasTheTimesOfThoseThatTookIt) {
  Problem lengths = tiny(DType::kF32, CausalMode::kNone);
  lengths.lengths = {40};
  const TuneResult r =
      tuned({tiny(DType::kF32, CausalMode::kTopLeft), tiny(DType::kBF16, CausalMode::kNone), lengths});
  ASSERT_EQ(r.points.size(), 3U);
  ASSERT_EQ(r.table.points.size(), 3U);
  EXPECT_EQ(to_text(r.points[0].order.shape), "f32 causal 1,2,2,64,64,16,16");
  EXPECT_EQ(to_text(r.points[1].order.shape), "bf16 full 1,2,2,64,64,16,16");
  EXPECT_EQ(r.points[2].order.shape.features, "lengths");
  for (const TunePoint& p : r.points) {
    std::set<std::string> names;
    for (const OrderTime& t : p.order.times) {
      EXPECT_GT(t.us, 0);
      names.insert(t.backend);
    }
    EXPECT_EQ(names, (std::set<std::string>{"flash", "efficient", "math"}))
        << "naive is there to be learnt from";
    EXPECT_TRUE(std::is_sorted(p.order.times.begin(), p.order.times.end(),
                               [](const OrderTime& a, const OrderTime& b) { return a.us < b.us; }));
    EXPECT_EQ(p.preferred, "flash");
    EXPECT_FALSE(p.chosen.empty());
    EXPECT_TRUE(p.failed.empty());
  }
}

TEST(Tune, TheTableCanBeReadAndGoneBy) {
  const TuneResult r = tuned({tiny(DType::kF32, CausalMode::kTopLeft)});
  const auto table = parse_order_table(write_order_table(r.table));
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->device, device_identity({}));
  EXPECT_NE(nearest_point(*table, r.points[0].order.shape), nullptr);
}

TEST(Tune, PlacesThatNobodyTakesAreShown) {
  TuneResult r = tuned({tiny(DType::kF32, CausalMode::kTopLeft)});
  r.points.push_back({tiny(DType::kF64, CausalMode::kNone),
                      {{DType::kF64, "full", 1, 2, 2, 64, 64, 16, 16}, {}},
                      {"math: wrong \x1b[31m"},
                      "",
                      ""});
  r.points[0].preferred = "flash";
  r.points[0].chosen = "math";
  const std::string text = render_text(r);
  EXPECT_THAT(text, HasSubstr("auto chooses differently from the default order at 1 of 2 points."));
  EXPECT_THAT(text, HasSubstr("nobody takes it"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  const auto document = nlohmann::json::parse(render_json(r, "/a/path"), nullptr, false);
  std::ifstream file(std::filesystem::path(ATTNSCOPE_SOURCE_DIR) / "docs/schemas/tune.schema.json");
  const auto schema = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(schema.is_discarded() || document.is_discarded());
  EXPECT_EQ(support::schema_mismatch(schema, document, schema), "");
  EXPECT_EQ(document["points"][0]["options"], "--shape 1,2,64,16 --dtype f32 --causal");
}

TEST(Tune, GridsAreOfDistinctPointsThatFitARequest) {
  for (const DeviceType device : {DeviceType::kCpu, DeviceType::kCuda}) {
    std::set<std::string> seen;
    for (const Problem& p : tune_grid(device)) {
      const auto request = request_shape(p);
      ASSERT_TRUE(request) << as_options(p) << request.error().message;
      EXPECT_TRUE(seen.insert(as_options(p)).second) << as_options(p);
    }
    EXPECT_GT(seen.size(), 10U);
  }
}

}  // namespace
}  // namespace attnscope::compare
