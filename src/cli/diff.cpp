// attnscope diff A B: two traces, or two results of compare --json.
#include "analysis/diff.h"

#include "analysis/metrics.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/inputs.h"
#include "report/text/diff_text.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

namespace attnscope::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxCompareBytes = size_t{64} << 20;

// The document when the file is a result of compare, nothing when it is anything else. Errors: kBadInput when
// it is a damaged one.
Result<std::optional<Json>> read_compare(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.find("attnscope.compare/") == std::string::npos || text.find("traceEvents") != std::string::npos)
    return std::nullopt;
  std::string rest(kMaxCompareBytes, '\0');
  file.read(rest.data(), static_cast<std::streamsize>(rest.size()));
  text.append(rest, 0, static_cast<size_t>(file.gcount()));
  Json document = Json::parse(text, nullptr, false);
  if (document.is_discarded() || !document.is_object() || !document.contains("variants") ||
      !document["variants"].is_array())
    return fail(ErrorCode::kBadInput, terminal_safe(path) + " is a damaged result of compare",
                "write it again: attnscope compare --json FILE");
  return std::optional(std::move(document));
}

double number(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : std::nan("");
}
std::string word(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

// Median with a deviation from the middle 80 %, which outliers do not move.
Estimate estimate_from(const Json& variant) {
  Estimate estimate;
  const auto at = variant.find("device_time_us");
  if (at == variant.end() || !at->is_object()) return estimate;
  const double p50 = number(*at, "p50"), p10 = number(*at, "p10"), p90 = number(*at, "p90"),
               n = number(*at, "samples");
  const auto is_time = [](double us) { return us >= 0 && us < 1e15; };  // thirty years; never NaN
  if (!is_time(p50)) return estimate;
  estimate.mean = p50;
  // Without a spread there is no interval to judge by, however many samples there were.
  const bool spread = is_time(p10) && is_time(p90) && p10 <= p90;
  estimate.samples = spread && n >= 1 && n < 1e15 ? static_cast<int64_t>(n) : 1;
  if (estimate.samples >= 2) estimate.deviation = 1.2533 * (p90 - p10) / 2.5631;
  return estimate;
}

Diff diff_compares(const Json& a, const Json& b, const DiffOptions& options) {
  std::map<std::string, std::pair<const Json*, const Json*>> variants;
  for (const Json& variant : a["variants"])
    if (variant.is_object()) variants[word(variant, "name")].first = &variant;
  for (const Json& variant : b["variants"])
    if (variant.is_object()) variants[word(variant, "name")].second = &variant;
  Diff diff;
  for (const auto& [name, sides] : variants) {
    DiffRow row;
    row.kind = DiffKind::kVariant;
    row.name = name;
    row.figure = "device time, median";
    if (sides.first) row.a = estimate_from(*sides.first);
    if (sides.second) row.b = estimate_from(*sides.second);
    judge(row, options);
    const std::string before = sides.first ? word(*sides.first, "status") : "absent";
    const std::string after = sides.second ? word(*sides.second, "status") : "absent";
    if (before != after) {
      row.note = before + " → " + after;
      // It worked and does not any more: no time, but the worst regression of all.
      if (before == "ok" && after != "absent") row.verdict = DiffVerdict::kSlower;
    }
    diff.rows.push_back(std::move(row));
  }
  return diff;
}

struct Options {
  std::string a, b;
  OutputFiles files;
  double threshold_percent = 5;
  double least_share = 1;
};

// What a cut file lacks would read as a saving.
Status refuse_cut(const LoadedTrace& loaded, const std::string& path) {
  if (!loaded.trace().truncated()) return {};
  return fail(ErrorCode::kBadInput, path + " was cut: what is missing would count as faster",
              "record it again; attnscope explain shows what is left");
}

Result<Diff> make_diff(const Options& options, const DiffOptions& diff_options) {
  ATTNSCOPE_ASSIGN(const std::optional<Json> a, read_compare(options.a));
  ATTNSCOPE_ASSIGN(const std::optional<Json> b, read_compare(options.b));
  if (a.has_value() != b.has_value())
    return fail(ErrorCode::kBadInput,
                fmt::format("{} is a result of compare, {} is not", a ? options.a : options.b,
                            a ? options.b : options.a),
                "give two traces, or two files of compare --json");
  if (a) {
    if (a->value("request", Json()) != b->value("request", Json()))
      return fail(ErrorCode::kBadInput, "the two results of compare answer different requests",
                  "compare the same shape, dtype and mask on both sides");
    return diff_compares(*a, *b, diff_options);
  }
  ATTNSCOPE_ASSIGN(const LoadedTrace trace_a, load_trace(options.a));
  ATTNSCOPE_ASSIGN(const LoadedTrace trace_b, load_trace(options.b));
  ATTNSCOPE_TRY(refuse_cut(trace_a, options.a));
  ATTNSCOPE_TRY(refuse_cut(trace_b, options.b));
  const Metrics metrics_a = compute_metrics(trace_a.trace(), trace_a.links());
  const Metrics metrics_b = compute_metrics(trace_b.trace(), trace_b.links());
  return diff_traces(metrics_a, metrics_b, diff_options);
}

int run_diff(Context& context, const Arguments& arguments) {
  Options options;
  CLI::App app{"Compares two traces, or two results of compare --json: ratios with their intervals.", "diff"};
  app.add_option("A", options.a, "Before: a trace or a result of compare --json")->required();
  app.add_option("B", options.b, "After: the same kind of file")->required();
  app.add_option("--threshold", options.threshold_percent,
                 "A change beyond this many percent counts (exit 1 when slower)")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 10000.0));
  app.add_option("--least-share", options.least_share, "Leave out kernels below this share of the time")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 100.0));
  options.files.add_to(app, OutputFiles::kJson);
  if (const std::optional<int> code = parse(context, app, arguments)) return *code;
  for (const double percent : {options.threshold_percent, options.least_share})
    if (!std::isfinite(percent))
      return print_error(
          context, Error{ErrorCode::kInvalidArgument, fmt::format("{} is not a number of percent", percent),
                         "e.g. --threshold 5"});
  const DiffOptions diff_options{options.threshold_percent / 100, options.least_share};
  const Result<Diff> diff = make_diff(options, diff_options);
  if (!diff) return print_error(context, diff.error());
  if (!options.files.takes_stdout())
    print_text(context,
               report::diff_text(*diff, options.a, options.b, diff_options.threshold,
                                 {static_cast<size_t>(context.terminal.width), context.terminal.colour, 5}));
  if (!options.files.json.empty()) {
    const Status written = write_output(
        context, options.files.json,
        report::diff_json(*diff, options.a, options.b, diff_options.threshold, ATTNSCOPE_VERSION));
    if (!written) return print_error(context, written.error());
  }
  return diff->regressed() ? 1 : 0;
}

}  // namespace

extern const Command diff_command{
    "diff", "two traces or results of compare: ratio, interval, verdict; exit 1 when slower",
    "attnscope diff before.json.gz after.json.gz --threshold 5", run_diff};

}  // namespace attnscope::cli
