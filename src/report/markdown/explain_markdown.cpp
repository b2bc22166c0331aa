#include "report/markdown/explain_markdown.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::report {

using trace::EventClass;

namespace {

std::string time_ns(int64_t ns) {
  return format_time_us(static_cast<double>(ns) / 1e3);
}

std::string row(const std::vector<std::string>& cells) {
  return "| " + join(cells, " | ") + " |\n";
}

std::string table_head(const std::vector<std::string>& titles, const std::vector<bool>& right) {
  std::string out = row(titles);
  std::vector<std::string> marks;
  for (size_t i = 0; i < titles.size(); ++i) marks.emplace_back(right[i] ? "---:" : "---");
  return out + row(marks);
}

std::string findings_part(const ExplainModel& model) {
  if (model.rules.findings.empty()) return "No rule found anything to report.\n\n";
  std::string out;
  for (size_t i = 0; i < model.rules.findings.size(); ++i) {
    const Finding& finding = model.rules.findings[i];
    out += fmt::format("{}. **{}** ({}{}): {}\n", i + 1, escape_markdown(finding.id),
                       severity_name(finding.severity),
                       finding.range.empty() ? "" : ", " + markdown_code(finding.range),
                       escape_markdown(finding.title, 400));
    if (!finding.remedy.empty()) out += "   " + escape_markdown(finding.remedy, 1000) + "\n";
  }
  return out + "\n";
}

std::string attention_part(const ExplainModel& model, size_t top) {
  if (model.attention.empty()) return "";
  std::string out =
      "## Attention\n\n" + table_head({"operator", "implementation", "pass", "calls", "dtype", "shape",
                                       "mask", "device time per call", "kernels per call", "TFLOP/s"},
                                      {false, false, false, true, false, false, false, true, true, true});
  for (size_t i = 0; i < std::min(model.attention.size(), top); ++i) {
    const AttentionSummary& line = model.attention[i];
    const AttentionGroup& group = model.metrics->attention_groups[line.group];
    const AttentionCall& call = model.metrics->attention_calls[group.calls.front()];
    const bool rate = line.roofline && call.flops && line.roofline->flops_per_s > 0;
    out += row({markdown_code(call.op, 80),
                call.implementation == AttentionImpl::kNone
                    ? "not recorded"
                    : std::string(implementation_name(call.implementation)),
                std::string(pass_name(call.pass)), fmt::format("{}", line.calls),
                call.dtype == NumericType::kUnknown ? "not recorded" : std::string(numeric_name(call.dtype)),
                call.shape.known() ? call.shape.text() : "not recorded",
                call.mask == MaskUse::kUnknown ? "not recorded" : std::string(mask_name(call.mask)),
                group.device_ns > 0 ? format_time_us(line.median_us) : "not recorded",
                fmt::format("{}", call.kernels),
                rate ? fmt::format("{:.3g}", line.roofline->flops_per_s / 1e12) : "unknown"});
  }
  return out + "\n";
}

std::string kernels_part(const ExplainModel& model, size_t top) {
  if (model.metrics->kernels.empty()) return "";
  std::string out =
      fmt::format("## Where the {} goes\n\n", ran_on_host(*model.metrics) ? "time" : "device time") +
      table_head({"calls", "total", "share", "asked for by", "what ran"}, {true, true, true, false, false});
  for (size_t i = 0; i < std::min(model.metrics->kernels.size(), top); ++i) {
    const KernelGroup& group = model.metrics->kernels[i];
    out += row({group_digits(static_cast<int64_t>(group.count)), time_ns(group.device_ns),
                fmt::format("{:.1f} %", share_percent(*model.metrics, group.device_ns)),
                group.launched_by == trace::kEmptyString
                    ? "not known"
                    : markdown_code(model.trace->text(group.launched_by), 60),
                markdown_code(model.trace->text(group.name), 100)});
  }
  return out + "\n";
}

}  // namespace

std::string escape_markdown(std::string_view text, size_t max_chars) {
  const std::string safe = terminal_safe(text, max_chars);
  std::string out;
  for (const char c : safe) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '\\':
      case '`':
      case '*':
      case '_':
      case '[':
      case ']':
      case '#':
      case '|':
      case '~':
      case '!':
      case '@':
        out += '\\';
        out += c;
        break;
      default: out += c;
    }
  }
  return out;
}

std::string markdown_code(std::string_view text, size_t max_chars) {
  // Between backticks only the backtick and, in a table, the bar have a meaning.
  std::string safe = terminal_safe(text, max_chars);
  std::replace(safe.begin(), safe.end(), '`', '\'');
  std::string out;
  for (const char c : safe) out += c == '|' ? "\\|" : std::string(1, c);
  return "`" + out + "`";
}

std::string explain_markdown(const ExplainModel& model, const TextOptions& options) {
  std::string out = "# " + escape_markdown(model.source) + "\n\n";
  out += "**" + escape_markdown(model.verdict.text, 400) + "**\n\n";
  out += fmt::format("{}{}, {} events, {} kernels, {} copies, {} fills, {} of device time.\n\n",
                     escape_markdown(trace::era_text(model.trace->era())),
                     model.device.empty() ? "" : ", " + escape_markdown(model.device),
                     group_digits(static_cast<int64_t>(model.trace->totals().events)),
                     group_digits(static_cast<int64_t>(model.trace->totals().kernels)),
                     group_digits(static_cast<int64_t>(model.trace->totals().copies)),
                     group_digits(static_cast<int64_t>(model.trace->totals().fills)),
                     time_ns(model.metrics->total.device_ns));
  out += "## Findings\n\n" + findings_part(model);
  out += attention_part(model, std::max<size_t>(options.top, 10));
  out += kernels_part(model, std::max<size_t>(options.top, 10));
  if (!model.not_seen.empty()) {
    out += "## Not seen\n\n";
    for (const NotSeen& missing : model.not_seen) out += "- " + escape_markdown(missing.text, 400) + "\n";
    out += "\n```python\n" + join(recording_recipe(), "\n") + "\n```\n\n";
  }
  if (!model.diagnostics.empty()) {
    out += "## Odd data\n\n";
    for (const Diagnostic& diagnostic : model.diagnostics)
      out += fmt::format("- {} × {}: {}\n", diagnostic.count, trace::diag_info(diagnostic.id).id,
                         escape_markdown(trace::diag_info(diagnostic.id).advice, 400));
    out += "\n";
  }
  return out;
}

}  // namespace attnscope::report
