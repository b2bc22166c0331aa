// The sentences of a comparison.
#include "compare/render.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace attnscope::compare {
namespace {

using profiler::RecordKind;

std::string ratio(double value) {
  return value >= 99.5   ? fmt::format("{:.0f}", value)
         : value >= 9.95 ? fmt::format("{:.1f}", value)
                         : fmt::format("{:.2f}", value);
}

std::string operations(double flops) {
  return flops >= 1e12  ? fmt::format("{:.3g} TFLOP", flops / 1e12)
         : flops >= 1e9 ? fmt::format("{:.3g} GFLOP", flops / 1e9)
                        : fmt::format("{:.3g} MFLOP", flops / 1e6);
}

std::string number_word(int n) {
  constexpr std::array<const char*, 10> kWords{"no",   "one", "two",   "three", "four",
                                               "five", "six", "seven", "eight", "nine"};
  return n >= 0 && n < 10 ? kWords[static_cast<size_t>(n)] : fmt::format("{}", n);
}

std::string plural(int n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", number_word(n), n == 1 ? one : many);
}

double sum_us(const VariantResult& v, RecordKind kind) {
  double sum = 0;
  for (const WorkRow& row : v.counts.rows) sum += row.kind == kind ? row.time_us : 0;
  return sum;
}

double share(double part_us, const VariantResult& v) {
  double whole = 0;
  for (const WorkRow& row : v.counts.rows) whole += row.time_us;
  return whole > 0 ? 100 * part_us / whole : 0;
}

// Kernels by the operator they belong to, in order of first appearance.
struct OperatorSum {
  std::string op;
  int kernels = 0;
  double us = 0;
};
std::vector<OperatorSum> by_operator(const VariantResult& v) {
  std::vector<OperatorSum> sums;
  for (const WorkRow& row : v.counts.rows) {
    if (row.kind != RecordKind::kKernel) continue;
    const std::string& op = row.op.empty() ? row.name : row.op;
    auto at = std::find_if(sums.begin(), sums.end(), [&](const OperatorSum& s) { return s.op == op; });
    if (at == sums.end()) at = sums.insert(sums.end(), OperatorSum{op, 0, 0});
    ++at->kernels;
    at->us += row.time_us;
  }
  std::stable_sort(sums.begin(), sums.end(),
                   [](const OperatorSum& a, const OperatorSum& b) { return a.us > b.us; });
  return sums;
}

// "attnscope::matmul" → "matmul"
std::string_view short_name(std::string_view op) {
  const size_t at = op.rfind("::");
  return at == std::string_view::npos ? op : op.substr(at + 2);
}

std::string copies_headline(const VariantResult& v, const GuessBreak& b) {
  const double us = sum_us(v, RecordKind::kCopy);
  if (b.seen < b.guessed)
    return fmt::format("{}: {} guessed, {} ran", v.name, plural(b.guessed, "copy", "copies"),
                       number_word(b.seen));
  return fmt::format("{}: {} you did not write, {}, {} per call ({:.0f} %).", v.name,
                     plural(b.seen - b.guessed, "copy", "copies"), format_bytes(v.counts.copied_bytes),
                     format_time_us(us), share(us, v));
}

std::string kernels_headline(const VariantResult& v, const GuessBreak& b, bool formula) {
  const int more = b.seen - b.guessed;
  if (more < 0) return fmt::format("{}: {} kernels guessed, {} ran.", v.name, b.guessed, b.seen);
  return fmt::format(
      "{}: {} more than {}.", v.name, plural(more, "kernel", "kernels"),
      formula ? "the formula" : fmt::format("guessed ({} seen, {} guessed)", b.seen, b.guessed));
}

// "copy_scores under masked_fill, 34 MB, 13.9 ms", one for each.
std::vector<std::string> work_of_kind(const VariantResult& v, RecordKind kind) {
  std::vector<std::string> lines;
  for (const WorkRow& row : v.counts.rows)
    if (row.kind == kind)
      lines.push_back(fmt::format(
          "{}{}{}, {}, {}", terminal_safe(short_name(row.name)), row.op.empty() ? "" : " inside ",
          terminal_safe(short_name(row.op)),
          row.bytes_written >= 0 ? format_bytes(static_cast<double>(row.bytes_written)) : "size not recorded",
          format_time_us(row.time_us)));
  return lines;
}

bool about_copies(const Finding& f) {
  return f.id.find("copy") != std::string::npos;
}

std::string saving_text(const Finding& f) {
  if (!f.saving_us) return {};
  if (*f.saving_us <= 0) return " Nothing would be saved.";
  return fmt::format(" Saves up to {}{}.", format_time_us(*f.saving_us),
                     f.saving_per.empty() ? "" : " per " + f.saving_per);
}

void add_findings(const VariantResult& v, bool copies, std::vector<std::string>& details) {
  for (const Finding& f : v.findings)
    if (about_copies(f) == copies && f.severity >= Severity::kNote)
      details.push_back(
          copies  // the headline has the figures
              ? fmt::format("{}: {}", f.id, f.remedy)
              : fmt::format("{}: {}.{} {}", f.id, terminal_safe(f.title), saving_text(f), f.remedy));
}

}  // namespace

std::string headline(const CompareResult& r) {
  return fmt::format("attnscope {} · {} · {}", ATTNSCOPE_VERSION, r.device_name, describe(r.problem));
}

std::string verdict(const CompareResult& r) {
  const VariantResult* best = r.fastest();
  if (!best) return "Nothing ran: every variant refused or failed.";
  std::vector<const VariantResult*> ran;
  for (const VariantResult& v : r.variants)
    if (v.ok()) ran.push_back(&v);
  std::string text = fmt::format("{} is fastest: {}", best->name, format_time_us(best->device_us.p50));
  if (ran.size() == 1) {
    text = fmt::format("{} takes {}", best->name, format_time_us(best->device_us.p50));
    if (best->counts.bytes_moved >= 0)
      text += fmt::format(" and moves {}", format_bytes(best->counts.bytes_moved));
    return text + ".";
  }
  const VariantResult* second = ran[1];
  const VariantResult* naive = r.find("naive");
  const VariantResult* last = naive && naive->ok() && naive != best ? naive : ran.back();
  text += fmt::format(", {} × {}", ratio(second->device_us.p50 / best->device_us.p50), second->name);
  if (second->device_us.p10 < best->device_us.p90) text += " (within the spread)";
  if (last != second)
    text += fmt::format(", {} × {}", ratio(last->device_us.p50 / best->device_us.p50), last->name);
  text += ".";
  if (best->counts.bytes_moved >= 0 && last->counts.bytes_moved >= 0)
    text += fmt::format(" It moves {}; {} moves {}.", format_bytes(best->counts.bytes_moved), last->name,
                        format_bytes(last->counts.bytes_moved));
  if (!r.guessed_fastest.empty())
    text += r.guessed_fastest == best->name ? " As guessed."
                                            : fmt::format(" The guess was {}.", r.guessed_fastest);
  return text;
}

std::string expectation_text(const CompareResult& r) {
  const Expectation& e = r.expectation;
  if (e.flops <= 0) return {};
  std::string text =
      fmt::format("The hardware allows {}: ", e.floor_us() > 0 ? format_time_us(e.floor_us()) : "?");
  if (e.compute_us >= 0)
    text += fmt::format("{} at {:.3g} GFLOP/s ({}) take {}", operations(e.flops), r.peaks.flops_per_s / 1e9,
                        r.peaks.flops_how, format_time_us(e.compute_us));
  else
    text += fmt::format("{} at a peak that could not be measured", operations(e.flops));
  if (e.memory_us >= 0)
    text += fmt::format("; {} once in and out at {:.3g} GB/s take {}", format_bytes(e.min_bytes),
                        r.peaks.bytes_per_s / 1e9, format_time_us(e.memory_us));
  return text + ".";
}

std::string empty_row_text(const VariantResult& v) {
  if (v.accuracy.empty_nan_rows == 0) return {};
  return fmt::format(
      "{}: NaN in {} of {} rows checked, those whose keys are all masked: the formula gives 0/0 there, "
      "the other variants give 0.",
      v.name, v.accuracy.empty_nan_rows, v.accuracy.rows_checked);
}

std::vector<BreakText> explain_breaks(const VariantResult& v, const CompareResult& r) {
  std::vector<BreakText> texts;
  for (const GuessBreak& b : v.breaks) {
    BreakText text;
    if (b.figure == "copies") {
      text.headline = copies_headline(v, b);
      text.details = work_of_kind(v, RecordKind::kCopy);
      add_findings(v, true, text.details);
    } else if (b.figure == "kernels") {
      text.headline = kernels_headline(v, b, r.guess_source.empty());
      std::vector<std::string> sums;
      for (const OperatorSum& sum : by_operator(v))
        sums.push_back(fmt::format("{}{} {}", terminal_safe(short_name(sum.op)),
                                   sum.kernels == 1 ? "" : fmt::format(" ({} kernels)", sum.kernels),
                                   format_time_us(sum.us)));
      text.details.push_back("where the time goes: " + join(sums, " · "));
      add_findings(v, false, text.details);
    } else {
      text.headline = fmt::format("{}: {} guessed, {} ran.", v.name, plural(b.guessed, "fill", "fills"),
                                  number_word(b.seen));
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

std::vector<std::string> other_findings(const CompareResult& r) {
  struct Line {
    const Finding* finding;
    std::vector<std::string> variants;
  };
  std::vector<Line> lines;
  for (const VariantResult& v : r.variants) {
    const auto broke = [&](const char* figure) {
      return std::any_of(v.breaks.begin(), v.breaks.end(),
                         [&](const GuessBreak& b) { return b.figure == figure; });
    };
    for (const Finding& f : v.findings) {
      if (broke(about_copies(f) ? "copies" : "kernels") && f.id != "unfused-attention") continue;
      const auto same =
          std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.finding->id == f.id; });
      if (same == lines.end())
        lines.push_back({&f, {v.name}});
      else
        same->variants.push_back(v.name);
    }
  }
  std::vector<std::string> out;
  for (const Line& line : lines)
    out.push_back(fmt::format("{} ({}): {}.{} {}", line.finding->id, join(line.variants, ", "),
                              terminal_safe(line.finding->title), saving_text(*line.finding),
                              line.finding->remedy));
  return out;
}

std::vector<std::string> next_steps(const CompareResult& r) {
  std::vector<std::string> steps;
  if (!r.fastest())
    return {r.automatic.empty()
                ? "attnscope doctor"
                : fmt::format("attnscope compare {} --backends {}", as_options(r.problem), r.automatic)};
  const VariantResult* slowest = nullptr;
  for (const VariantResult& v : r.variants)
    if (v.ok()) slowest = &v;
  steps.push_back(
      fmt::format("attnscope compare --trace-dir traces && attnscope table traces/{}.json", slowest->name));
  steps.push_back("attnscope compare --html report.html");
  if (r.guess_source.empty()) steps.push_back("attnscope compare --ask    (guess first, then look)");
  return steps;
}

}  // namespace attnscope::compare
