#include "report/text/diff_text.h"

#include "base/text.h"
#include "report/text/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attnscope::report {
namespace {

std::string percent_change(double ratio) {
  const double percent = 100 * (ratio - 1);
  return fmt::format("{:.{}f} % {}", std::fabs(percent), std::fabs(percent) < 9.95 ? 1 : 0,
                     percent >= 0 ? "slower" : "faster");
}

std::string interval(const DiffRow& row) {
  if (row.ratio == 0) return "";
  if (!row.low) return "one sample: no interval";
  if (*row.high > 100 * *row.low) return "too noisy";
  return fmt::format("{:.3f} to {:.3f}", *row.low, *row.high);
}

std::string time_or_dash(const Estimate& estimate) {
  return estimate.samples == 0 ? "-" : format_time_us(estimate.mean);
}

std::string base_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return terminal_safe(slash == std::string_view::npos ? path : path.substr(slash + 1), 60);
}

}  // namespace

std::string diff_verdict(const Diff& diff) {
  size_t slower = 0, faster = 0, unsure = 0, fresh = 0, gone = 0;
  for (const DiffRow& row : diff.rows) {
    slower += row.verdict == DiffVerdict::kSlower;
    faster += row.verdict == DiffVerdict::kFaster;
    unsure += row.verdict == DiffVerdict::kUnsure;
    fresh += row.verdict == DiffVerdict::kNew;
    gone += row.verdict == DiffVerdict::kGone;
  }
  std::string text;
  if (!diff.rows.empty() && diff.rows.front().kind == DiffKind::kStep && diff.rows.front().ratio > 0) {
    const DiffRow& step = diff.rows.front();
    text = step.verdict == DiffVerdict::kSame
               ? fmt::format("A step takes as long ({} and {})", format_time_us(step.a.mean),
                             format_time_us(step.b.mean))
           : step.verdict == DiffVerdict::kUnsure
               ? fmt::format("Whether a step changed cannot be told ({} and {})", format_time_us(step.a.mean),
                             format_time_us(step.b.mean))
               : fmt::format("A step is {} ({} → {})", percent_change(step.ratio),
                             format_time_us(step.a.mean), format_time_us(step.b.mean));
    text += "; ";
  }
  std::vector<std::string> parts;
  if (slower > 0) parts.push_back(fmt::format("{} slower", slower));
  if (faster > 0) parts.push_back(fmt::format("{} faster", faster));
  if (unsure > 0) parts.push_back(fmt::format("{} unsure", unsure));
  if (fresh > 0) parts.push_back(fmt::format("{} new", fresh));
  if (gone > 0) parts.push_back(fmt::format("{} gone", gone));
  return text + (parts.empty() ? "nothing changed beyond the threshold."
                               : "of " + fmt::format("{} rows ", diff.rows.size()) + join(parts, ", ") + ".");
}

std::string diff_text(const Diff& diff, std::string_view name_a, std::string_view name_b, double threshold,
                      const TextOptions& options) {
  const bool told_apart = base_name(name_a) != base_name(name_b);
  const auto label = [&](std::string_view name) {
    return told_apart ? base_name(name) : terminal_safe(name, 100);
  };
  std::string out =
      wrap(fmt::format("A {} · B {} · threshold {:.3g} %", label(name_a), label(name_b), 100 * threshold),
           options.width, 2) +
      "\n";
  out += ink(wrap(diff_verdict(diff), options.width, 2), Ink::kBold, options.colour) + "\n\n";
  TextTable table;
  table.header = {"verdict", "A", "B", "ratio", "95 % interval", "what"};
  table.right = {false, true, true, true, false, false};
  size_t same_kernels = 0, unsure_kernels = 0;
  for (const DiffRow& row : diff.rows) {
    if (row.kind == DiffKind::kKernel && row.verdict == DiffVerdict::kSame) {
      ++same_kernels;
      continue;
    }
    if (row.kind == DiffKind::kKernel && row.verdict == DiffVerdict::kUnsure && row.ratio < 1 + threshold &&
        row.ratio > 1 / (1 + threshold)) {
      ++unsure_kernels;
      continue;
    }
    std::string what = fmt::format("{} {}", diff_kind_name(row.kind), terminal_safe(row.name, 70));
    if (row.kind == DiffKind::kStep) what = "step";
    if (!row.figure.empty() && row.kind != DiffKind::kKernel) what += ", " + row.figure;
    if (!row.note.empty()) what += "; " + terminal_safe(row.note, 200);
    table.rows.push_back({std::string(diff_verdict_name(row.verdict)), time_or_dash(row.a),
                          time_or_dash(row.b), row.ratio > 0 ? fmt::format("{:.3f}", row.ratio) : "-",
                          interval(row), what});
  }
  out += table.render(options.width);
  if (same_kernels > 0) out += fmt::format("{} kernels of the same time are not listed\n", same_kernels);
  if (unsure_kernels > 0)
    out += fmt::format(
        "{} kernels are not listed: their means are within the threshold, their intervals are not\n",
        unsure_kernels);
  if (diff.left_out > 0)
    out += fmt::format("{} kernels with less than the least share of the time are left out\n", diff.left_out);
  if (diff.regressed()) out += "slower beyond the threshold: exit 1\n";
  return out;
}

}  // namespace attnscope::report
