#include "report/text/explain_text.h"

#include "base/text.h"
#include "report/text/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::report {

using trace::EventClass;
using trace::Trace;

namespace {

std::string time_ns(int64_t ns) {
  return format_time_us(static_cast<double>(ns) / 1e3);
}

std::string file_name(std::string_view path) {
  if (path == "-") return "stdin";
  const size_t slash = path.rfind('/');
  return terminal_safe(slash == std::string_view::npos ? path : path.substr(slash + 1), 60);
}

std::string count(size_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", group_digits(static_cast<int64_t>(n)), n == 1 ? one : many);
}

// "train.json.gz · PyTorch ≥ 2.7, NVIDIA H200, 3 steps, 13,865 events · step 2.34 ms device, 23.7 ms host"
std::string headline(const ExplainModel& model) {
  const Metrics& metrics = *model.metrics;
  std::string text = file_name(model.source) + " · ";
  text += model.trace->era() == trace::Era::kNotKineto ? terminal_safe(model.trace->metadata().producer, 40)
                                                       : std::string(trace::era_text(model.trace->era()));
  if (!model.device.empty()) text += ", " + terminal_safe(model.device, 60);
  if (ran_on_host(metrics)) text += ", CPU only";
  if (model.trace->metadata().rank) text += fmt::format(", rank {}", *model.trace->metadata().rank);
  if (metrics.step_source != StepSource::kWholeTrace)
    text += ", " + count(metrics.steps.size(), "step", "steps");
  text += ", " + count(model.trace->totals().events, "event", "events");
  if (model.trace->truncated()) text += ", cut short";
  if (metrics.steps.empty() || model.step_host_ns <= 0) return text;
  const std::string_view what = metrics.step_source == StepSource::kWholeTrace ? "in all" : "step";
  if (ran_on_host(metrics) || metrics.total == trace::WorkSum{})
    return text + fmt::format(" · {} {}", what, time_ns(model.step_host_ns));
  return text + fmt::format(" · {} {} device, {} host", what, time_ns(model.step_device_ns),
                            time_ns(model.step_host_ns));
}

std::string severity_tag(Severity severity, bool colour) {
  switch (severity) {
    case Severity::kError: return ink("ERROR", Ink::kRed, colour);
    case Severity::kWarning: return ink("WARN ", Ink::kYellow, colour);
    case Severity::kNote: return ink("NOTE ", Ink::kCyan, colour);
    case Severity::kInfo: return ink("INFO ", Ink::kDim, colour);
  }
  return "     ";
}

std::string saving_text(const Finding& finding) {
  if (!finding.saving_us) return "";
  if (*finding.saving_us <= 0) return "saves nothing";
  std::string text = "up to " + format_time_us(*finding.saving_us);
  if (finding.saving_per == "trace") return text + " in all";
  return finding.saving_per.empty() ? text : text + " per " + finding.saving_per;
}

// In the list only what can be had; why the others save nothing stands on their page.
std::string listed_saving(const Finding& finding) {
  return finding.saving_us && *finding.saving_us > 0 ? saving_text(finding) : "";
}

// Numbers (from 1) of the findings to list: everything above info as far as there is room, and of the infos
// one of each rule.
std::vector<size_t> listed_findings(const std::vector<Finding>& findings, size_t room) {
  std::vector<size_t> listed;
  std::vector<std::string_view> infos;
  for (size_t i = 0; i < findings.size() && listed.size() < room; ++i) {
    if (findings[i].severity == Severity::kInfo) {
      if (std::find(infos.begin(), infos.end(), findings[i].id) != infos.end()) continue;
      infos.push_back(findings[i].id);
    }
    listed.push_back(i + 1);
  }
  return listed;
}

std::string findings_section(const ExplainModel& model, const TextOptions& options) {
  const std::vector<Finding>& findings = model.rules.findings;
  if (findings.empty()) {
    const size_t skipped = model.rules.not_evaluated.size();
    return skipped == 0
               ? "No rule found anything to report.\n"
               : fmt::format("No rule found anything to report; {} could not be evaluated (below).\n",
                             count(skipped, "rule", "rules"));
  }
  const std::vector<size_t> listed =
      options.top > 5 ? listed_findings(findings, SIZE_MAX) : listed_findings(findings, options.top * 2);
  size_t id_width = 0, range_width = 0, saving_width = 0, title_width = 0;
  for (const size_t number : listed) {
    const Finding& finding = findings[number - 1];
    id_width = std::max(id_width, display_width(finding.id));
    range_width = std::max(range_width, std::min<size_t>(24, display_width(terminal_safe(finding.range))));
    saving_width = std::max(saving_width, display_width(listed_saving(finding)));
    title_width = std::max(title_width, display_width(terminal_safe(finding.title, 400)));
  }
  constexpr size_t kIndent = 11;  // " 1  WARN   "
  const size_t before_title = kIndent + id_width + 2 + range_width + 2 + saving_width + 2;
  const bool one_line = before_title + title_width <= options.width;
  std::string out;
  for (const size_t number : listed) {
    const Finding& finding = findings[number - 1];
    std::string line = fmt::format("{:>2}  {}  ", number, severity_tag(finding.severity, options.colour));
    line += ink(pad(finding.id, id_width), Ink::kBold, options.colour) + "  ";
    line += pad(fit(terminal_safe(finding.range), 24), range_width) + "  " +
            pad(listed_saving(finding), saving_width);
    const std::string title = terminal_safe(finding.title, 400);
    if (one_line) {
      line += "  " + title;
    } else {
      while (!line.empty() && line.back() == ' ') line.pop_back();
      line += "\n" + std::string(kIndent, ' ') + wrap(title, options.width, kIndent, kIndent);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  if (listed.size() < findings.size())
    out += fmt::format("    … {} more, listed with --top {} or in --json\n", findings.size() - listed.size(),
                       std::max<size_t>(6, options.top * 2));
  return out;
}

std::string rough_percent(double percent) {
  return percent >= 9.95 ? fmt::format("{:.0f} %", percent) : fmt::format("{:.2g} %", percent);
}

std::string flops_text(double flops_per_s) {
  const bool tera = flops_per_s >= 1e12;
  const double value = flops_per_s / (tera ? 1e12 : 1e9);
  return fmt::format("{} {}", value >= 99.5 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value),
                     tera ? "TFLOP/s" : "GFLOP/s");
}

std::string rates_text(const AttentionSummary& line, const AttentionCall& call) {
  if (!line.roofline) return "";
  std::string text;
  if (call.flops && line.roofline->flops_per_s > 0) text += ", " + flops_text(line.roofline->flops_per_s);
  if (line.roofline->fraction > 0 && line.roofline->bound != Bound::kUnknown)
    text += fmt::format(", {} of the {}'s {} bound", rough_percent(100 * line.roofline->fraction),
                        line.device_peaks, bound_name(line.roofline->bound));
  return text;
}

std::string attention_section(const ExplainModel& model, const TextOptions& options) {
  std::string out;
  const size_t shown = std::min(model.attention.size(), options.top);
  for (size_t i = 0; i < shown; ++i) {
    const AttentionSummary& line = model.attention[i];
    const AttentionGroup& group = model.metrics->attention_groups[line.group];
    const AttentionCall& call = model.metrics->attention_calls[group.calls.front()];
    std::string what = fmt::format("{} {}: ", count(line.calls, "", ""), pass_name(call.pass));
    what.erase(what.find("  "), 1);
    std::vector<std::string> facts;
    facts.push_back(call.hand_written ? "written out by hand (matmul, softmax, matmul)"
                    : call.implementation == AttentionImpl::kNone
                        ? terminal_safe(call.op, 60) + ", implementation not recorded"
                        : std::string(implementation_name(call.implementation)));
    if (!line.arch.empty()) facts.push_back(line.arch);
    if (call.dtype != NumericType::kUnknown) facts.emplace_back(numeric_name(call.dtype));
    if (call.shape.known()) facts.push_back(call.shape.text());
    if (call.mask == MaskUse::kCausal) facts.emplace_back("causal");
    if (call.mask == MaskUse::kTensor) facts.emplace_back("mask tensor");
    if (call.mask == MaskUse::kBlock) facts.emplace_back("block mask");
    what += join(facts, ", ");
    if (group.device_ns > 0) {
      const trace::WorkSum per_call{call.kernels, call.copies, call.fills, {}};
      what += fmt::format(": {} per call ({}){}", format_time_us(line.median_us), work_text(per_call),
                          rates_text(line, call));
    } else {
      what += fmt::format(": no device work recorded, {} per call on the host", time_ns(call.host_ns));
    }
    out += (i == 0 ? "Attention  " : "           ") + wrap(what, options.width, 13, 11) + "\n";
  }
  if (shown < model.attention.size())
    out += fmt::format("           … {} more kinds of call: --top {}\n", model.attention.size() - shown,
                       model.attention.size());
  return out;
}

std::string kernel_label(const ExplainModel& model, const KernelGroup& group) {
  if (group.cls != EventClass::kKernel || model.metrics->cpu_only)
    return terminal_safe(model.trace->text(group.name), 60);
  return terminal_safe(short_kernel_name(model.metrics->decoded(group.name)), 200);
}

std::string kernel_table(const ExplainModel& model, std::span<const KernelGroup> groups, int64_t of_ns,
                         size_t top, size_t width) {
  TextTable table;
  table.header = {"", "calls", "total", "share", "asked for by", "what ran"};
  table.right = {false, true, true, true, false, false};
  const size_t shown = std::min(groups.size(), top);
  Total rest_ns;
  uint64_t rest_calls = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const KernelGroup& group = groups[i];
    if (i >= shown) {
      rest_ns += group.device_ns;
      rest_calls += group.count;
      continue;
    }
    const double share =
        of_ns > 0 ? 100.0 * static_cast<double>(group.device_ns) / static_cast<double>(of_ns) : 0;
    const std::string by =
        group.launched_by == trace::kEmptyString
            ? (group.basis == trace::LinkBasis::kNone && !model.metrics->cpu_only ? "(no launch in file)"
                                                                                  : "-")
            : fit(terminal_safe(model.trace->text(group.launched_by)), 34);
    table.rows.push_back({"", group_digits(static_cast<int64_t>(group.count)), time_ns(group.device_ns),
                          fmt::format("{:.1f} %", share), by, kernel_label(model, group)});
  }
  if (rest_calls > 0) {
    const double share = of_ns > 0 ? 100.0 * static_cast<double>(rest_ns) / static_cast<double>(of_ns) : 0;
    table.rows.push_back({"", group_digits(static_cast<int64_t>(rest_calls)), time_ns(rest_ns),
                          fmt::format("{:.1f} %", share), fmt::format("… {} more", groups.size() - shown),
                          ""});
  }
  return table.render(width);
}

std::string idle_section(const ExplainModel& model, const TextOptions& options) {
  if (model.idle_percent < 10) return "";
  std::array<Total, kGapCauses> idle{};
  Total window;
  for (const DeviceTimeline& device : model.metrics->gaps.devices) {
    window += device.end_ns - device.begin_ns;
    for (size_t i = 0; i < kGapCauses; ++i) idle[i] += device.idle_ns[i];
  }
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t i = 0; i < kGapCauses; ++i)
    if (idle[i] >= window / 100) order.emplace_back(-idle[i], i);
  std::sort(order.begin(), order.end());
  std::vector<std::string> parts;
  for (const auto& [ns, i] : order)
    parts.push_back(fmt::format("{:.0f} % {}", 100.0 * static_cast<double>(-ns) / static_cast<double>(window),
                                gap_cause_meaning(static_cast<GapCause>(i))));
  if (parts.empty()) return "";
  return "Idle       " + wrap(join(parts, " · "), options.width, 11, 11) + "\n";
}

// "19 rules: no kernels on a device (12), no attention calls (7)".
std::string not_judged_line(const ExplainModel& model, const TextOptions& options) {
  std::vector<std::pair<std::string, size_t>> reasons;
  for (const NotEvaluated& rule : model.rules.not_evaluated) {
    const auto at =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == rule.reason; });
    if (at == reasons.end())
      reasons.emplace_back(rule.reason, 1);
    else
      ++at->second;
  }
  if (reasons.empty()) return "";
  std::vector<std::string> parts;
  for (const auto& [reason, n] : reasons) parts.push_back(fmt::format("{} ({})", reason, n));
  const std::string text =
      fmt::format("{}: {}", count(model.rules.not_evaluated.size(), "rule", "rules"), join(parts, ", "));
  return "Not judged " + wrap(text, options.width, 11, 11) + "\n";
}

std::string not_seen_section(const ExplainModel& model, const TextOptions& options) {
  std::string out;
  std::vector<std::string> python;
  for (const NotSeen& missing : model.not_seen) {
    out += "Not seen   " + wrap(missing.text, options.width, 11, 11) + "\n";
    python.insert(python.end(), missing.python.begin(), missing.python.end());
  }
  out += not_judged_line(model, options);
  if (python.empty()) return out;
  if (model.not_seen.size() < 3) {
    out += "           record it with\n";
    for (const std::string& line : python)
      out += "             " + ink(line, Ink::kDim, options.colour) + "\n";
    return out;
  }
  out += "           a recording that has it all:\n";
  for (const std::string& line : recording_recipe())
    out += "             " + ink(line, Ink::kDim, options.colour) + "\n";
  return out;
}

std::string diagnostics_section(const ExplainModel& model, const TextOptions& options) {
  std::string out;
  size_t shown = 0, harmless = 0;
  for (const Diagnostic& diagnostic : model.diagnostics) {
    const trace::DiagInfo& info = trace::diag_info(diagnostic.id);
    if (info.severity == trace::DiagSeverity::kInfo) {
      ++harmless;
      continue;
    }
    if (++shown > options.top) continue;
    const std::string text = fmt::format("{} × {}: {}", group_digits(static_cast<int64_t>(diagnostic.count)),
                                         info.id, info.advice);
    out += "Odd data   " + wrap(text, options.width, 11, 11) + "\n";
  }
  if (shown > options.top) out += fmt::format("           … {} more kinds: --json\n", shown - options.top);
  if (harmless > 0 && shown > 0)
    out += fmt::format("           and {} harmless (in --json)\n",
                       count(harmless, "kind that is", "kinds that are"));
  return out;
}

std::string event_line(const Trace& trace, const Evidence& evidence) {
  if (evidence.event == trace::kNoEvent) return fmt::format("event {}", evidence.ordinal);
  return fmt::format("event {}  at {}  {}  {}", group_digits(static_cast<int64_t>(evidence.ordinal)),
                     time_ns(evidence.ns), time_ns(trace.dur_ns(evidence.event)),
                     terminal_safe(trace.name(evidence.event), 120));
}

}  // namespace

std::string explain_text(const ExplainModel& model, const TextOptions& options) {
  std::string out = wrap(headline(model), options.width, 2) + "\n";
  out += ink(wrap(model.verdict.text, options.width, 2), Ink::kBold, options.colour) + "\n\n";
  out += findings_section(model, options);
  std::string middle = attention_section(model, options) + idle_section(model, options);
  if (!model.metrics->kernels.empty())
    middle +=
        fmt::format("Where the {} goes, {} in all\n", ran_on_host(*model.metrics) ? "time" : "device time",
                    time_ns(model.metrics->total.device_ns)) +
        kernel_table(model, model.metrics->kernels, model.metrics->total.device_ns, options.top,
                     options.width);
  if (!middle.empty()) out += "\n" + middle;
  const std::string missing = not_seen_section(model, options) + diagnostics_section(model, options);
  if (!missing.empty()) out += "\n" + missing;
  const std::string file =
      model.source.size() <= 60 && model.source != "-" ? terminal_safe(model.source) : "TRACE";
  if (!model.rules.findings.empty())
    out += fmt::format(
        "\nWhy, evidence, remedy: attnscope explain {} --finding 1     all rules: attnscope rules\n", file);
  else
    out += fmt::format("\nNext: attnscope table {}     all rules: attnscope rules\n", file);
  return out;
}

Result<std::string> finding_text(const ExplainModel& model, size_t number, const TextOptions& options) {
  if (number == 0 || number > model.rules.findings.size())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no finding {}; the report has {}", number, model.rules.findings.size()),
                "run explain without --finding for the list");
  const Finding& finding = model.rules.findings[number - 1];
  std::string out = fmt::format("{:>2}  {}  {}\n", number, severity_tag(finding.severity, options.colour),
                                ink(finding.id, Ink::kBold, options.colour));
  const auto field = [&](std::string_view label, std::string_view text) {
    if (!text.empty()) out += pad(label, 12) + wrap(terminal_safe(text, 4000), options.width, 12, 12) + "\n";
  };
  field("what", finding.title);
  field("where", finding.range.empty() ? "the whole trace" : finding.range);
  field("why", finding.why);
  field("remedy", finding.remedy);
  std::string saving = saving_text(finding);
  if (saving.empty()) saving = "not estimated";
  if (!finding.saving_basis.empty()) saving += ": " + finding.saving_basis;
  field("saving", saving);
  if (!finding.group.empty()) {
    std::vector<std::string> others;
    for (size_t i = 0; i < model.rules.findings.size(); ++i)
      if (i + 1 != number && model.rules.findings[i].group == finding.group)
        others.push_back(fmt::format("{}", i + 1));
    if (!others.empty())
      field("",
            "the same time is counted in finding " + join(others, ", ") + ": these savings do not add up");
  }
  field("confidence", certainty_name(finding.confidence));
  if (const Rule* rule = find_rule(finding.id); rule && !rule->false_positives.empty())
    field("not true if", rule->false_positives);
  if (!finding.evidence.empty()) {
    out += fmt::format("evidence    {} of {}, with the event's place in the file, its time and its length\n",
                       finding.evidence.size(), group_digits(static_cast<int64_t>(finding.evidence_total)));
    for (const Evidence& evidence : finding.evidence)
      out += "  " + fit(event_line(*model.trace, evidence), options.width - 2) + "\n";
  }
  out += fmt::format("\nThe rule's page: attnscope rules {}\n", finding.id);
  return out;
}

Result<std::string> range_text(const ExplainModel& model, std::string_view name, const TextOptions& options) {
  const RangeStats* range = model.metrics->range(name);
  if (!range) {
    std::vector<std::string> known;
    for (const RangeStats& other : model.metrics->ranges)
      if (other.cls == EventClass::kOperator || other.cls == EventClass::kUserRange ||
          other.cls == EventClass::kSpan)
        known.emplace_back(model.trace->text(other.name));
    const std::string guess = closest(name, known);
    return fail(ErrorCode::kInvalidArgument, "the trace has no range or operator named " + std::string(name),
                guess.empty() ? "attnscope table lists the names" : "did you mean " + guess + "?");
  }
  const double calls = static_cast<double>(std::max<uint64_t>(1, range->calls));
  std::string out =
      fmt::format("{} · {}, {} on the host (self {}), median {} per call\n", terminal_safe(name, 80),
                  count(range->calls, "call", "calls"), time_ns(range->host_ns), time_ns(range->self_host_ns),
                  time_ns(std::max<int64_t>(0, range->median_host_ns)));
  const auto line = [&](std::string_view label, const trace::WorkSum& work) {
    out += fmt::format("{}{}, {} ({} per call)\n", pad(label, 16), work_text(work), time_ns(work.device_ns),
                       format_time_us(static_cast<double>(work.device_ns) / 1e3 / calls));
  };
  line("own thread", range->own_thread);
  line("process", range->process);
  const std::vector<KernelGroup> inside = kernels_inside(*model.metrics, range->name);
  if (!inside.empty()) {
    int64_t sum = 0;
    for (const KernelGroup& group : inside) sum += group.device_ns;
    out += "\nWhat it launched, on any thread\n" +
           kernel_table(model, inside, sum, std::max<size_t>(options.top, 20), options.width);
  }
  std::string findings;
  for (size_t i = 0; i < model.rules.findings.size(); ++i)
    if (model.rules.findings[i].range == name)
      findings += fmt::format("{:>2}  {}  {}\n", i + 1,
                              severity_tag(model.rules.findings[i].severity, options.colour),
                              wrap(terminal_safe(model.rules.findings[i].title, 400), options.width, 11, 11));
  if (!findings.empty()) out += "\nFindings here\n" + findings;
  return out;
}

std::string ranks_text(std::span<const RankSummary> ranks, const TextOptions& options) {
  const RankComparison comparison = compare_ranks(ranks);
  TextTable table;
  table.header = {"trace"};
  table.right = {false};
  for (const RankRow& row : comparison.rows) {
    table.header.push_back(row.figure);
    table.right.push_back(true);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    std::vector<std::string> cells{ranks[i].label};
    for (const RankRow& row : comparison.rows)
      cells.push_back(row.unit == "us"  ? format_time_us(row.values[i])
                      : row.unit == "%" ? fmt::format("{:.0f} %", row.values[i])
                                        : group_digits(static_cast<int64_t>(row.values[i])));
    table.rows.push_back(std::move(cells));
  }
  std::string out;
  if (!comparison.text.empty()) out += ink(comparison.text, Ink::kBold, options.colour) + "\n";
  return out + table.render(options.width);
}

}  // namespace attnscope::report
