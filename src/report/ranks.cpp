#include "report/ranks.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::report {

RankSummary summarise(const ExplainModel& model) {
  const auto us = [](int64_t ns) { return ns < 0 ? -1 : static_cast<double>(ns) / 1e3; };
  RankSummary rank;
  const size_t slash = model.source.rfind('/');
  rank.label =
      model.trace->metadata().rank
          ? fmt::format("rank {}", *model.trace->metadata().rank)
          : terminal_safe(slash == std::string::npos ? model.source : model.source.substr(slash + 1), 40);
  rank.step_host_us = us(model.step_host_ns);
  rank.step_device_us = us(model.step_device_ns);
  rank.device_us = us(model.metrics->total.device_ns);
  rank.idle_percent = model.idle_percent;
  rank.kernels = static_cast<double>(model.metrics->total.kernels);
  rank.copies = static_cast<double>(model.metrics->total.copies);
  rank.findings = static_cast<double>(model.rules.findings.size());
  return rank;
}

RankComparison compare_ranks(std::span<const RankSummary> ranks) {
  struct Figure {
    const char* name;
    const char* unit;
    double RankSummary::* value;  // negative: not known
  };
  static constexpr Figure kFigures[] = {
      {"step, host", "us", &RankSummary::step_host_us}, {"step, device", "us", &RankSummary::step_device_us},
      {"device in all", "us", &RankSummary::device_us}, {"idle", "%", &RankSummary::idle_percent},
      {"kernels", "count", &RankSummary::kernels},      {"copies", "count", &RankSummary::copies},
      {"findings", "count", &RankSummary::findings}};
  RankComparison comparison;
  if (ranks.empty()) return comparison;
  for (const Figure& figure : kFigures) {
    RankRow row{figure.name, figure.unit, {}, 0};
    for (const RankSummary& rank : ranks) row.values.push_back(rank.*figure.value);
    const auto [least, most] = std::minmax_element(row.values.begin(), row.values.end());
    if (*least < 0) continue;
    row.spread_percent = *least > 0 ? 100 * (*most / *least - 1) : 0;
    comparison.rows.push_back(std::move(row));
  }
  if (comparison.rows.empty() || ranks.size() < 2) return comparison;
  const RankRow& first = comparison.rows.front();
  const size_t slowest =
      static_cast<size_t>(std::max_element(first.values.begin(), first.values.end()) - first.values.begin());
  comparison.text =
      first.spread_percent < 5
          ? fmt::format("The {} traces agree: {} within {:.1f} %.", ranks.size(), first.figure,
                        first.spread_percent)
          : fmt::format("{} is slowest: {} {}, {:.0f} % above the fastest.", ranks[slowest].label,
                        first.figure, format_time_us(first.values[slowest]), first.spread_percent);
  return comparison;
}

}  // namespace attnscope::report
