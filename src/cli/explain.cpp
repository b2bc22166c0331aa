// attnscope explain: what ran, what was hidden, what the odd figures mean, what to change.
#include "analysis/check.h"
#include "analysis/metrics.h"
#include "analysis/rule.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/inputs.h"
#include "formats/chrome/repair.h"
#include "formats/chrome/writer.h"
#include "report/explain_model.h"
#include "report/html/page.h"
#include "report/html/timeline.h"
#include "report/json/explain_json.h"
#include "report/markdown/explain_markdown.h"
#include "report/ranks.h"
#include "report/text/explain_text.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>

namespace attnscope::cli {
namespace {

struct ExplainOptions {
  std::vector<std::string> inputs;
  OutputFiles files;
  std::optional<int64_t> finding;
  size_t top = 5;
  std::string range;
  std::vector<std::string> fail_on, thresholds;
  std::string repair, guess;
};

// Severities and rule ids that make the exit code 1.
struct FailOn {
  std::optional<Severity> severity;
  std::vector<std::string> rules;
  bool hit(const Finding& finding) const {
    return (severity && finding.severity >= *severity) ||
           std::find(rules.begin(), rules.end(), finding.id) != rules.end();
  }
};

Result<FailOn> parse_fail_on(const std::vector<std::string>& words) {
  FailOn fail_on;
  std::vector<std::string> known{"note", "warning", "error"};
  for (const Rule* rule : rules()) known.emplace_back(rule->id);
  for (const std::string& word : words) {
    if (const std::optional<Severity> severity = severity_from(word)) {
      fail_on.severity = fail_on.severity ? std::min(*fail_on.severity, *severity) : *severity;
    } else if (find_rule(word)) {
      fail_on.rules.push_back(word);
    } else {
      const std::string guess = closest(word, known);
      return fail(ErrorCode::kInvalidArgument, "--fail-on takes a severity or a rule; there is no " + word,
                  guess.empty() ? "severities: note, warning, error; rules: attnscope rules"
                                : "did you mean " + guess);
    }
  }
  return fail_on;
}

// "hidden-copy.min_bytes=4096"
Result<std::vector<ThresholdValue>> parse_thresholds(const std::vector<std::string>& words) {
  std::vector<ThresholdValue> values;
  std::vector<std::string> known;
  for (const Rule* rule : rules())
    for (const Threshold& threshold : rule->thresholds)
      known.push_back(fmt::format("{}.{}", rule->id, threshold.name));
  for (const std::string& word : words) {
    const size_t equals = std::min(word.find('='), word.size());
    ThresholdValue value{word.substr(0, equals), 0};
    if (std::find(known.begin(), known.end(), value.name) == known.end()) {
      const std::string guess = closest(value.name, known);
      return fail(ErrorCode::kInvalidArgument,
                  "--set: there is no threshold " + terminal_safe(value.name, 80),
                  guess.empty() ? "attnscope rules RULE lists those of a rule" : "did you mean " + guess);
    }
    const std::string text = equals == word.size() ? "" : word.substr(equals + 1);
    char* end = nullptr;
    value.value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !std::isfinite(value.value) || value.value < 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--set {}: '{}' is not a number from 0", value.name, terminal_safe(text, 40)),
                  fmt::format("e.g. --set {}=10", value.name));
    values.push_back(std::move(value));
  }
  return values;
}

// A page carries its trace when that leaves it quick to open.
constexpr size_t kLargestEmbeddedTrace = 100'000;  // events

report::Page html_page(const report::ExplainModel& model, const LoadedTrace& loaded, std::string json) {
  report::Page page;
  page.kind = report::PageKind::kExplain;
  page.version = ATTNSCOPE_VERSION;
  page.verdict = model.verdict.text;
  page.subtitle = model.source + (model.device.empty() ? "" : " · " + model.device);
  page.method =
      "Read from a trace: times are the profiler's, device work belongs to the range that launched it.";
  page.result_json = std::move(json);
  const auto [begin, end] = report::typical_step(*model.metrics);
  page.timelines.push_back(report::make_timeline(*model.metrics, "one step", begin, end));
  if (loaded.trace().size() > kLargestEmbeddedTrace) return page;
  if (auto bytes = formats::chrome::gzip_bytes(loaded.trace(), loaded.links()))
    page.traces.push_back({"this trace", "trace.json.gz", std::move(*bytes)});
  return page;
}

Result<LoadedTrace> load(const std::string& path, const std::string& repaired) {
  if (repaired.empty()) return load_trace(path);
  ATTNSCOPE_ASSIGN(trace::Trace trace, formats::chrome::repair_file(path, repaired));
  return LoadedTrace(std::move(trace));
}

// One file, from reading to reports.
struct OneReport {
  report::RankSummary summary;
  std::string json, markdown;
  bool failed = false;  // --fail-on
};

Result<OneReport> explain_one(Context& context, const std::string& path, const ExplainOptions& options,
                              const FailOn& fail_on, bool several) {
  ATTNSCOPE_ASSIGN(const LoadedTrace loaded, load(path, options.repair));
  const Metrics metrics = compute_metrics(loaded.trace(), loaded.links());
  RuleOptions rule_options;
  ATTNSCOPE_ASSIGN(rule_options.thresholds, parse_thresholds(options.thresholds));
  const report::ExplainModel model =
      report::make_explain_model(path, metrics, run_rules(metrics, rule_options));
  const report::TextOptions text{static_cast<size_t>(context.terminal.width), context.terminal.colour,
                                 options.top};
  OneReport one;
  one.summary = report::summarise(model);
  for (const Finding& finding : model.rules.findings) one.failed |= fail_on.hit(finding);
  if (!options.files.json.empty() || !options.files.html.empty())
    one.json = report::explain_json(model, ATTNSCOPE_VERSION);
  if (!options.files.markdown.empty()) one.markdown = report::explain_markdown(model, text);
  if (!options.files.html.empty() && !several)
    ATTNSCOPE_TRY(
        write_output(context, options.files.html, report::render_html(html_page(model, loaded, one.json))));
  if (!options.guess.empty()) {
    ATTNSCOPE_ASSIGN(const std::string guess, write_guess(metrics));
    ATTNSCOPE_TRY(write_output(context, options.guess, guess));
  }
  if (options.files.takes_stdout() || options.repair == "-" || options.guess == "-") return one;
  if (options.finding) {
    ATTNSCOPE_ASSIGN(const std::string page,
                     report::finding_text(model, static_cast<size_t>(*options.finding), text));
    print_text(context, page);
  } else if (!options.range.empty()) {
    ATTNSCOPE_ASSIGN(const std::string page, report::range_text(model, options.range, text));
    print_text(context, page);
  } else {
    print_text(context, report::explain_text(model, text));
  }
  return one;
}

// The exit code: 1 as --fail-on asks, that of the last trace of several that could not be read.
Result<int> explain_all(Context& context, const ExplainOptions& options) {
  if (options.finding && *options.finding < 1)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--finding {}: findings count from 1", *options.finding),
                "the report without --finding lists them");
  const bool page = options.finding || !options.range.empty();
  if (page && (options.files.takes_stdout() || options.repair == "-" || options.guess == "-"))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} prints to stdout, which another output takes",
                            options.finding ? "--finding" : "--range"),
                "give that output a file");
  ATTNSCOPE_ASSIGN(const FailOn fail_on, parse_fail_on(options.fail_on));
  ATTNSCOPE_TRY(parse_thresholds(options.thresholds));
  ATTNSCOPE_ASSIGN(const std::vector<std::string> paths, expand_inputs(options.inputs));
  const bool several = paths.size() > 1;
  for (const auto& [option, file] :
       {std::pair("--html", &options.files.html), std::pair("--repair", &options.repair),
        std::pair("--write-guess", &options.guess)})
    if (several && !file->empty())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} takes one trace; these are {}", option, paths.size()),
                  "run it once per trace");
  std::vector<OutputPlace> places = options.files.places();
  places.push_back({"--repair", options.repair});
  places.push_back({"--write-guess", options.guess});
  ATTNSCOPE_TRY(check_outputs(places, paths));
  std::vector<report::RankSummary> ranks;
  std::vector<std::string> documents;
  std::string markdown;
  bool failed = false;
  int bad = 0;
  for (const std::string& path : paths) {
    Result<OneReport> one = explain_one(context, path, options, fail_on, several);
    if (!one) {
      if (!several) return tl::unexpected(one.error());
      // One bad rank does not hide the others; the exit code tells.
      if (one.error().message.find(path) == std::string::npos)
        one.error().message = path + ": " + one.error().message;
      bad = print_error(context, one.error());
      continue;
    }
    if (several && !options.files.takes_stdout()) context.out << '\n';
    ranks.push_back(std::move(one->summary));
    documents.push_back(std::move(one->json));
    markdown += one->markdown;
    failed |= one->failed;
  }
  if (ranks.empty()) return bad;
  const report::RankComparison comparison = report::compare_ranks(ranks);
  if (several && !options.files.takes_stdout())
    print_text(context, report::ranks_text(ranks, {static_cast<size_t>(context.terminal.width),
                                                   context.terminal.colour, options.top}));
  if (!options.files.json.empty())
    ATTNSCOPE_TRY(write_output(
        context, options.files.json,
        several ? report::explain_ranks_json(documents, comparison, ATTNSCOPE_VERSION) : documents[0]));
  if (!options.files.markdown.empty()) ATTNSCOPE_TRY(write_output(context, options.files.markdown, markdown));
  return bad != 0 ? bad : failed ? 1 : 0;
}

int run_explain(Context& context, const Arguments& arguments) {
  ExplainOptions options;
  CLI::App app{"Explains a trace: what ran, what was hidden, what it cost, what to change.", "explain"};
  app.add_option("TRACE", options.inputs, "Trace files (.json, .gz, .zst), folders of them, or - for stdin")
      ->required();
  CLI::Option* const finding =
      app.add_option("--finding", options.finding, "Why, evidence, remedy and basis of one finding")
          ->type_name("N")
          ->check(whole_number);
  app.add_option("--top", options.top, "Rows of the tables; twice as many findings")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--range", options.range, "Look at one range or operator")
      ->type_name("NAME")
      ->check(not_empty)
      ->excludes(finding);
  app.add_option("--fail-on", options.fail_on,
                 "Exit with 1 on a finding of this severity or rule (may be repeated)")
      ->type_name("SEVERITY|RULE")
      ->allow_extra_args(false);
  app.add_option("--set", options.thresholds, "Another threshold of a rule (may be repeated)")
      ->type_name("RULE.THRESHOLD=VALUE")
      ->allow_extra_args(false);
  as_output(app.add_option("--repair", options.repair,
                           "Write the trace as clean, strict JSON with all that it holds (.gz and .zst "
                           "compress)")
                ->type_name("OUT"));
  as_output(app.add_option("--write-guess", options.guess,
                           "Write the guess that this trace fulfils, to hold later ones against")
                ->type_name("FILE"));
  options.files.add_to(app, OutputFiles::kJson | OutputFiles::kMarkdown | OutputFiles::kHtml);
  if (const std::optional<int> code = parse(context, app, arguments)) return *code;
  const Result<int> code = explain_all(context, options);
  return code ? *code : print_error(context, code.error());
}

}  // namespace

extern const Command explain_command{"explain",
                                     "what a trace shows: what ran, what was hidden, what to change",
                                     "attnscope explain trace.json.gz", run_explain};

}  // namespace attnscope::cli
