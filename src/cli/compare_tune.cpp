#include "cli/compare_tune.h"

#include "compare/tune.h"

#include "attention/plan_cache.h"
#include "base/cache_folder.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

namespace attnscope::cli {
namespace {

Status refuse_together(const CompareOptions& o) {
  constexpr std::array<std::string_view, 6> kWith{"--tune",     "--tune-output", "--device",
                                                  "--min-time", "--threads",     "--json"};
  for (const std::string& option : o.given)
    if (std::find(kWith.begin(), kWith.end(), option) == kWith.end())
      return fail(ErrorCode::kInvalidArgument, fmt::format("--tune does not go with {}", option),
                  "it measures a grid of its own; --device, --threads, --min-time, --tune-output and --json "
                  "go with it");
  return {};
}

// The user's table, where `auto` looks for it, or the file that was asked for.
Result<std::string> keep(Context& context, const CompareOptions& options, const compare::TuneResult& result) {
  const std::string text = write_order_table(result.table);
  if (!options.tune_output.empty()) {
    ATTNSCOPE_TRY(write_output(context, options.tune_output, text));
    return options.tune_output;
  }
  ATTNSCOPE_ASSIGN(std::string path, order_path(result.table.device));
  ATTNSCOPE_TRY(make_cache_folder(std::filesystem::path(path).parent_path().string()));
  ATTNSCOPE_TRY(replace_file(path, text));
  forget_measured_orders();
  plan_cache().clear();
  return path;
}

}  // namespace

Result<int> run_tune(Context& context, const CompareOptions& options, const SweepProgress& progress) {
  ATTNSCOPE_TRY(refuse_together(options));
  ATTNSCOPE_ASSIGN(const auto device, open_device(options));
  ATTNSCOPE_ASSIGN(const compare::CompareRequest given, to_request(options, device->device().type));
  compare::TuneOptions tuning;
  if (!options.min_time.empty()) tuning.min_time_s = given.measure.min_time_s;
  ATTNSCOPE_ASSIGN(const compare::TuneResult result, compare::tune(*device, tuning, progress));
  progress(1, "");
  if (result.table.points.empty())
    return fail(ErrorCode::kUnavailable, "no backend took any point of the grid", "see: attnscope doctor");
  ATTNSCOPE_ASSIGN(const std::string path, keep(context, options, result));
  if (!options.files.json.empty())
    ATTNSCOPE_TRY(write_output(context, options.files.json, compare::render_json(result, path)));
  if (!options.files.takes_stdout() && options.tune_output != "-") {
    print_text(context, compare::render_text(result));
    print_text(context,
               fmt::format("\nkept in {}\n{}", terminal_safe(path),
                           options.tune_output.empty()
                               ? "auto goes by it from now on; ATTNSCOPE_ORDER=off returns to the default\n"
                               : fmt::format("to go by it: ATTNSCOPE_ORDER={}\n", terminal_safe(path))));
  }
  return 0;
}

}  // namespace attnscope::cli
