// attnscope warm: compiles what the given shapes will need into the kernel cache, also for a GPU that is not
// here.
#include "backends/cuda_jit/families.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/compare_options.h"
#include "cli/warm_options.h"
#include "cuda/device.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>

namespace attnscope::cli {
namespace {

enum class State { kCompiled, kCached, kNotNeeded, kFailed };
std::string_view state_name(State state) {
  switch (state) {
    case State::kCompiled: return "compiled";
    case State::kCached: return "cached";
    case State::kNotNeeded: return "not needed";
    case State::kFailed: return "failed";
  }
  return "?";
}

// One kernel for one shape, dtype and mask.
struct Row {
  std::string shape, dtype, mask, backend, instance, compiler, path, note;
  State state = State::kNotNeeded;
  double seconds = 0;
  size_t bytes = 0;
};

// "sm_90a" of the GPU that is here; the trailing letter is what its own instructions need.
Result<std::string> target_arch(const WarmOptions& options) {
  std::vector<std::string> known;
  for (const cuda::JitFamily& family : cuda::jit_families()) known.emplace_back(family.arch);
  std::string wanted = options.arch;
  if (wanted.empty()) {
    if (const std::string reason = cuda::unavailable_reason(); !reason.empty())
      return fail(ErrorCode::kUnavailable, "there is no GPU to compile for: " + reason,
                  fmt::format("name one: --arch {}", known.front()));
    ATTNSCOPE_ASSIGN(const cuda::DeviceInfo* info, cuda::device_info(0));
    wanted = fmt::format("sm_{}{}", info->sm(), info->sm() >= 90 ? "a" : "");
  }
  if (std::find(known.begin(), known.end(), wanted) != known.end()) return wanted;
  return fail(options.arch.empty() ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument,
              fmt::format("no kernel is compiled at run time for {}", terminal_safe(wanted, 40)),
              "known: " + join(known, ", "));
}

// The problem as `compare` reads it, its tensors without data.
Result<Request> request_of(const std::string& shape, const std::string& dtype, bool causal) {
  CompareOptions options;
  options.shape = shape;
  options.dtype = dtype;
  options.causal_given = true;
  options.causal = causal ? "top-left" : "none";
  ATTNSCOPE_ASSIGN(const compare::CompareRequest parsed, to_request(options, DeviceType::kCuda));
  ATTNSCOPE_ASSIGN(Request request, compare::request_shape(parsed.problem));
  for (TensorView* view : {&request.q, &request.k, &request.v}) view->device = {DeviceType::kCuda, 0};
  return request;
}

Row warm_one(const cuda::JitFamily& family, const Request& request, const std::string& shape) {
  Row row;
  row.shape = shape;
  row.dtype = dtype_name(request.q.dtype);
  row.mask = request.causal == CausalMode::kNone ? "full" : "causal";
  row.backend = family.backend;
  const cuda::WantedInstance wanted = family.wanted(request);
  if (!wanted.instance) {
    row.note = wanted.why_not;
    return row;
  }
  row.instance = wanted.instance->name;
  const Result<cuda::JitKernel> kernel = cuda::jit_kernel(*wanted.instance);
  if (!kernel) {
    row.state = State::kFailed;
    row.note = kernel.error().message + (kernel.error().remedy.empty() ? "" : "; " + kernel.error().remedy);
    return row;
  }
  row.state = kernel->from_cache ? State::kCached : State::kCompiled;
  row.seconds = kernel->compile_s;
  row.bytes = kernel->cubin.size();
  row.compiler = kernel->compiler;
  row.path = kernel->cache_path;
  row.note = kernel->note;
  // What is not kept was compiled for nothing.
  if (row.path.empty()) row.state = State::kFailed;
  return row;
}

Result<std::vector<Row>> warm_all(const WarmOptions& options, const std::string& arch) {
  std::vector<Row> rows;
  for (const std::string& shape : options.shapes)
    for (const std::string_view dtype : split(options.all ? "bf16,f16" : options.dtypes, ','))
      for (const bool causal : {false, true}) {
        if (!options.all && causal != options.causal) continue;
        ATTNSCOPE_ASSIGN(const Request request, request_of(shape, std::string(dtype), causal));
        for (const cuda::JitFamily& family : cuda::jit_families())
          if (family.arch == arch) rows.push_back(warm_one(family, request, shape));
      }
  return rows;
}

std::string verdict(const std::vector<Row>& rows, const std::string& arch) {
  const auto count = [&](State state) {
    return std::count_if(rows.begin(), rows.end(), [state](const Row& r) { return r.state == state; });
  };
  std::string text = fmt::format("{} compiled, {} already there, {} not needed", count(State::kCompiled),
                                 count(State::kCached), count(State::kNotNeeded));
  if (count(State::kFailed) > 0) text += fmt::format(", {} FAILED", count(State::kFailed));
  return fmt::format("{} for {}.", text, arch);
}

std::string text_of(const std::vector<Row>& rows, const std::string& arch) {
  std::string text = verdict(rows, arch) + "\n\n";
  for (const Row& r : rows) {
    std::string what = terminal_safe(r.note, 400);
    if (r.state == State::kCompiled || r.state == State::kCached) {
      const std::string time = r.state == State::kCompiled ? fmt::format(" in {:.2f} s", r.seconds) : "";
      what = fmt::format("{}, {}, {}{}", r.instance, format_bytes(static_cast<double>(r.bytes)), r.compiler,
                         time);
      if (!r.note.empty()) what += "; " + terminal_safe(r.note, 400);
    }
    text +=
        fmt::format("{}  {} {} {}  {}  {}\n", pad(state_name(r.state), 10),
                    pad(terminal_safe(r.shape, 60), 16), pad(r.dtype, 4), pad(r.mask, 6), r.backend, what);
  }
  const auto kept = std::find_if(rows.begin(), rows.end(), [](const Row& r) { return !r.path.empty(); });
  if (kept != rows.end())
    text += fmt::format("\nkept in {}\n", terminal_safe(kept->path.substr(0, kept->path.rfind('/'))));
  return text;
}

std::string json_of(const std::vector<Row>& rows, const std::string& arch) {
  using Json = nlohmann::ordered_json;
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json list = Json::array();
  for (const Row& r : rows)
    list.push_back({{"shape", r.shape},
                    {"dtype", r.dtype},
                    {"mask", r.mask},
                    {"backend", r.backend},
                    {"state", state_name(r.state)},
                    {"instance", or_null(r.instance)},
                    {"compiler", or_null(r.compiler)},
                    {"compile_s", r.state == State::kCompiled ? Json(r.seconds) : Json(nullptr)},
                    {"bytes", r.bytes > 0 ? Json(r.bytes) : Json(nullptr)},
                    {"path", or_null(r.path)},
                    {"note", or_null(r.note)}});
  const Json document{{"schema", "attnscope.warm/1"},
                      {"tool", {{"name", "attnscope"}, {"version", ATTNSCOPE_VERSION}}},
                      {"arch", arch},
                      {"kernels", list}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<int> run_warm(Context& context, const WarmOptions& options) {
  ATTNSCOPE_ASSIGN(const std::string arch, target_arch(options));
  ATTNSCOPE_ASSIGN(const std::vector<Row> rows, warm_all(options, arch));
  if (!options.files.json.empty())
    ATTNSCOPE_TRY(write_output(context, options.files.json, json_of(rows, arch)));
  if (!options.files.takes_stdout()) print_text(context, text_of(rows, arch));
  return std::any_of(rows.begin(), rows.end(), [](const Row& r) { return r.state == State::kFailed; }) ? 4
                                                                                                       : 0;
}

int run(Context& context, const Arguments& arguments) {
  WarmOptions options;
  if (const auto done = options.parse(context, arguments)) return *done;
  const Result<int> code = run_warm(context, options);
  return code ? *code : print_error(context, code.error());
}

}  // namespace

extern const Command warm_command;
const Command warm_command{"warm", kWarmSummary, kWarmExample, run};

}  // namespace attnscope::cli
