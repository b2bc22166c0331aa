#include "compare/render.h"

#include "base/text.h"

#include <fmt/format.h>

namespace attnscope::compare {
namespace {

// Text from outside (file names, kernel names) must not become table borders or markup.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : terminal_safe(text, 2000)) {
    if (c == '|' || c == '*' || c == '_' || c == '`' || c == '<' || c == '[' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string count_text(int seen, const std::optional<int>& guess) {
  return guess && *guess != seen ? fmt::format("**{}**", seen) : fmt::format("{}", seen);
}

std::string table(const CompareResult& r) {
  const bool gpu = r.device == DeviceType::kCuda;
  std::string text = fmt::format(
      "| variant | kernels | guess | copies | fills | time p50 | mean | p10–p90 | p99 | host | {} | moved | "
      "extra "
      "memory | "
      "rel. L2 error | max. error |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
      gpu ? "TFLOP/s" : "GFLOP/s");
  for (const VariantResult& v : r.variants) {
    if (!v.ok()) continue;
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {}–{} | {} | {} | {:.3g} | {} | {} | {:.1e} | {:.1e} |\n",
        v.name, count_text(v.counts.kernels, v.guess.kernels),
        v.guess.kernels ? fmt::format("{}", *v.guess.kernels) : "",
        count_text(v.counts.copies, v.guess.copies), count_text(v.counts.fills, v.guess.fills),
        format_time_us(v.device_us.p50), format_time_us(v.device_us.mean), format_time_us(v.device_us.p10),
        format_time_us(v.device_us.p90), format_time_us(v.device_us.p99),
        v.host_us.samples > 0 ? format_time_us(v.host_us.p50) : "", v.flops_per_s() / (gpu ? 1e12 : 1e9),
        v.counts.bytes_moved >= 0 ? format_bytes(v.counts.bytes_moved) : "",
        format_bytes(v.counts.intermediate_bytes), v.accuracy.rel_l2, v.accuracy.max_abs);
  }
  return text;
}

std::string reasons(const CompareResult& r, VariantStatus status, const char* title) {
  std::string text;
  for (const VariantResult& v : r.variants) {
    if (v.status != status) continue;
    for (const Refusal& reason : v.reasons)
      text += fmt::format("- **{}**: {}{}{} (`{}`)\n", v.name, escaped(reason.message),
                          reason.remedy.empty() ? "" : ": ", escaped(reason.remedy), reason.code);
  }
  return text.empty() ? text : fmt::format("\n## {}\n\n{}", title, text);
}

}  // namespace

std::string render_markdown(const CompareResult& r) {
  std::string text = fmt::format("# {}\n\n{}\n\n", escaped(verdict(r)), escaped(headline(r)));
  if (r.fastest()) {
    text += table(r);
    text += "\n" + escaped(expectation_text(r)) + "\n";
    std::string breaks;
    for (const VariantResult& v : r.variants) {
      for (const BreakText& b : explain_breaks(v, r)) {
        breaks += fmt::format("- **{}**\n", escaped(b.headline));
        for (const std::string& detail : b.details) breaks += fmt::format("  - {}\n", escaped(detail));
      }
      if (const std::string empty = empty_row_text(v); !empty.empty())
        breaks += fmt::format("- {}\n", escaped(empty));
    }
    if (!breaks.empty()) text += "\n## Where the guess broke\n\n" + breaks;
  }
  if (const auto others = other_findings(r); !others.empty()) {
    text += "\n## Also found\n\n";
    for (const std::string& line : others) text += fmt::format("- {}\n", escaped(line));
  }
  text += reasons(r, VariantStatus::kFailed, "Failed");
  text += reasons(r, VariantStatus::kRefused, "Refused");
  return text + fmt::format("\nReproduce: `attnscope compare {}`\n", as_options(r.problem));
}

}  // namespace attnscope::compare
