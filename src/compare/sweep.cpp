#include "compare/sweep.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace attnscope::compare {
namespace {

constexpr int64_t kLargestValue = int64_t{1} << 30;
constexpr std::array<std::string_view, 4> kAxes{"seq", "head_dim", "batch", "heads"};

tl::unexpected<Error> bad(std::string_view word, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("--sweep: '{}' {}", terminal_safe(word, 80), what),
              "e.g. --sweep seq=512..16384x2 head_dim=64,128; axes: seq, head_dim, batch, heads");
}

Result<int64_t> size_in(std::string_view word, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1 || value > kLargestValue)
    return bad(word, fmt::format("holds '{}', which is not a size from 1 to 2^30", terminal_safe(text, 40)));
  return value;
}

// "512..16384x2" or "512..2048+512".
Result<std::vector<int64_t>> range_values(std::string_view word, std::string_view text) {
  const size_t dots = text.find("..");
  const size_t step_at = text.find_first_of("x+", dots);
  if (step_at == std::string_view::npos) return bad(word, "has a range without a step: x2 or +512");
  ATTNSCOPE_ASSIGN(const int64_t first, size_in(word, text.substr(0, dots)));
  ATTNSCOPE_ASSIGN(const int64_t last, size_in(word, text.substr(dots + 2, step_at - dots - 2)));
  ATTNSCOPE_ASSIGN(const int64_t step, size_in(word, text.substr(step_at + 1)));
  const bool times = text[step_at] == 'x';
  if (last < first) return bad(word, "ends before it begins");
  if (times && step < 2) return bad(word, "multiplies by 1 and would never end");
  std::vector<int64_t> values;
  for (int64_t v = first; v <= last && values.size() <= kMaxSweepPoints; v = times ? v * step : v + step)
    values.push_back(v);
  return values;
}

Result<SweepAxis> parse_axis(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return bad(word, "has no '='");
  SweepAxis axis{std::string(word.substr(0, equals)), {}};
  if (std::find(kAxes.begin(), kAxes.end(), axis.name) == kAxes.end()) return bad(word, "names no axis");
  const std::string_view text = word.substr(equals + 1);
  if (text.find("..") != std::string_view::npos) {
    ATTNSCOPE_ASSIGN(axis.values, range_values(word, text));
  } else {
    for (const std::string_view part : split(text, ',')) {
      ATTNSCOPE_ASSIGN(const int64_t value, size_in(word, part));
      axis.values.push_back(value);
    }
  }
  std::sort(axis.values.begin(), axis.values.end());
  axis.values.erase(std::unique(axis.values.begin(), axis.values.end()), axis.values.end());
  return axis;
}

void set_axis(Problem& p, std::string_view axis, int64_t value) {
  if (axis == "seq") p.q_len = p.kv_len = value;
  if (axis == "head_dim") p.head_dim = p.value_dim = value;
  if (axis == "batch") p.batch = value;
  if (axis == "heads") {
    p.kv_heads = value / (p.heads / p.kv_heads);
    p.heads = value;
  }
}

size_t grid_size(std::span<const SweepAxis> axes) {
  size_t n = 1;
  for (const SweepAxis& axis : axes) n *= axis.values.size();
  return n;
}

// Value of each axis at the n-th point.
std::vector<int64_t> coordinates(std::span<const SweepAxis> axes, size_t index) {
  std::vector<int64_t> out;
  for (const SweepAxis& axis : axes) {
    out.push_back(axis.values[index % axis.values.size()]);
    index /= axis.values.size();
  }
  return out;
}

}  // namespace

Result<std::vector<SweepAxis>> parse_sweep(std::span<const std::string> words) {
  std::vector<SweepAxis> axes;
  for (const std::string& word : words) {
    ATTNSCOPE_ASSIGN(SweepAxis axis, parse_axis(word));
    for (const SweepAxis& other : axes)
      if (other.name == axis.name) return bad(word, "names an axis twice");
    axes.push_back(std::move(axis));
    if (grid_size(axes) > kMaxSweepPoints)
      return bad(word, fmt::format("makes more than {} points", kMaxSweepPoints));
  }
  return axes;
}

Status check_axes(const Problem& base, std::span<const SweepAxis> axes) {
  for (const SweepAxis& axis : axes) {
    if (axis.name == "seq" && base.q_len != base.kv_len)
      return bad("seq",
                 fmt::format("sets one length, but here L is {} and S is {}", base.q_len, base.kv_len));
    if (axis.name == "head_dim" && base.head_dim != base.value_dim)
      return bad("head_dim", fmt::format("sets one head size, but here E is {} and Ev is {}", base.head_dim,
                                         base.value_dim));
    const int64_t group = base.heads / base.kv_heads;
    for (const int64_t value : axis.values)
      if (axis.name == "heads" && value % group != 0)
        return bad("heads", fmt::format("{} do not come in groups of {}, the query heads of one kv head",
                                        value, group));
  }
  return {};
}

std::vector<Problem> sweep_problems(const Problem& base, std::span<const SweepAxis> axes) {
  std::vector<Problem> problems;
  for (size_t i = 0; i < grid_size(axes); ++i) {
    Problem p = base;
    const std::vector<int64_t> at = coordinates(axes, i);
    for (size_t a = 0; a < axes.size(); ++a) set_axis(p, axes[a].name, at[a]);
    problems.push_back(std::move(p));
  }
  return problems;
}

std::string point_name(std::span<const SweepAxis> axes, size_t index) {
  const std::vector<int64_t> at = coordinates(axes, index);
  std::string name = fmt::format("{}={}", axes[0].name, at[0]);
  return name + series_suffix(axes, index);
}

std::string series_suffix(std::span<const SweepAxis> axes, size_t index) {
  const std::vector<int64_t> at = coordinates(axes, index);
  std::string name;
  for (size_t a = 1; a < axes.size(); ++a) name += fmt::format(" {}={}", axes[a].name, at[a]);
  return name;
}

int64_t first_value(std::span<const SweepAxis> axes, size_t index) {
  return coordinates(axes, index)[0];
}

std::vector<SweepPoint> points_of(const CompareResult& result, const std::string& at, std::string_view suffix,
                                  int64_t x) {
  std::vector<SweepPoint> points;
  for (const VariantResult& v : result.variants) {
    SweepPoint point;
    point.at = at;
    point.series = v.name + std::string(suffix);
    point.variant = v.name;
    point.x = x;
    point.ok = v.ok();
    if (point.ok) {
      point.device_us = v.device_us.p50;
      point.p10_us = v.device_us.p10;
      point.p90_us = v.device_us.p90;
      point.tflops = v.flops_per_s() / 1e12;
      point.rel_l2 = v.accuracy.rel_l2;
    } else {
      point.reason = v.reasons.empty() ? std::string(status_name(v.status)) : v.reasons.front().message;
    }
    points.push_back(std::move(point));
  }
  return points;
}

// A series leads until another is faster than the fast end of the leader's own spread: equals do not cross.
std::vector<Crossing> SweepResult::crossings() const {
  // Other axes' values → place on the first axis → the points there.
  std::map<std::string, std::map<int64_t, std::vector<const SweepPoint*>>> grid;
  for (const SweepPoint& p : points)
    if (p.ok) grid[p.series.substr(p.variant.size())][p.x].push_back(&p);
  std::vector<Crossing> out;
  for (const auto& [suffix, along] : grid) {
    std::string leader;
    int64_t last_x = 0;
    for (const auto& [x, here] : along) {
      const SweepPoint* best = *std::min_element(
          here.begin(), here.end(), [](auto* a, auto* b) { return a->device_us < b->device_us; });
      const auto held = std::find_if(here.begin(), here.end(), [&](auto* p) { return p->series == leader; });
      const bool overtaken = held == here.end() || best->device_us < (*held)->p10_us;
      if (!leader.empty() && overtaken) out.push_back({leader, best->series, last_x, x});
      if (overtaken) leader = best->series;
      last_x = x;
    }
  }
  return out;
}

}  // namespace attnscope::compare
