#include "cli/compare_sweep.h"

#include "compare/sweep.h"

#include "base/text.h"

#include <fmt/format.h>

namespace attnscope::cli {
namespace {

Status write_sweep(Context& context, const OutputFiles& files, const compare::SweepResult& result) {
  if (!files.json.empty()) ATTNSCOPE_TRY(write_output(context, files.json, compare::render_json(result)));
  if (!files.markdown.empty())
    ATTNSCOPE_TRY(write_output(context, files.markdown, compare::render_markdown(result)));
  if (!files.html.empty()) ATTNSCOPE_TRY(write_output(context, files.html, compare::render_html(result)));
  if (!files.takes_stdout()) print_text(context, compare::render_text(result));
  return {};
}

Status refuse_together(const CompareOptions& options) {
  const auto clash = [](bool given, std::string_view option) -> Status {
    if (!given) return {};
    return fail(ErrorCode::kInvalidArgument, fmt::format("--sweep does not go with {}", option),
                "a sweep is many comparisons; ask that of one of its points");
  };
  ATTNSCOPE_TRY(clash(options.ask, "--ask"));
  ATTNSCOPE_TRY(clash(!options.guess.empty(), "--guess"));
  ATTNSCOPE_TRY(clash(!options.trace_dir.empty(), "--trace-dir"));
  return {};
}

// A mask or lengths that fit one size cannot fit all: every point is checked before the first runs.
Status check_points(const compare::BenchDevice& device, const compare::CompareRequest& request,
                    const std::vector<compare::Problem>& problems) {
  for (const compare::Problem& problem : problems) {
    compare::CompareRequest one = request;
    one.problem = problem;
    ATTNSCOPE_TRY(compare::check(device, one));
  }
  return {};
}

// All that a measurement depends on: a log of anything else is another sweep's.
std::string sweep_identity(const compare::BenchDevice& device, const CompareOptions& options,
                           const compare::CompareRequest& request) {
  const compare::MeasureOptions& m = request.measure;
  return fmt::format("{} · {} · {} · {} · seed {} · threads {} · rounds {} · min-time {}{}", device.name(),
                     compare::as_options(request.problem), join(options.sweep, " "),
                     join(request.variants, ","), request.problem.seed, request.problem.threads, m.rounds,
                     m.min_time_s, m.cold ? " · cold" : "");
}

}  // namespace

Result<int> run_sweep(Context& context, const CompareOptions& options, const SweepProgress& progress) {
  ATTNSCOPE_TRY(refuse_together(options));
  ATTNSCOPE_ASSIGN(const std::vector<compare::SweepAxis> axes, compare::parse_sweep(options.sweep));
  ATTNSCOPE_ASSIGN(const auto device, open_device(options));
  ATTNSCOPE_ASSIGN(compare::CompareRequest request, to_request(options, device->device().type));
  ATTNSCOPE_TRY(compare::check_axes(request.problem, axes));
  const std::vector<compare::Problem> problems = compare::sweep_problems(request.problem, axes);
  ATTNSCOPE_TRY(check_points(*device, request, problems));
  request.measure.peaks = false;
  request.keep_recordings = false;

  const compare::Problem base = request.problem;
  const std::string identity = sweep_identity(*device, options, request);
  ATTNSCOPE_ASSIGN(compare::SweepLog log, compare::SweepLog::open(options.resume, identity));
  for (size_t i = 0; i < problems.size(); ++i) {
    const std::string at = compare::point_name(axes, i);
    if (log.has(at)) continue;
    request.problem = problems[i];
    const double before = static_cast<double>(i) / static_cast<double>(problems.size());
    ATTNSCOPE_ASSIGN(const compare::CompareResult result,
                     compare::compare(*device, request, [&](double done, std::string_view what) {
                       progress(before + done / static_cast<double>(problems.size()),
                                fmt::format("{} {}", at, what));
                     }));
    ATTNSCOPE_TRY(log.add(
        compare::points_of(result, at, compare::series_suffix(axes, i), compare::first_value(axes, i))));
  }
  progress(1, "");
  compare::SweepResult result;
  result.device_name = device->name();
  result.base = base;
  result.axes = axes;
  result.points = log.points();
  ATTNSCOPE_TRY(write_sweep(context, options.files, result));
  for (const compare::SweepPoint& p : result.points)
    if (p.ok) return 0;
  return 4;
}

}  // namespace attnscope::cli
