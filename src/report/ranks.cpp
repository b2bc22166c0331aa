#include "report/ranks.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace attnscope::report {

std::string rank_label(const ExplainModel& model) {
  if (model.trace->metadata().rank) return fmt::format("rank {}", *model.trace->metadata().rank);
  const size_t slash = model.source.rfind('/');
  return terminal_safe(slash == std::string::npos ? model.source : model.source.substr(slash + 1), 40);
}

RankComparison compare_ranks(std::span<const ExplainModel> models) {
  struct Figure {
    const char* name;
    const char* unit;
    std::function<double(const ExplainModel&)> value;  // negative: not known
  };
  const std::vector<Figure> figures{
      {"step on the host, median", "us",
       [](const ExplainModel& m) { return static_cast<double>(m.step_host_ns) / 1e3; }},
      {"step on the device, median sum", "us",
       [](const ExplainModel& m) { return static_cast<double>(m.step_device_ns) / 1e3; }},
      {"device time in all", "us",
       [](const ExplainModel& m) { return static_cast<double>(m.metrics->total.device_ns) / 1e3; }},
      {"idle", "%", [](const ExplainModel& m) { return m.idle_percent; }},
      {"kernels", "count",
       [](const ExplainModel& m) { return static_cast<double>(m.metrics->total.kernels); }},
      {"copies", "count", [](const ExplainModel& m) { return static_cast<double>(m.metrics->total.copies); }},
      {"findings", "count",
       [](const ExplainModel& m) { return static_cast<double>(m.rules.findings.size()); }},
  };
  RankComparison comparison;
  for (const Figure& figure : figures) {
    RankRow row{figure.name, figure.unit, {}, 0};
    for (const ExplainModel& model : models) row.values.push_back(figure.value(model));
    const auto [least, most] = std::minmax_element(row.values.begin(), row.values.end());
    if (*least < 0) continue;
    row.spread_percent = *least > 0 ? 100 * (*most / *least - 1) : 0;
    comparison.rows.push_back(std::move(row));
  }
  if (comparison.rows.empty() || models.size() < 2) return comparison;
  const RankRow& host = comparison.rows.front();
  const size_t slowest =
      static_cast<size_t>(std::max_element(host.values.begin(), host.values.end()) - host.values.begin());
  comparison.text =
      host.spread_percent < 5
          ? fmt::format("The {} traces agree: {} within {:.1f} %.", models.size(), host.figure,
                        host.spread_percent)
          : fmt::format("{} is slowest: {} {}, {:.0f} % above the fastest.", rank_label(models[slowest]),
                        host.figure, format_time_us(host.values[slowest]), host.spread_percent);
  return comparison;
}

}  // namespace attnscope::report
