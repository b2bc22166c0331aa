// attnscope table: the table that torch.profiler prints, from the trace alone; or ours of outermost calls.
#include "analysis/table.h"

#include "analysis/metrics.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/inputs.h"
#include "report/json/table_json.h"
#include "report/text/torch_table.h"

#include <CLI/CLI.hpp>

#include <limits>
#include <optional>

namespace attnscope::cli {
namespace {

constexpr size_t kNameWidth = 55;  // as torch's

struct Options {
  std::string input;
  OutputFiles files;
  std::string sort = "self_device_time_total";
  int64_t rows = 100;
  std::optional<size_t> name_width;
  bool by_shape = false;
  bool outermost = false;
};

Result<std::string> torch_style(const LoadedTrace& loaded, const Options& options, TableSort sort,
                                size_t rows, std::string& json) {
  TableOptions table_options{sort, options.by_shape};
  Table table = make_table(loaded.trace(), loaded.links(), table_options);
  // A trace without a device has nothing to sort by there.
  if (!table.has_device_time && sort == TableSort::kSelfDeviceTimeTotal) {
    table_options.sort = TableSort::kSelfCpuTimeTotal;
    table = make_table(loaded.trace(), loaded.links(), table_options);
  }
  const bool by_memory = sort > TableSort::kCount && sort != TableSort::kFlops;
  if ((by_memory && !table.has_memory) || (sort == TableSort::kFlops && !table.has_flops))
    return fail(ErrorCode::kBadInput, "the trace has nothing to sort by " + options.sort,
                by_memory ? "record it with profile_memory=True" : "traces of attnscope record operations");
  if (!options.files.json.empty()) json = report::table_json(table, options.input, rows, ATTNSCOPE_VERSION);
  return report::torch_table(table, {rows, options.name_width.value_or(kNameWidth), 80});
}

Status make(Context& context, const Options& options) {
  ATTNSCOPE_ASSIGN(const TableSort sort, parse_table_sort(options.sort));
  if (options.rows < -1 || options.rows == 0)
    return fail(ErrorCode::kInvalidArgument,
                "--rows takes a number from 1; got " + std::to_string(options.rows), "--rows -1 prints all");
  if (options.outermost && options.by_shape)
    return fail(ErrorCode::kInvalidArgument, "--by-shape goes with torch's table, not with --outermost",
                "leave one of them out");
  if (options.outermost && options.name_width)
    return fail(ErrorCode::kInvalidArgument, "--name-width goes with torch's table, not with --outermost",
                "leave one of them out");
  if (options.outermost && sort > TableSort::kCount)
    return fail(ErrorCode::kInvalidArgument,
                "--outermost has no memory and no operations to sort by " + options.sort,
                "leave --outermost out, or sort by a time or count");
  ATTNSCOPE_TRY(check_outputs(options.files.places(), {options.input}));
  const size_t rows =
      options.rows < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(options.rows);
  ATTNSCOPE_ASSIGN(const LoadedTrace loaded, load_trace(options.input));
  std::string text, json;
  if (options.outermost) {
    const Metrics metrics = compute_metrics(loaded.trace(), loaded.links());
    text = report::outermost_table(metrics, sort, {rows, static_cast<size_t>(context.terminal.width)});
    if (!options.files.json.empty())
      json = report::outermost_json(metrics, sort, options.input, rows, ATTNSCOPE_VERSION);
  } else {
    ATTNSCOPE_ASSIGN(text, torch_style(loaded, options, sort, rows, json));
  }
  if (!options.files.takes_stdout()) print_text(context, text);
  if (!options.files.json.empty()) ATTNSCOPE_TRY(write_output(context, options.files.json, json));
  return {};
}

int run_table(Context& context, const Arguments& arguments) {
  Options options;
  CLI::App app{"Prints the table of torch.profiler from a trace, by its rules; --outermost prints ours.",
               "table"};
  app.add_option("TRACE", options.input, "A trace file, or - for stdin")->required();
  app.add_option("--sort", options.sort,
                 "Sort key in torch's words: self_cuda_time_total, cpu_time_total, count, none ...")
      ->type_name("KEY");
  app.add_option("--rows", options.rows, "Number of rows, -1 for all")->type_name("N")->check(whole_number);
  app.add_option("--name-width", options.name_width, "Columns for names, as torch's max_name_column_width")
      ->type_name("N")
      ->check(CLI::Range(4, 10000));
  app.add_flag("--by-shape", options.by_shape, "Group by input shapes too");
  app.add_flag("--outermost", options.outermost,
               "Outermost calls with what was launched inside them, on their own thread and on others");
  options.files.add_to(app, OutputFiles::kJson);
  if (const std::optional<int> code = parse(context, app, arguments)) return *code;
  const Status done = make(context, options);
  return done ? 0 : print_error(context, done.error());
}

}  // namespace

extern const Command table_command{"table", "the table of torch.profiler, from a trace alone",
                                   "attnscope table trace.json.gz --sort self_cuda_time_total", run_table};

}  // namespace attnscope::cli
