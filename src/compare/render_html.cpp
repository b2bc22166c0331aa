// The comparison as one offline page: the JSON document, and a timeline of one recorded call per variant.
#include "compare/render.h"

#include "analysis/metrics.h"
#include "base/text.h"
#include "profiler/export.h"
#include "report/html/page.h"
#include "report/html/timeline.h"

#include <fmt/format.h>

namespace attnscope::compare {
namespace {

report::Timeline timeline_of(const VariantResult& variant) {
  const trace::Trace trace = profiler::to_trace(variant.recording);
  const trace::Links links = trace::Links::build(trace);
  const Metrics metrics = compute_metrics(trace, links);
  const auto [begin, end] = report::typical_step(metrics);
  return report::make_timeline(metrics, variant.name, begin, end);
}

}  // namespace

std::string method_text(const CompareResult& r) {
  return fmt::format(
      "Every variant was checked against float64 first. Timed calls run without the profiler, variants "
      "taking "
      "turns{}; counts, kernels and timelines come from separate recorded calls. {}",
      r.measure.cold ? ", caches flushed before each" : "",
      r.device == DeviceType::kCuda
          ? "Device time is from the first to the last of a call's work, host time until the call returned."
          : "Time is the whole call; host time is its part outside kernels, under the profiler.");
}

std::string render_html(const CompareResult& r) {
  report::Page page;
  page.kind = report::PageKind::kCompare;
  page.version = ATTNSCOPE_VERSION;
  page.verdict = verdict(r);
  page.subtitle = fmt::format("{} · {}", r.device_name, describe(r.problem));
  page.method = method_text(r);
  page.result_json = render_json(r);
  for (const VariantResult& v : r.variants)
    if (v.ok() && !v.recording.steps.empty()) page.timelines.push_back(timeline_of(v));
  return report::render_html(page);
}

}  // namespace attnscope::compare
