// attnscope occupancy: how many blocks of a kernel fit on one multiprocessor, and what limits them.

#include "analysis/occupancy.h"

#include "analysis/kernel_name.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "formats/chrome/reader.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <map>
#include <ostream>

namespace attnscope::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
  std::string arch;
  int64_t threads = 0, registers = 0, shared = 0, barriers = 1, cluster = 1, sms = 0;
  std::vector<int64_t> grid;
  std::string kernel_from, kernel;
  OutputFiles files;
};

struct Answer {
  std::string name;  // of the kernel, when it came from a trace
  SmLimits sm;
  BlockDemand demand;
  Occupancy result;
  std::optional<int> reported;  // what the trace says
  std::optional<int> kineto;    // what Kineto's calculator says
  ZeroCause zero = ZeroCause::kNotZero;
  uint64_t launches = 0;
};

std::string blocks_text(int blocks) {
  return blocks == INT32_MAX ? "no limit" : fmt::format("{}", blocks);
}

std::string text_of(const Answer& a) {
  std::string text;
  if (!a.name.empty())
    text += fmt::format("{} · {} launches\n", terminal_safe(a.name, 90),
                        group_digits(static_cast<int64_t>(a.launches)));
  text += occupancy_line(a.result) + "\n";
  text += fmt::format("  sm_{}{}: {} threads, {} registers, {} B of shared memory per block\n", a.sm.major,
                      a.sm.minor, a.demand.threads, a.demand.registers, group_digits(a.demand.shared_bytes));
  text += fmt::format("  blocks that fit by  registers {} · shared memory {} · warps {} · block limit {}",
                      blocks_text(a.result.by_registers), blocks_text(a.result.by_shared),
                      blocks_text(a.result.by_warps), blocks_text(a.result.by_blocks));
  if (a.demand.barriers > 1) text += fmt::format(" · barriers {}", blocks_text(a.result.by_barriers));
  text += fmt::format("\n  allocated per block {} registers, {} B of shared memory\n",
                      group_digits(a.result.registers_per_block), group_digits(a.result.shared_per_block));
  if (a.result.waves)
    text += fmt::format("  grid of {} blocks on {} multiprocessors: {:.3g} waves, at best {}\n",
                        group_digits(a.demand.grid_blocks), a.sm.sms, *a.result.waves,
                        format_percent(*a.result.achieved_percent));
  if (a.demand.cluster_blocks > 1)
    text += fmt::format(
        "  clusters of {} blocks: all of them must fit on one GPC at once, which can lower this\n",
        a.demand.cluster_blocks);
  if (a.reported) {
    text += fmt::format("  the trace reports {} %", *a.reported);
    if (a.zero == ZeroCause::kFalse)
      text += fmt::format(": wrong, {} B is above the {} B that Kineto calculates with",
                          group_digits(a.demand.shared_bytes), group_digits(a.sm.shared_per_block));
    if (a.zero == ZeroCause::kSmallGrid) text += ": right, the grid is too small to register";
    text += "\n";
  }
  return text;
}

Json number_or_null(int blocks) {
  return blocks == INT32_MAX ? Json(nullptr) : Json(blocks);
}

Json json_of(const Answer& a) {
  Json limiters = Json::array();
  for (const auto& [bit, word] : {std::pair(kLimitRegisters, "registers"),
                                  {kLimitShared, "shared_memory"},
                                  {kLimitWarps, "warps"},
                                  {kLimitBlocks, "blocks"},
                                  {kLimitBarriers, "barriers"}})
    if (a.result.limiters & bit) limiters.push_back(word);
  Json j = {{"arch", fmt::format("sm_{}{}", a.sm.major, a.sm.minor)},
            {"threads", a.demand.threads},
            {"registers", a.demand.registers},
            {"shared_bytes", a.demand.shared_bytes},
            {"blocks_per_sm", a.result.blocks_per_sm},
            {"warps_per_sm", a.result.warps_per_sm},
            {"max_warps_per_sm", a.result.max_warps_per_sm},
            {"occupancy_pct", a.result.percent},
            {"limiters", limiters},
            {"blocks_by",
             {{"registers", number_or_null(a.result.by_registers)},
              {"shared_memory", number_or_null(a.result.by_shared)},
              {"warps", number_or_null(a.result.by_warps)},
              {"blocks", number_or_null(a.result.by_blocks)},
              {"barriers", number_or_null(a.result.by_barriers)}}},
            {"registers_per_block", a.result.registers_per_block},
            {"shared_bytes_per_block", a.result.shared_per_block},
            {"waves", a.result.waves ? Json(*a.result.waves) : Json(nullptr)},
            {"achieved_pct", a.result.achieved_percent ? Json(*a.result.achieved_percent) : Json(nullptr)},
            {"cannot_launch", a.result.cannot_launch.empty() ? Json(nullptr) : Json(a.result.cannot_launch)}};
  if (!a.name.empty()) {
    static constexpr std::string_view kCauses[] = {"not-zero", "false-zero", "small-grid", "unexplained"};
    j["kernel"] = terminal_safe(a.name, 4096);
    j["launches"] = a.launches;
    j["reported_pct"] = a.reported ? Json(*a.reported) : Json(nullptr);
    j["kineto_pct"] = a.kineto ? Json(*a.kineto) : Json(nullptr);
    j["zero_cause"] = kCauses[static_cast<size_t>(a.zero)];
  }
  return j;
}

Result<Answer> from_flags(const Request& r) {
  if (r.arch.empty() || r.threads <= 0)
    return fail(ErrorCode::kInvalidArgument, "--arch and --threads are needed (or --kernel-from TRACE)",
                "for example: attnscope occupancy --arch sm_80 --threads 128 --registers 255");
  if (!r.kernel.empty())
    return fail(ErrorCode::kInvalidArgument, "--kernel chooses kernels of a trace, and none was given",
                "add --kernel-from TRACE");
  Answer a;
  ATTNSCOPE_ASSIGN(a.sm, parse_arch(r.arch));
  if (r.cluster > 1 && a.sm.major < 9)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--cluster {}: sm_{}{} has no clusters", r.cluster, a.sm.major, a.sm.minor),
                "clusters exist from sm_90 on");
  if (r.sms > 0 && r.grid.empty())
    return fail(ErrorCode::kInvalidArgument, fmt::format("--sms {} counts only for a grid", r.sms),
                "add --grid BLOCKS");
  if (r.sms > 0) a.sm.sms = static_cast<int>(r.sms);
  a.demand.threads = r.threads;
  a.demand.registers = r.registers;
  a.demand.shared_bytes = r.shared;
  a.demand.barriers = r.barriers;
  a.demand.cluster_blocks = r.cluster;
  if (!r.grid.empty()) {
    a.demand.grid_blocks = 1;
    for (int64_t n : r.grid)
      if (__builtin_mul_overflow(a.demand.grid_blocks, n, &a.demand.grid_blocks))
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("--grid {}: too many blocks", fmt::join(r.grid, ",")),
                    "a grid has at most 2^31 - 1, 65535 and 65535 blocks");
  }
  a.result = occupancy(a.sm, a.demand);
  return a;
}

// What a trace records cannot be said again, differently.
Status refuse_with_trace(const CLI::App& app, const Request& r) {
  if (r.kernel_from.empty()) return {};
  for (const char* option : {"--arch", "--threads", "--registers", "--shared-memory", "--barriers",
                             "--cluster", "--grid", "--sms"})
    if (app.count(option) > 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} does not go with --kernel-from, which takes it from the trace", option),
                  "leave it out, or give the figures of one kernel without --kernel-from");
  return {};
}

// Every kernel of the trace whose name holds `kernel`, one answer per launch configuration.
Result<std::vector<Answer>> from_trace(const Request& r) {
  ATTNSCOPE_ASSIGN(const trace::Trace t, formats::chrome::read_file(r.kernel_from));
  std::vector<Answer> answers;
  std::map<std::pair<trace::StringId, uint32_t>, size_t> seen;  // and its answer
  bool any_kernel = false;
  for (trace::EventIndex e = 0; e < t.size(); ++e) {
    if (t.cls(e) != trace::EventClass::kKernel) continue;
    any_kernel = true;
    if (!r.kernel.empty() && t.name(e).find(r.kernel) == std::string_view::npos) continue;
    const std::pair key(t.name_id(e), t.kernel(e).config);
    if (const auto at = seen.find(key); at != seen.end()) {
      ++answers[at->second].launches;
      continue;
    }
    const trace::DeviceProperties* device = t.device(t.queue(e).device);
    const std::optional<SmLimits> sm = device ? sm_limits(*device) : std::nullopt;
    const std::optional<BlockDemand> demand = block_demand(t.kernel_config(e));
    if (!sm || !demand) continue;
    Answer a;
    a.name = short_kernel_name(decode_kernel_name(t.name(e)));
    a.sm = *sm;
    a.demand = *demand;
    a.result = occupancy(*sm, *demand);
    if (const double reported = t.kernel_config(e).reported_occupancy_pct; reported >= 0)
      a.reported = static_cast<int>(reported);
    a.kineto = kineto_estimate(*device, t.kernel_config(e));
    a.zero = zero_cause(*device, t.kernel_config(e));
    a.launches = 1;
    seen.emplace(key, answers.size());
    answers.push_back(std::move(a));
  }
  if (!answers.empty()) return answers;
  if (!any_kernel) return fail(ErrorCode::kBadInput, fmt::format("{} holds no kernels", r.kernel_from));
  return fail(ErrorCode::kBadInput,
              r.kernel.empty()
                  ? fmt::format("{} records no registers and blocks of its kernels", r.kernel_from)
                  : fmt::format("no kernel of {} with '{}' in its name has its resources recorded",
                                r.kernel_from, r.kernel));
}

int run(Context& context, const Arguments& arguments) {
  Request r;
  CLI::App app("How many blocks of a kernel fit on one multiprocessor, and which resource limits them.",
               "occupancy");
  const auto count = CLI::Range(int64_t{0}, int64_t{1} << 40);
  app.add_option("--arch", r.arch, "sm_70 … sm_121");
  app.add_option("--threads", r.threads, "threads per block")->check(count);
  app.add_option("--registers", r.registers, "registers per thread")->check(count);
  app.add_option("--shared-memory", r.shared, "static and dynamic shared memory per block, in bytes")
      ->check(count);
  app.add_option("--barriers", r.barriers, "hardware barriers per block (1); there are 16")
      ->check(CLI::Range(int64_t{0}, int64_t{16}));
  app.add_option("--cluster", r.cluster, "blocks per cluster (1), from sm_90 on; 16 at most")
      ->check(CLI::Range(int64_t{1}, int64_t{16}));
  app.add_option("--grid", r.grid, "blocks of the grid, X or X,Y,Z")
      ->delimiter(',')
      ->expected(1, 3)
      ->check(CLI::Range(int64_t{1}, int64_t{INT32_MAX}));
  app.add_option("--sms", r.sms, "multiprocessors of the device")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--kernel-from", r.kernel_from, "take kernels, device and grid from a trace");
  app.add_option("--kernel", r.kernel, "only kernels whose name holds this");
  r.files.add_to(app, OutputFiles::kJson);
  if (const std::optional<int> done = parse(context, app, arguments)) return *done;
  if (const Status alone = refuse_with_trace(app, r); !alone) return print_error(context, alone.error());
  if (const Status places = check_outputs(r.files.places(), {r.kernel_from}); !places)
    return print_error(context, places.error());

  std::vector<Answer> answers;
  if (!r.kernel_from.empty()) {
    Result<std::vector<Answer>> found = from_trace(r);
    if (!found) return print_error(context, found.error());
    answers = std::move(*found);
  } else {
    Result<Answer> one = from_flags(r);
    if (!one) return print_error(context, one.error());
    answers.push_back(std::move(*one));
  }
  if (!r.files.json.empty()) {
    Json kernels = Json::array();
    for (const Answer& a : answers) kernels.push_back(json_of(a));
    const Json document = {{"schema", "attnscope.occupancy/1"}, {"kernels", kernels}};
    if (const Status written = write_output(context, r.files.json, document.dump(2) + "\n"); !written)
      return print_error(context, written.error());
  }
  if (!r.files.takes_stdout())
    for (const Answer& a : answers) print_text(context, text_of(a));
  return 0;
}

}  // namespace

extern const Command occupancy_command;
const Command occupancy_command{"occupancy",
                                "blocks of a kernel that fit on one multiprocessor, and what limits them",
                                "attnscope occupancy --arch sm_80 --threads 128 --registers 255", run};

}  // namespace attnscope::cli
