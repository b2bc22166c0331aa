#include "compare/render.h"
#include "compare/sweep.h"

#include "base/text.h"
#include "report/html/page.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace attnscope::compare {
namespace {

using Json = nlohmann::ordered_json;

// Values of the axes but the first, one table each: " head_dim=64"; "" when there is one axis.
std::vector<std::string> suffixes_of(const SweepResult& r) {
  std::vector<std::string> suffixes;
  for (const SweepPoint& p : r.points) {
    const std::string suffix = p.series.substr(p.variant.size());
    if (std::find(suffixes.begin(), suffixes.end(), suffix) == suffixes.end()) suffixes.push_back(suffix);
  }
  return suffixes;
}

std::vector<std::string> variants_of(const SweepResult& r) {
  std::vector<std::string> names;
  for (const SweepPoint& p : r.points)
    if (std::find(names.begin(), names.end(), p.variant) == names.end()) names.push_back(p.variant);
  return names;
}

const SweepPoint* point_at(const SweepResult& r, const std::string& series, int64_t x) {
  for (const SweepPoint& p : r.points)
    if (p.series == series && p.x == x) return &p;
  return nullptr;
}

std::string verdict(const SweepResult& r) {
  const auto crossings = r.crossings();
  std::map<std::string, int> wins;
  std::map<std::pair<std::string, int64_t>, const SweepPoint*> best;
  for (const SweepPoint& p : r.points) {
    if (!p.ok) continue;
    const SweepPoint*& b = best[{p.series.substr(p.variant.size()), p.x}];
    if (!b || p.device_us < b->device_us) b = &p;
  }
  for (const auto& [where, p] : best) ++wins[p->variant];
  if (wins.empty()) return "Nothing ran at any point.";
  const auto top =
      std::max_element(wins.begin(), wins.end(), [](auto& a, auto& b) { return a.second < b.second; });
  return fmt::format("{} is fastest at {} of {} points{}.", top->first, top->second, best.size(),
                     crossings.empty() ? "; the order never changes"
                                       : fmt::format("; the fastest changes {} {}", crossings.size(),
                                                     crossings.size() == 1 ? "time" : "times"));
}

std::string headline(const SweepResult& r) {
  std::vector<std::string> axes;
  for (const SweepAxis& a : r.axes)
    axes.push_back(
        fmt::format("{} {} … {} ({} values)", a.name, a.values.front(), a.values.back(), a.values.size()));
  return fmt::format("attnscope " ATTNSCOPE_VERSION " · {} · {} · over {}", r.device_name, describe(r.base),
                     join(axes, ", "));
}

// Rows of cells: the first axis down, one variant a column.
std::vector<std::vector<std::string>> cells(const SweepResult& r, const std::string& suffix) {
  const auto names = variants_of(r);
  std::vector<std::vector<std::string>> rows{{r.axes[0].name}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (const int64_t x : r.axes[0].values) {
    std::vector<std::string> row{fmt::format("{}", x)};
    for (const std::string& name : names) {
      const SweepPoint* p = point_at(r, name + suffix, x);
      row.push_back(!p ? "" : p->ok ? format_time_us(p->device_us) : "refused");
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string crossing_text(const SweepResult& r, const Crossing& c) {
  return fmt::format("{} overtakes {} between {} {} and {}", c.to, c.from, r.axes[0].name, c.after, c.before);
}

}  // namespace

std::string render_text(const SweepResult& r) {
  std::string out = headline(r) + "\n" + verdict(r) + "\n\n";
  for (const std::string& suffix : suffixes_of(r)) {
    if (!suffix.empty()) out += suffix.substr(1) + "\n";
    const auto rows = cells(r, suffix);
    std::vector<size_t> widths(rows[0].size(), 0);
    for (const auto& row : rows)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
    for (const auto& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) out += pad(row[i], widths[i] + (i ? 3 : 0), true);
      out += "\n";
    }
  }
  out += "median time of one call, checked against float64\n";
  for (const Crossing& c : r.crossings()) out += crossing_text(r, c) + "\n";
  std::vector<std::string> reasons;
  for (const SweepPoint& p : r.points) {
    const std::string line = fmt::format("  {}: {}", p.variant, p.reason);
    if (!p.ok && std::find(reasons.begin(), reasons.end(), line) == reasons.end()) reasons.push_back(line);
  }
  if (!reasons.empty()) out += "Refused\n" + join(reasons, "\n") + "\n";
  return out;
}

std::string render_markdown(const SweepResult& r) {
  std::string out = fmt::format("**{}**\n\n{}\n\n", verdict(r), headline(r));
  for (const std::string& suffix : suffixes_of(r)) {
    if (!suffix.empty()) out += fmt::format("\n{}\n\n", suffix.substr(1));
    const auto rows = cells(r, suffix);
    for (size_t i = 0; i < rows.size(); ++i) {
      out += "| " + join(rows[i], " | ") + " |\n";
      if (i > 0) continue;
      for (size_t c = 0; c < rows[0].size(); ++c) out += "|---:";
      out += "|\n";
    }
  }
  for (const Crossing& c : r.crossings()) out += fmt::format("\n- {}", crossing_text(r, c));
  return out + "\n";
}

std::string render_json(const SweepResult& r) {
  Json axes = Json::array(), points = Json::array(), crossings = Json::array();
  for (const SweepAxis& a : r.axes) axes.push_back({{"name", a.name}, {"values", a.values}});
  for (const SweepPoint& p : r.points) {
    const auto figure = [&](double value) { return p.ok ? Json(value) : Json(nullptr); };
    points.push_back({{"at", p.at},
                      {"series", p.series},
                      {"variant", p.variant},
                      {"x", p.x},
                      {"status", p.ok ? "ok" : "refused"},
                      {"reason", p.ok ? Json(nullptr) : Json(p.reason)},
                      {"device_us", figure(p.device_us)},
                      {"p10_us", figure(p.p10_us)},
                      {"p90_us", figure(p.p90_us)},
                      {"tflops", figure(p.tflops)},
                      {"rel_l2", figure(p.rel_l2)}});
  }
  for (const Crossing& c : r.crossings())
    crossings.push_back({{"from", c.from}, {"to", c.to}, {"after", c.after}, {"before", c.before}});
  const Json document{{"schema", "attnscope.sweep/1"},
                      {"tool", {{"name", "attnscope"}, {"version", ATTNSCOPE_VERSION}}},
                      {"machine", {{"device", r.device_name}}},
                      {"request", as_options(r.base)},
                      {"axes", axes},
                      {"points", points},
                      {"crossings", crossings}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string render_html(const SweepResult& r) {
  report::Page page;
  page.kind = report::PageKind::kSweep;
  page.version = ATTNSCOPE_VERSION;
  page.verdict = verdict(r);
  page.subtitle = headline(r);
  page.method =
      "Every point is a whole comparison: each variant checked against float64, then timed, variants taking "
      "turns.";
  page.result_json = render_json(r);
  return report::render_html(page);
}

}  // namespace attnscope::compare
