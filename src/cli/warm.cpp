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

// The GPU that is named, or the one that is here.
Result<cuda::GpuTarget> target_of(const WarmOptions& options) {
  if (!options.arch.empty()) return cuda::gpu_target_named(options.arch);
  if (const std::string reason = cuda::unavailable_reason(); !reason.empty())
    return fail(ErrorCode::kUnavailable, "there is no GPU to compile for: " + reason,
                "name one: --arch sm_90a");
  ATTNSCOPE_ASSIGN(const cuda::DeviceInfo* info, cuda::device_info(0));
  return cuda::gpu_target(info->sm());
}

// As the CUDA tools name a GPU: the letter says that it has instructions of its own.
std::string name_of(const cuda::GpuTarget& gpu) {
  return gpu.arch() + (gpu.sm >= 90 ? "a" : "");
}

// What --with can add to a problem. Only its presence decides which instance a plan takes.
struct Feature {
  std::string_view name;
  void (*add)(Request& request);
};
constexpr int64_t kPageSize = 64;
char g_some_memory[16];  // stands for tensors that are only looked for, never read
void add_mask(Request& r, MaskKind kind, DType dtype) {
  r.mask_kind = kind;
  r.mask = TensorView::contiguous(nullptr, dtype, {1, 1, r.q_len(), r.kv_len()}, r.q.device);
}
constexpr Feature kFeatures[] = {
    {"window", [](Request& r) { r.window.left = 1024; }},
    {"lengths", [](Request& r) { r.lengths.kv_lengths.data = g_some_memory; }},
    {"softcap", [](Request& r) { r.softcap = 30; }},
    {"alibi", [](Request& r) { r.alibi_slopes.data = g_some_memory; }},
    {"sinks", [](Request& r) { r.sinks.data = g_some_memory; }},
    {"dropout", [](Request& r) { r.dropout.p = 0.1; }},
    {"bool", [](Request& r) { add_mask(r, MaskKind::kBool, DType::kBool); }},
    {"bias", [](Request& r) { add_mask(r, MaskKind::kBias, r.q.dtype); }},
    {"pages",
     [](Request& r) {
       const int64_t batch = r.batch(), pages = (r.kv_len() + kPageSize - 1) / kPageSize;
       r.lengths.kv_lengths.data = r.paging.block_table.data = g_some_memory;
       r.paging.block_table.rank = 2;
       r.paging.block_table.sizes = {batch, pages, 1, 1};
       r.paging.page_size = kPageSize;
       for (TensorView* view : {&r.k, &r.v})
         *view = TensorView::contiguous(
             nullptr, view->dtype, {batch * pages, view->size(1), kPageSize, view->size(3)}, view->device);
     }},
};

Status add_features(const std::string& names, Request& request) {
  std::vector<std::string> known;
  for (const Feature& feature : kFeatures) known.emplace_back(feature.name);
  for (const std::string_view name : split(names, ',')) {
    const auto* found = std::find_if(std::begin(kFeatures), std::end(kFeatures),
                                     [name](const Feature& feature) { return feature.name == name; });
    if (found == std::end(kFeatures))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--with: no feature '{}'", terminal_safe(name, 40)),
                  "known: " + join(known, ", "));
    found->add(request);
  }
  return {};
}

// The problem as `compare` reads it, its tensors without data.
Result<Request> request_of(const std::string& shape, const std::string& dtype, bool causal,
                           const std::string& features) {
  CompareOptions options;
  options.shape = shape;
  options.dtype = dtype;
  options.causal_given = true;
  options.causal = causal ? "top-left" : "none";
  ATTNSCOPE_ASSIGN(const compare::CompareRequest parsed, to_request(options, DeviceType::kCuda));
  ATTNSCOPE_ASSIGN(Request request, compare::request_shape(parsed.problem));
  for (TensorView* view : {&request.q, &request.k, &request.v}) view->device = {DeviceType::kCuda, 0};
  if (!features.empty()) ATTNSCOPE_TRY(add_features(features, request));
  return request;
}

Row warm_one(std::string_view backend, const cuda::WantedInstance& wanted, const Request& request,
             const std::string& shape) {
  Row row;
  row.shape = shape;
  row.dtype = dtype_name(request.q.dtype);
  row.mask = request.causal == CausalMode::kNone ? "full" : "causal";
  row.backend = backend;
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

// The families that --backends names; else the first that serves the request, as `auto` would choose.
void warm_request(const WarmOptions& options, const Request& request, const std::string& shape,
                  const cuda::GpuTarget& gpu, std::vector<Row>& rows) {
  const auto named = split(options.backends, ',');
  cuda::WantedInstance last;
  std::string_view asked;
  for (const cuda::JitFamily& family : cuda::jit_families()) {
    if (!options.backends.empty() && std::find(named.begin(), named.end(), family.backend) == named.end())
      continue;
    last = family.wanted(request, gpu);
    asked = family.backend;
    if (options.backends.empty() && !last.serves) continue;
    rows.push_back(warm_one(family.backend, last, request, shape));
    if (options.backends.empty()) return;
  }
  if (options.backends.empty()) rows.push_back(warm_one(asked, last, request, shape));
}

Status check_backends(const std::string& names) {
  if (names.empty()) return {};
  std::vector<std::string> known;
  for (const cuda::JitFamily& family : cuda::jit_families()) known.emplace_back(family.backend);
  for (const std::string_view name : split(names, ','))
    if (std::find(known.begin(), known.end(), name) == known.end())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--backends: {} compiles no kernels at run time", terminal_safe(name, 40)),
                  "known: " + join(known, ", "));
  return {};
}

Result<std::vector<Row>> warm_all(const WarmOptions& options, const cuda::GpuTarget& gpu) {
  ATTNSCOPE_TRY(check_backends(options.backends));
  std::vector<Row> rows;
  for (const std::string& shape : options.shapes)
    for (const std::string_view dtype : split(options.all ? "bf16,f16" : options.dtypes, ','))
      for (const bool causal : {false, true}) {
        if (!options.all && causal != options.causal) continue;
        ATTNSCOPE_ASSIGN(const Request request,
                         request_of(shape, std::string(dtype), causal, options.features));
        warm_request(options, request, shape, gpu, rows);
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
  ATTNSCOPE_TRY(check_outputs(options.files.places()));
  ATTNSCOPE_ASSIGN(const cuda::GpuTarget gpu, target_of(options));
  ATTNSCOPE_ASSIGN(const std::vector<Row> rows, warm_all(options, gpu));
  const std::string arch = name_of(gpu);
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
