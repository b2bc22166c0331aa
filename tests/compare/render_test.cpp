#include "compare/render.h"

#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace attnscope::compare {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

VariantResult variant(const std::string& name, double us, int kernels, int copies) {
  VariantResult v;
  v.name = name;
  v.device_us = distribution_of({us * 0.98, us, us * 1.02});
  v.host_us = distribution_of({3});
  v.cost.flops = 1e9;
  v.guess.kernels = kernels == 1 ? 1 : 5;
  v.guess.copies = 0;
  v.counts.calls = 3;
  v.counts.kernels = kernels;
  v.counts.copies = copies;
  v.counts.bytes_moved = 67e6 * kernels;
  WorkRow row;
  row.name = "clone";
  row.op = "attnscope::masked_fill";
  row.kind = copies > 0 ? profiler::RecordKind::kCopy : profiler::RecordKind::kKernel;
  row.time_us = us / 10;
  row.bytes_written = 268e6;
  v.counts.rows.push_back(row);
  v.counts.copied_bytes = copies > 0 ? 268e6 : 0;
  v.accuracy.rows_checked = v.accuracy.rows_total = 10;
  v.accuracy.tolerance = {1e-4, 1e-5};
  v.breaks = broken(name, v.guess, v.counts);
  return v;
}

CompareResult sample() {
  CompareResult r;
  r.device_name = "Test CPU, 2 threads";
  r.variants.push_back(variant("flash", 45.1, 1, 0));
  r.variants.push_back(variant("efficient", 57.2, 1, 0));
  r.variants.push_back(variant("naive", 751, 5, 1));
  VariantResult refused;
  refused.name = "inplace";
  refused.status = VariantStatus::kRefused;
  refused.reasons.push_back({"inplace", "needs-gradients", "gradients are wanted", "use naive"});
  r.variants.push_back(refused);
  return r;
}

TEST(Render, VerdictNamesTheFastestAndTheRatios) {
  EXPECT_EQ(verdict(sample()),
            "flash is fastest: 45.1 µs, 1.27 × efficient, 16.7 × naive. It moves 67 MB; naive moves 335 MB.");
}

TEST(Render, VerdictAdmitsTheSpread) {
  CompareResult r = sample();
  r.variants[1] = variant("efficient", 45.5, 1, 0);
  EXPECT_THAT(verdict(r), HasSubstr("1.01 × efficient (within the spread)"));
}

TEST(Render, NothingRan) {
  CompareResult r = sample();
  r.variants.erase(r.variants.begin(), r.variants.begin() + 3);
  EXPECT_EQ(verdict(r), "Nothing ran: every variant refused or failed.");
  EXPECT_THAT(render_text(r), HasSubstr("inplace     gradients are wanted: use naive"));
}

TEST(Render, BrokenGuessesAreMarkedAndExplained) {
  const std::string text = render_text(sample());
  EXPECT_THAT(text, HasSubstr("1 ◄"));
  EXPECT_THAT(text, HasSubstr(" ◄ naive: one copy you did not write, 268 MB, 75.1 µs per call (100 %)."));
  EXPECT_THAT(text, HasSubstr("clone inside masked_fill"));
  EXPECT_THAT(text, HasSubstr("Refused\n   inplace"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[")));
  EXPECT_THAT(render_text(sample(), {.colour = true, .width = 100}), HasSubstr("\x1b["));
}

TEST(Render, AGuessThatHeldSaysSo) {
  CompareResult r = sample();
  r.variants.erase(r.variants.begin() + 2);
  EXPECT_THAT(render_text(r), HasSubstr("Every count came out as guessed."));
}

TEST(Render, NoLineIsWiderThanTheTerminal) {
  for (const int width : {80, 100, 140}) {
    const std::string text = render_text(sample(), {.colour = false, .width = width});
    for (const std::string_view line : split(text, '\n'))
      EXPECT_LE(display_width(line), static_cast<size_t>(width)) << line;
  }
}

TEST(Render, NamesFromOutsideAreHarmless) {
  CompareResult r = sample();
  r.variants[2].counts.rows[0].name = "evil\x1b[2J|<script>";
  EXPECT_THAT(render_text(r), Not(HasSubstr("\x1b[2J")));
  EXPECT_THAT(render_markdown(r), Not(HasSubstr("|<script>")));
  EXPECT_THAT(render_html(r), Not(HasSubstr("<script>evil")));
}

TEST(Render, JsonHoldsTheDesignsFields) {
  const auto json = nlohmann::json::parse(render_json(sample()));
  EXPECT_EQ(json["schema"], "attnscope.compare/1");
  const auto& naive = json["variants"][2];
  EXPECT_EQ(naive["status"], "ok");
  EXPECT_EQ(naive["kernels_per_forward"], 5);
  EXPECT_EQ(naive["copies_per_forward"], 1);
  for (const char* key : {"mean", "p50", "p90", "p99"})
    EXPECT_TRUE(naive["device_time_us"].contains(key)) << key;
  EXPECT_TRUE(naive["error"].contains("max_abs"));
  EXPECT_TRUE(naive["fraction_of_peak"].is_null()) << "the peak was not measured: not known is not 0";
  const auto& refused = json["variants"][3];
  EXPECT_EQ(refused["status"], "refused");
  EXPECT_EQ(refused["reasons"][0]["code"], "needs-gradients");
  EXPECT_FALSE(refused.contains("device_time_us"));
}

}  // namespace
}  // namespace attnscope::compare
