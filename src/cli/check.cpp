// attnscope check TRACE GUESS: holds a guess against a trace; exit code 1 when it does not hold.

#include "analysis/check.h"

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "formats/chrome/reader.h"
#include "trace/link.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <ostream>

namespace attnscope::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string verdict_text(const Context& context, Verdict verdict) {
  const std::string word = verdict == Verdict::kHeld     ? "held"
                           : verdict == Verdict::kBroken ? "BROKEN"
                                                         : "UNKNOWN";
  std::string padded = pad(word, 8);
  if (!context.terminal.colour || verdict == Verdict::kHeld) return padded;
  return "\x1b[1;31m" + padded + "\x1b[0m";
}

// "(events 212, 391, 570)", "(events 1, 2, 3, … 40 in all)".
std::string events_text(const CheckLine& line) {
  if (line.evidence.empty()) return {};
  std::vector<uint64_t> ordinals;
  for (const Evidence& e : line.evidence) {
    if (ordinals.size() == 6) break;
    ordinals.push_back(e.ordinal);
  }
  const std::string more =
      line.evidence_total > ordinals.size() ? fmt::format(", … {} in all", line.evidence_total) : "";
  return fmt::format("   (event{} {}{})", line.evidence_total == 1 ? "" : "s", fmt::join(ordinals, ", "),
                     more);
}

std::string text_of(const Context& context, const CheckReport& report) {
  size_t name_width = 8, text_width = 12;
  for (const CheckSubject& subject : report.subjects) {
    name_width = std::max(name_width, std::min<size_t>(display_width(terminal_safe(subject.name, 40)), 40));
    for (const CheckLine& line : subject.lines)
      if (line.key != "name")
        text_width = std::max(text_width, std::min<size_t>(display_width(line.text), 36));
  }
  std::string text;
  for (const CheckSubject& subject : report.subjects) {
    bool first = true;
    for (const CheckLine& line : subject.lines) {
      text += fmt::format("{}   {}  {} {}{}\n", pad(first ? terminal_safe(subject.name, 40) : "", name_width),
                          pad(line.key == "name" ? "" : terminal_safe(line.text, 120), text_width),
                          verdict_text(context, line.verdict), line.seen, events_text(line));
      first = false;
    }
  }
  const uint64_t all = report.held + report.broken + report.unknown;
  if (report.all_held()) return text + fmt::format("all {} held\n", all);
  text += fmt::format("{} of {} broken", report.broken, all);
  if (report.unknown > 0) text += fmt::format(", {} cannot be told from this trace", report.unknown);
  return text + "\n";
}

Json json_of(const CheckReport& report, const std::string& trace_path, const std::string& guess_path) {
  Json subjects = Json::array();
  for (const CheckSubject& subject : report.subjects) {
    Json lines = Json::array();
    for (const CheckLine& line : subject.lines) {
      Json evidence = Json::array();
      for (const Evidence& e : line.evidence) evidence.push_back({{"ordinal", e.ordinal}, {"ns", e.ns}});
      lines.push_back({{"key", line.key},
                       {"guess", terminal_safe(line.text, 4096)},
                       {"line", line.line},
                       {"verdict", verdict_name(line.verdict)},
                       {"seen", line.seen},
                       {"evidence", evidence},
                       {"evidence_total", line.evidence_total}});
    }
    subjects.push_back(
        {{"name", terminal_safe(subject.name, 4096)}, {"calls", subject.calls}, {"lines", lines}});
  }
  return {{"schema", "attnscope.check/1"},
          {"trace", terminal_safe(trace_path, 4096)},
          {"guess", terminal_safe(guess_path, 4096)},
          {"holds", report.all_held()},
          {"held", report.held},
          {"broken", report.broken},
          {"unknown", report.unknown},
          {"subjects", subjects}};
}

int run(Context& context, const Arguments& arguments) {
  std::string trace_path, guess_path;
  OutputFiles files;
  CLI::App app("Holds a guess against a trace, line by line. Exit code 1 when it does not hold.", "check");
  app.add_option("TRACE", trace_path, "a torch.profiler or attnscope trace, or - for stdin")->required();
  app.add_option("GUESS", guess_path, "a TOML file; explain --write-guess makes one")->required();
  files.add_to(app, OutputFiles::kJson);
  if (const std::optional<int> done = parse(context, app, arguments)) return *done;
  if (const Status places = check_outputs(files.places(), {trace_path, guess_path}); !places)
    return print_error(context, places.error());

  const Result<Guess> guess = read_guess_file(guess_path);
  if (!guess) return print_error(context, guess.error());
  const Result<trace::Trace> t = formats::chrome::read_file(trace_path);
  if (!t) return print_error(context, t.error());
  const trace::Links links = trace::Links::build(*t);
  const CheckReport report = check_guess(compute_metrics(*t, links), *guess);
  if (!files.json.empty())
    if (const Status written =
            write_output(context, files.json, json_of(report, trace_path, guess_path).dump(2) + "\n");
        !written)
      return print_error(context, written.error());
  if (!files.takes_stdout()) print_text(context, text_of(context, report));
  return report.all_held() ? 0 : 1;
}

}  // namespace

extern const Command check_command;
const Command check_command{"check", "holds a guess against a trace; exit code 1 when it does not hold",
                            "attnscope check trace.json.gz guess.toml", run};

}  // namespace attnscope::cli
