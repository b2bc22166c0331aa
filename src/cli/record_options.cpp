#include "cli/record_options.h"

#include "cli/common.h"

#include <CLI/CLI.hpp>

namespace attnscope::cli {

std::optional<int> RecordOptions::parse(Context& context, const Arguments& arguments) {
  CLI::App app{
      "Records any CUDA program, without a change to it, into a trace that explain, Perfetto and other tools "
      "read.\n"
      "Kernels, copies, fills, launches and waits by CUPTI's activity records; NVTX ranges (torch's "
      "emit_nvtx)\n"
      "become host operators. The trace is written also when the program crashes or is interrupted.",
      "record"};
  app.add_option("-o,--output", output,
                 "the trace; .gz and .zst compress; further processes get their number in the name")
      ->check(not_empty);
  app.add_option("--ranges", ranges, "where host ranges come from")->check(CLI::IsMember({"nvtx", "none"}));
  app.add_option("--duration", duration, "stop recording after this long (5s, 250ms); the program runs on");
  app.add_option("--steps", steps, "NVTX range whose every occurrence is a step of the program");
  app.add_option("--flush-ms", flush_ms, "how often records leave the program")->check(CLI::Range(1, 10000));
  app.add_option("command", command, "the program and its arguments, after --")->required();
  app.positionals_at_end();
  if (const std::optional<int> done = cli::parse(context, app, arguments)) return done;
  if (!steps.empty() && ranges == "none")
    return print_error(context, Error{ErrorCode::kInvalidArgument,
                                      "--steps names an NVTX range, and --ranges none records none",
                                      "leave out --ranges none"});
  return std::nullopt;
}

}  // namespace attnscope::cli
