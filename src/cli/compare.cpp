// attnscope compare: runs the variants of one attention call and shows what really ran.
#include "compare/compare.h"

#include "compare/render.h"

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/compare_options.h"
#include "cli/compare_sweep.h"
#include "cli/compare_tune.h"
#include "formats/chrome/writer.h"
#include "profiler/export.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <iostream>
#include <ostream>

namespace attnscope::cli {
namespace {

constexpr const char* kExample = "attnscope compare --shape 8,16,1024,64 --dtype bf16 --causal";

// One line on stderr that is drawn over and over; nothing at all when stderr is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(Context& context) : context_(context) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(double done, std::string_view what) {
    if (!context_.terminal.live) return;
    constexpr int kWidth = 30;
    const auto filled = static_cast<int>(std::lround(done * kWidth));
    const bool utf8 = context_.terminal.utf8;
    std::string bar;
    for (int i = 0; i < kWidth; ++i) bar += i < filled ? (utf8 ? "█" : "#") : (utf8 ? "░" : ".");
    context_.err << fmt::format("\r\x1b[K{} {:3.0f} %  {}", bar, 100 * done, what) << std::flush;
    drawn_ = true;
  }
  void clear() {
    if (drawn_) context_.err << "\r\x1b[K" << std::flush;
    drawn_ = false;
  }

 private:
  Context& context_;
  bool drawn_ = false;
};

// Asks on stderr, so that stdout stays the result's. An empty line takes the proposal.
Result<compare::GuessSheet> ask(Context& context, const compare::CompareRequest& request,
                                const std::vector<std::string>& variants) {
  compare::GuessSheet sheet;
  sheet.source = "asked";
  const int formula = compare::formula_kernels(request.problem);
  context.err << fmt::format(
      "Guess first, then look. {}.\nHow many kernels will one forward run? (Enter: {}, the formula's "
      "steps)\n",
      compare::describe(request.problem), formula);
  const auto answer = [&](const std::string& question) -> Result<std::string> {
    context.err << question << std::flush;
    std::string line;
    if (!std::getline(std::cin, line)) {
      context.err << "\n";
      return fail(ErrorCode::kInvalidArgument, "--ask: stdin ended before the guess was complete",
                  "answer on the terminal, or give the guess with --guess FILE");
    }
    return line;
  };
  for (const std::string& name : variants) {
    ATTNSCOPE_ASSIGN(const std::string line, answer(fmt::format("  {} ", pad(name, 12))));
    int kernels = formula;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), kernels);
    if (!line.empty() && (error != std::errc{} || end != line.data() + line.size() || kernels < 0))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--ask: '{}' is not a number of kernels", terminal_safe(line, 40)));
    compare::Guess& guess = sheet.by_variant[name];
    guess.kernels = kernels;
    guess.copies = 0;
  }
  ATTNSCOPE_ASSIGN(sheet.fastest, answer("Which will be fastest? "));
  context.err << "\n";
  return sheet;
}

Status write_traces(const std::string& folder, const compare::CompareResult& result) {
  for (const compare::VariantResult& v : result.variants) {
    if (!v.ok()) continue;
    profiler::ExportOptions options;
    options.producer = "attnscope " ATTNSCOPE_VERSION;
    options.trace_name = fmt::format("{}: {}", v.name, compare::describe(result.problem));
    const trace::Trace trace = profiler::to_trace(v.recording, options);
    const trace::Links links = trace::Links::build(trace);
    ATTNSCOPE_TRY(formats::chrome::write_file(trace, links, folder + "/" + v.name + ".json"));
  }
  return {};
}

Status write_results(Context& context, const CompareOptions& options, const compare::CompareResult& result) {
  const OutputFiles& files = options.files;
  if (!options.trace_dir.empty()) ATTNSCOPE_TRY(write_traces(options.trace_dir, result));
  if (!files.json.empty()) ATTNSCOPE_TRY(write_output(context, files.json, compare::render_json(result)));
  if (!files.markdown.empty())
    ATTNSCOPE_TRY(write_output(context, files.markdown, compare::render_markdown(result)));
  if (!files.html.empty()) ATTNSCOPE_TRY(write_output(context, files.html, compare::render_html(result)));
  if (!files.takes_stdout())
    print_text(context, compare::render_text(result, {context.terminal.colour, context.terminal.width}));
  return {};
}

// 0 when all is well; 1 when a stated guess broke or a result was wrong; 4 when nothing could run.
int verdict_code(const CompareOptions& options, const compare::CompareResult& result) {
  if (!result.fastest()) {
    for (const auto& v : result.variants)
      if (v.status == compare::VariantStatus::kFailed) return 1;
    return 4;
  }
  for (const compare::VariantResult& v : result.variants) {
    if (v.status == compare::VariantStatus::kFailed) return 1;
    if (!options.guess.empty() && !v.breaks.empty()) return 1;
  }
  const bool wrong_favourite = !options.guess.empty() && !result.guessed_fastest.empty() &&
                               result.guessed_fastest != result.fastest()->name;
  return wrong_favourite ? 1 : 0;
}

Result<int> run_compare(Context& context, const CompareOptions& options) {
  if (!options.tune && !options.tune_output.empty())
    return fail(ErrorCode::kInvalidArgument, "--tune-output says where --tune writes, and there is no --tune",
                "add --tune");
  ATTNSCOPE_TRY(check_outputs(options));
  if (options.tune || !options.sweep.empty()) {
    ProgressLine line(context);
    const SweepProgress progress = [&](double done, std::string_view what) {
      done < 1 ? line.show(done, what) : line.clear();
    };
    return options.tune ? run_tune(context, options, progress) : run_sweep(context, options, progress);
  }
  if (!options.resume.empty())
    return fail(ErrorCode::kInvalidArgument, "--resume is the log of a sweep, and there is no --sweep",
                "add --sweep seq=512..16384x2");
  ATTNSCOPE_ASSIGN(const auto device, open_device(options));
  ATTNSCOPE_ASSIGN(compare::CompareRequest request, to_request(options, device->device().type));
  ATTNSCOPE_TRY(compare::check(*device, request));
  if (options.ask) {
    const auto variants =
        request.variants.empty() ? compare::known_variants(device->device().type) : request.variants;
    ATTNSCOPE_ASSIGN(request.guess, ask(context, request, variants));
    ATTNSCOPE_TRY(compare::check(*device, request));
  }
  ProgressLine progress(context);
  ATTNSCOPE_ASSIGN(compare::CompareResult result,
                   compare::compare(*device, request,
                                    [&](double done, std::string_view what) { progress.show(done, what); }));
  progress.clear();
  if (options.device == "auto" && device->device().is_cpu())
    result.device_note = fmt::format("on the CPU: no usable GPU ({})", compare::cuda_state());
  ATTNSCOPE_TRY(write_results(context, options, result));
  return verdict_code(options, result);
}

int run(Context& context, const Arguments& arguments) {
  CLI::App app("Run attention variants on this machine and show what really ran.", "compare");
  CompareOptions options;
  options.add_to(app);
  if (const auto code = parse(context, app, arguments)) return *code;
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0) options.given.push_back(option->get_name());
  const Result<int> code = run_compare(context, options);
  return code ? *code : print_error(context, code.error());
}

}  // namespace

extern const Command compare_command;
const Command compare_command{"compare", "Run attention variants and show what really ran", kExample, run};

}  // namespace attnscope::cli
