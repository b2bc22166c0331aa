// The comparison as one offline page: the JSON document, and a timeline of one recorded call per variant.
#include "compare/render.h"

#include "analysis/metrics.h"
#include "base/text.h"
#include "formats/chrome/writer.h"
#include "profiler/export.h"
#include "report/html/page.h"
#include "report/html/timeline.h"

#include <fmt/format.h>

namespace attnscope::compare {
namespace {

// One recorded call as a timeline, and the whole recording as a trace to download.
void add_recording(report::Page& page, const VariantResult& variant) {
  profiler::ExportOptions options;
  options.producer = "attnscope " ATTNSCOPE_VERSION;
  options.trace_name = variant.name;
  const trace::Trace trace = profiler::to_trace(variant.recording, options);
  const trace::Links links = trace::Links::build(trace);
  const Metrics metrics = compute_metrics(trace, links);
  const auto [begin, end] = report::typical_step(metrics);
  page.timelines.push_back(report::make_timeline(metrics, variant.name, begin, end));
  if (auto bytes = formats::chrome::gzip_bytes(trace, links))
    page.traces.push_back({variant.name, variant.name + ".json.gz", std::move(*bytes)});
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
    if (v.ok() && !v.recording.steps.empty()) add_recording(page, v);
  return report::render_html(page);
}

}  // namespace attnscope::compare
