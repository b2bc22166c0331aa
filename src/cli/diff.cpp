// attnscope diff A B: two traces, or two results of compare --json.
#include "analysis/diff.h"

#include "analysis/metrics.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/inputs.h"
#include "formats/byte_source.h"
#include "formats/chrome/reader.h"
#include "report/text/diff_text.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

namespace attnscope::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxCompareBytes = size_t{64} << 20;

// One of the two files: a result of compare, or else a trace.
struct Side {
  std::optional<Json> compare;
  std::optional<LoadedTrace> trace;
};

// Appends up to `most` bytes, fewer only at the end.
Status read_more(formats::ByteSource& source, size_t most, std::string& text) {
  const size_t end = text.size() + most;
  while (text.size() < end) {
    const size_t had = text.size();
    text.resize(std::min(end, had + (size_t{64} << 10)));
    ATTNSCOPE_ASSIGN(const size_t got, source.read(text.data() + had, text.size() - had));
    text.resize(had + got);
    if (got == 0) break;
  }
  return {};
}

// Read once, from the start: a pipe cannot be looked at twice. Errors: kBadInput when it is a damaged result
// of compare, those of a trace.
Result<Side> read_side(const std::string& path) {
  ATTNSCOPE_ASSIGN(std::unique_ptr<formats::ByteSource> source, formats::open_file(path));
  std::string text;
  ATTNSCOPE_TRY(read_more(*source, 4096, text));
  Side side;
  if (text.find("attnscope.compare/") == std::string::npos || text.find("traceEvents") != std::string::npos) {
    ATTNSCOPE_ASSIGN(trace::Trace trace,
                     formats::chrome::read_source(formats::put_back(std::move(text), std::move(source)),
                                                  path == "-" ? "standard input" : path));
    side.trace.emplace(std::move(trace));
    return side;
  }
  ATTNSCOPE_TRY(read_more(*source, kMaxCompareBytes, text));
  Json document = Json::parse(text, nullptr, false);
  if (document.is_discarded() || !document.is_object() || !document.contains("variants") ||
      !document["variants"].is_array())
    return fail(ErrorCode::kBadInput, terminal_safe(path) + " is a damaged result of compare",
                "write it again: attnscope compare --json FILE");
  side.compare = std::move(document);
  return side;
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
      row.note = fmt::format("{} → {}", before, after);
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
  bool least_share_given = false;
};

// What a cut file lacks would read as a saving.
Status refuse_cut(const LoadedTrace& loaded, const std::string& path) {
  if (!loaded.trace().truncated()) return {};
  return fail(ErrorCode::kBadInput, path + " was cut: what is missing would count as faster",
              "record it again; attnscope explain shows what is left");
}

Result<Diff> make_diff(const Options& options, const DiffOptions& diff_options) {
  ATTNSCOPE_TRY(one_stdin({options.a, options.b}));
  ATTNSCOPE_ASSIGN(const Side side_a, read_side(options.a));
  ATTNSCOPE_ASSIGN(const Side side_b, read_side(options.b));
  const auto& [a, trace_a] = side_a;
  const auto& [b, trace_b] = side_b;
  if (a.has_value() != b.has_value())
    return fail(ErrorCode::kBadInput,
                fmt::format("{} is a result of compare, {} is not", a ? options.a : options.b,
                            a ? options.b : options.a),
                "give two traces, or two files of compare --json");
  if (a) {
    if (options.least_share_given)
      return fail(ErrorCode::kInvalidArgument,
                  "--least-share is for kernels of traces; these are results of compare", "leave it out");
    if (a->value("request", Json()) != b->value("request", Json()))
      return fail(ErrorCode::kBadInput, "the two results of compare answer different requests",
                  "compare the same shape, dtype and mask on both sides");
    return diff_compares(*a, *b, diff_options);
  }
  ATTNSCOPE_TRY(refuse_cut(*trace_a, options.a));
  ATTNSCOPE_TRY(refuse_cut(*trace_b, options.b));
  const Metrics metrics_a = compute_metrics(trace_a->trace(), trace_a->links());
  const Metrics metrics_b = compute_metrics(trace_b->trace(), trace_b->links());
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
  options.least_share_given = app.count("--least-share") > 0;
  if (const Status places = check_outputs(options.files.places(), {options.a, options.b}); !places)
    return print_error(context, places.error());
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
