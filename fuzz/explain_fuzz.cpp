// What is said of a trace that was read: figures, rules, every renderer and the guess written from it,
// whatever the names, times and counts in the file.

#include "json_mutator.h"

#include "analysis/check.h"
#include "analysis/diff.h"
#include "analysis/guess.h"
#include "analysis/metrics.h"
#include "analysis/rule.h"
#include "analysis/table.h"
#include "formats/chrome/reader.h"
#include "report/explain_model.h"
#include "report/html/page.h"
#include "report/html/timeline.h"
#include "report/json/explain_json.h"
#include "report/json/table_json.h"
#include "report/markdown/explain_markdown.h"
#include "report/ranks.h"
#include "report/text/diff_text.h"
#include "report/text/explain_text.h"
#include "report/text/torch_table.h"
#include "trace/link.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

using namespace attnscope;

namespace {

void expect(bool holds) {
  if (!holds) std::abort();
}

// No byte that a terminal would obey reaches it.
void expect_printable(const std::string& text) {
  for (const char c : text) expect(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

void expect_json(const std::string& text) {
  expect(nlohmann::json::accept(text));
}

void report_all(const Metrics& metrics) {
  const report::ExplainModel model = report::make_explain_model("fuzz", metrics, run_rules(metrics));
  const report::TextOptions options{80, false, 5};
  expect_printable(report::explain_text(model, options));
  for (size_t i = 0; i < model.rules.findings.size(); ++i)
    expect_printable(*report::finding_text(model, i + 1, options));
  for (const RangeStats& range : metrics.ranges) {
    const auto page = report::range_text(model, metrics.trace->text(range.name), options);
    if (page) expect_printable(*page);
  }
  expect_printable(report::explain_markdown(model, options));
  const std::string json = report::explain_json(model, "0");
  expect_json(json);
  report::Page page;
  page.kind = report::PageKind::kExplain;
  page.verdict = model.verdict.text;
  page.result_json = json;
  const auto [begin, end] = report::typical_step(metrics);
  page.timelines.push_back(report::make_timeline(metrics, "one step", begin, end));
  expect(!report::render_html(page).empty());
  const std::vector<report::RankSummary> ranks{report::summarise(model), report::summarise(model)};
  expect_printable(report::ranks_text(ranks, options));
}

// One order of the rows an input: all of them would take most of the time.
void table(const trace::Trace& trace, const trace::Links& links, const Metrics& metrics, size_t size) {
  const auto sort = static_cast<TableSort>(size % (static_cast<size_t>(TableSort::kFlops) + 1));
  const Table table = make_table(trace, links, {sort, size % 2 == 0});
  expect_printable(report::torch_table(table, {}));
  expect_json(report::table_json(table, "fuzz", 100, "0"));
  expect_printable(report::outermost_table(metrics, TableSort::kDeviceTimeTotal, {}));
  expect_json(report::outermost_json(metrics, TableSort::kCount, "fuzz", 100, "0"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  formats::chrome::ReadOptions options;
  options.limits.max_plain_bytes = 1 << 20;
  options.max_event_bytes = 1 << 16;
  auto trace = formats::chrome::read_memory({reinterpret_cast<const char*>(data), size}, "fuzz", options);
  if (!trace) return 0;
  const trace::Links links = trace::Links::build(*trace);
  const Metrics metrics = compute_metrics(*trace, links);
  report_all(metrics);
  table(*trace, links, metrics, size);
  const Diff diff = diff_traces(metrics, metrics, {});
  expect_printable(report::diff_text(diff, "a", "b", 0.05, {80, false, 5}));
  expect_json(report::diff_json(diff, "a", "b", 0.05, "0"));
  if (const auto written = write_guess(metrics)) {
    const auto guess = parse_guess(*written, "fuzz.toml");
    expect(guess.has_value());
    const CheckReport checked = check_guess(metrics, *guess);
    expect(checked.broken == 0);  // what was seen holds of what was seen
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}
