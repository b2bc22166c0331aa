#include "compare/compare.h"

#include "analysis/kernel_name.h"
#include "analysis/metrics.h"
#include "analysis/occupancy.h"
#include "analysis/rule.h"
#include "attention/backend.h"
#include "attention/cost.h"
#include "base/text.h"
#include "profiler/export.h"
#include "report/html/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attnscope::compare {
namespace {

constexpr int kLeastRounds = 5, kMostRounds = 300;
constexpr int kLeastPasses = 3, kMostPasses = 20;  // recorded calls
constexpr double kPassTime_us = 100e3;

// Everything of one variant while the comparison runs.
struct Contender {
  VariantResult result;
  std::shared_ptr<const Plan> plan;
  double estimate_us = 0;
  int quota = 0;
  std::vector<double> device_us, host_us;
};

class Comparison {
 public:
  Comparison(BenchDevice& device, const CompareRequest& request, const Progress& progress)
      : device_(device), request_(request), progress_(progress) {}
  Result<CompareResult> run();

 private:
  Status prepare();
  Contender enter(const std::string& name);
  Status try_once(Contender& c);
  Status time_all();
  Status record(Contender& c);
  void find(Contender& c);
  void expect(CompareResult& result);
  CostModel with_lengths(CostModel cost) const;
  void fail_with(Contender& c, const Error& error);
  void report(double done, std::string_view what) const {
    if (progress_) progress_(done, what);
  }

  BenchDevice& device_;
  const CompareRequest& request_;
  const Progress& progress_;
  HostTensors host_;
  Tensor host_out_, host_lse_;
  Request on_device_;
  Outputs outputs_;
  std::unique_ptr<Oracle> oracle_;
  std::vector<Contender> contenders_;
};

Status Comparison::prepare() {
  const Problem& p = request_.problem;
  report(0.0, "filling tensors");
  ATTNSCOPE_ASSIGN(host_, make_tensors(p));
  ATTNSCOPE_ASSIGN(host_out_, make_output(p));
  on_device_ = host_.request;
  ATTNSCOPE_ASSIGN(on_device_.q, device_.upload(host_.request.q));
  ATTNSCOPE_ASSIGN(on_device_.k, device_.upload(host_.request.k));
  ATTNSCOPE_ASSIGN(on_device_.v, device_.upload(host_.request.v));
  if (p.mask_kind != MaskKind::kNone) {
    ATTNSCOPE_ASSIGN(on_device_.mask, device_.upload(host_.request.mask));
  }
  if (!p.lengths.empty()) {
    ATTNSCOPE_ASSIGN(on_device_.lengths.kv_lengths, device_.upload(host_.request.lengths.kv_lengths));
  }
  ATTNSCOPE_ASSIGN(outputs_.out, device_.upload(host_out_));
  if (p.train) {
    ATTNSCOPE_ASSIGN(host_lse_, Tensor::empty(DType::kF32, {p.batch, p.heads, p.q_len}));
    ATTNSCOPE_ASSIGN(outputs_.lse, device_.upload(host_lse_));
  }
  return {};
}

Guess formula_guess(const Problem& problem, const CostModel& cost) {
  // One kernel is what "fused" means; everything else is guessed by the formula, however it is really done.
  Guess guess;
  guess.kernels = cost.kernels == 1 ? 1 : formula_kernels(problem);
  guess.copies = 0;
  guess.fills = 0;
  return guess;
}

// Decides and plans. A refusal is a result with every reason.
Contender Comparison::enter(const std::string& name) {
  Contender c;
  c.result.name = name;
  if (const Backend* backend = find_backend(name, device_.device().type))
    c.result.description = backend->description();
  ChooseOptions only;
  only.backends = {name};
  const Decision decision = choose(on_device_, only);
  if (!decision.winner) {
    c.result.status = VariantStatus::kRefused;
    for (const Refusal& refusal : decision.refusals)
      if (refusal.backend == name || refusal.backend == "request") c.result.reasons.push_back(refusal);
    return c;
  }
  Result<std::shared_ptr<const Plan>> planned = plan(on_device_, only);
  if (!planned) {
    fail_with(c, planned.error());
    return c;
  }
  c.plan = std::move(*planned);
  c.result.cost = with_lengths(c.plan->cost());
  c.result.steps = c.plan->impl().steps();
  if (request_.guess.source.empty()) {
    c.result.guess = formula_guess(request_.problem, c.result.cost);
  } else if (const auto stated = request_.guess.by_variant.find(name);
             stated != request_.guess.by_variant.end()) {
    c.result.guess = stated->second;  // what a stated guess leaves out is not guessed
  }
  return c;
}

void Comparison::fail_with(Contender& c, const Error& error) {
  const bool refused = error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kOutOfMemory;
  c.result.status = refused ? VariantStatus::kRefused : VariantStatus::kFailed;
  c.result.reasons.push_back({c.result.name,
                              error.code == ErrorCode::kOutOfMemory   ? "too-big-for-memory"
                              : error.code == ErrorCode::kUnavailable ? "unavailable"
                                                                      : "run-failed",
                              error.message, error.remedy});
}

// One call into a poisoned output, checked against float64; then one more, warm, for the estimate.
Status Comparison::try_once(Contender& c) {
  ATTNSCOPE_ASSIGN(const Tensor poison, make_output(request_.problem));
  ATTNSCOPE_TRY(device_.overwrite(poison, outputs_.out));
  ATTNSCOPE_TRY(device_.time_call(*c.plan, on_device_, outputs_));
  ATTNSCOPE_TRY(device_.download(outputs_.out, host_out_));
  c.result.accuracy = oracle_->check(host_out_);
  ATTNSCOPE_ASSIGN(const CallTime warm, device_.time_call(*c.plan, on_device_, outputs_));
  c.estimate_us = std::max(warm.device_us, 0.01);
  const Accuracy& a = c.result.accuracy;
  if (a.within()) return {};
  c.result.status = VariantStatus::kFailed;
  std::string message =
      a.nan_rows > 0 ? fmt::format("{} of {} rows checked hold NaN or infinity", a.nan_rows, a.rows_checked)
                     : fmt::format("rel_l2 {:.1e}, max_abs {:.1e}; the tolerance for {} is {:.1e} and {:.1e}",
                                   a.rel_l2, a.max_abs, dtype_name(request_.problem.dtype),
                                   a.tolerance.rel_l2, a.tolerance.max_abs);
  c.result.reasons.push_back({c.result.name, "error-above-tolerance", std::move(message),
                              "a wrong result is not timed: report it with this command line"});
  return {};
}

// Variants take turns within each round, so that drift of the machine meets all of them; one that needs
// fewer samples sits rounds out, evenly.
Status Comparison::time_all() {
  int rounds = 0;
  double whole_us = 0, done_us = 0;
  for (Contender& c : contenders_) {
    if (!c.result.ok()) continue;
    const double wanted = request_.measure.min_time_s * 1e6 / c.estimate_us;
    c.quota = request_.measure.rounds > 0
                  ? request_.measure.rounds
                  : static_cast<int>(std::clamp<double>(wanted, kLeastRounds, kMostRounds));
    rounds = std::max(rounds, c.quota);
    whole_us += c.quota * c.estimate_us;
  }
  for (int64_t round = 0; round < rounds; ++round)
    for (Contender& c : contenders_) {
      const bool its_turn = c.quota * (round + 1) / rounds > c.quota * round / rounds;
      if (!c.result.ok() || !its_turn) continue;
      if (request_.measure.cold) ATTNSCOPE_TRY(device_.flush_caches());
      report(0.2 + 0.7 * done_us / whole_us, c.result.name);
      const Result<CallTime> time = device_.time_call(*c.plan, on_device_, outputs_);
      done_us += c.estimate_us;
      if (!time) {
        fail_with(c, time.error());
        continue;
      }
      c.device_us.push_back(time->device_us);
      if (time->host_us) c.host_us.push_back(*time->host_us);
    }
  for (Contender& c : contenders_) {
    c.result.device_us = distribution_of(std::move(c.device_us));
    c.result.host_us = distribution_of(std::move(c.host_us));
  }
  return {};
}

// The counting passes: each recorded step is one call through the public entry, after one that is thrown
// away.
Status Comparison::record(Contender& c) {
  const int passes =
      static_cast<int>(std::clamp<double>(kPassTime_us / c.estimate_us, kLeastPasses, kMostPasses));
  profiler::SessionOptions options;
  options.activities = device_.activities();
  options.record_shapes = true;
  options.schedule = {.warmup = 1, .active = passes, .repeat = 1};
  ChooseOptions only;
  only.backends = {c.result.name};
  ATTNSCOPE_ASSIGN(profiler::Session session, profiler::Session::start(options));
  for (int i = 0; i <= passes; ++i) {
    {
      const profiler::Range range("attn_fwd");
      ATTNSCOPE_TRY(sdpa(on_device_, outputs_, only, device_.run_options()));
      ATTNSCOPE_TRY(device_.synchronize());
    }
    session.step();
  }
  ATTNSCOPE_ASSIGN(profiler::Recording recording, session.finish());
  c.result.counts = count_calls(recording);
  if (c.result.host_us.samples == 0) c.result.host_us = c.result.counts.host_us;
  c.result.breaks = broken(c.result.name, c.result.guess, c.result.counts);
  c.result.recording = std::move(recording);
  return {};
}

// The rules that are about the call itself. Those about a program around it (its steps, its host, how it was
// measured) would judge this program's loop.
RuleOptions rules_about_the_call(const Problem& problem) {
  RuleOptions options;
  // The recording has no inputs to tell a mask from; the guess and the rule count the same formula.
  options.thresholds.push_back(
      {"attention-anatomy.formula_kernels", static_cast<double>(formula_kernels(problem))});
  for (const Rule* rule : rules())
    if (rule->category == RuleCategory::kAttention || rule->category == RuleCategory::kMemory)
      options.only.emplace_back(rule->id);
  return options;
}

// What the names and the launches of the rows say.
void decode(std::vector<WorkRow>& rows, const Metrics& metrics) {
  const trace::Trace& trace = *metrics.trace;
  const auto sm = trace.devices().empty() ? std::nullopt : sm_limits(trace.devices().front());
  for (WorkRow& row : rows) {
    row.what = row.kind == profiler::RecordKind::kCopy ? "copy"
               : row.kind == profiler::RecordKind::kFill
                   ? "fill"
                   : report::bar_kind(decode_kernel_name(row.name).kind);
    if (!sm || row.registers < 0 || row.block[0] <= 0) continue;
    BlockDemand demand;
    demand.threads = int64_t{row.block[0]} * row.block[1] * row.block[2];
    demand.registers = row.registers;
    demand.shared_bytes = std::max<int64_t>(row.shared_bytes, 0);
    demand.cluster_blocks = int64_t{row.cluster[0]} * row.cluster[1] * row.cluster[2];
    const Occupancy o = occupancy(*sm, demand);
    row.occupancy_percent = o.percent;
    row.occupancy_limiter = limiter_text(o.limiters);
  }
}

// The rules see what any other trace would show them.
void Comparison::find(Contender& c) {
  const trace::Trace trace = profiler::to_trace(c.result.recording);
  const trace::Links links = trace::Links::build(trace);
  const Metrics metrics = compute_metrics(trace, links);
  c.result.findings = run_rules(metrics, rules_about_the_call(request_.problem)).findings;
  decode(c.result.counts.rows, metrics);
  if (!request_.keep_recordings) c.result.recording = {};
}

// A plan sees shapes only; here the lengths are known, so the work is that of the keys that count.
CostModel Comparison::with_lengths(CostModel cost) const {
  const Problem& p = request_.problem;
  if (p.lengths.empty()) return cost;
  cost.flops = 0;
  cost.min_bytes = mask_bytes(p);
  for (int64_t b = 0; b < p.batch; ++b) {
    Problem one = p;
    one.batch = 1;
    one.kv_len = p.lengths[static_cast<size_t>(b)];
    one.lengths.clear();
    one.mask_kind = MaskKind::kNone;
    const Result<Request> request = request_shape(one);
    if (!request) return cost;
    const CostModel part = base_cost(*request);
    cost.flops += part.flops;
    cost.min_bytes += part.min_bytes;
  }
  return cost;
}

void Comparison::expect(CompareResult& result) {
  const auto planned = std::find_if(contenders_.begin(), contenders_.end(),
                                    [](const Contender& c) { return c.plan != nullptr; });
  if (planned == contenders_.end()) return;
  Expectation& e = result.expectation;
  const CostModel cost = with_lengths(planned->plan->cost());
  e.flops = cost.flops;
  e.min_bytes = cost.min_bytes;
  if (result.peaks.flops_per_s > 0) e.compute_us = e.flops / result.peaks.flops_per_s * 1e6;
  if (result.peaks.bytes_per_s > 0) e.memory_us = e.min_bytes / result.peaks.bytes_per_s * 1e6;
}

void better_of(Peaks& peaks, const Peaks& again) {
  peaks.flops_per_s = std::max(peaks.flops_per_s, again.flops_per_s);
  peaks.bytes_per_s = std::max(peaks.bytes_per_s, again.bytes_per_s);
}

// A variant that beat the probe shows that the machine can do more than the probe reached.
void raise_to_seen(Peaks& peaks, const std::vector<Contender>& contenders) {
  for (const Contender& c : contenders) {
    const double rate = c.result.ok() ? c.result.cost.flops / (c.result.device_us.min * 1e-6) : 0;
    if (peaks.flops_per_s <= 0 || rate <= peaks.flops_per_s) continue;
    peaks.flops_per_s = rate;
    peaks.flops_how = fmt::format("{}'s own best call, above the probe", c.result.name);
  }
}

// Fastest first; what did not run follows in the order of preference.
void sort_variants(std::vector<VariantResult>& variants) {
  std::stable_sort(variants.begin(), variants.end(), [](const VariantResult& a, const VariantResult& b) {
    if (a.status != b.status) return a.status == VariantStatus::kOk || b.status == VariantStatus::kRefused;
    return a.ok() && a.device_us.p50 < b.device_us.p50;
  });
}

Result<CompareResult> Comparison::run() {
  ATTNSCOPE_TRY(check(device_, request_));
  ATTNSCOPE_TRY(prepare());
  CompareResult result;
  result.machine = read_machine();
  result.device_name = device_.name();
  result.device = device_.device().type;
  result.device_index = device_.device().index;
  result.problem = request_.problem;
  result.measure = request_.measure;
  result.guess_source = request_.guess.source;
  result.guessed_fastest = request_.guess.fastest;
  result.automatic = choose(on_device_).winner_name;
  const std::vector<std::string> names =
      request_.variants.empty() ? known_variants(device_.device().type) : request_.variants;
  for (const std::string& name : names) contenders_.push_back(enter(name));
  if (std::any_of(contenders_.begin(), contenders_.end(), [](const Contender& c) { return c.result.ok(); })) {
    report(0.03, "computing the answer in float64");
    oracle_ = std::make_unique<Oracle>(request_.problem, host_.request, result.machine.usable_threads,
                                       request_.measure.check_flops);
    report(0.12, "measuring this machine's peaks");
    if (request_.measure.peaks) result.peaks = device_.measure_peaks(request_.problem.dtype);
  }
  for (Contender& c : contenders_) {
    if (!c.result.ok()) continue;
    report(0.15, fmt::format("checking {}", c.result.name));
    if (const Status tried = try_once(c); !tried) fail_with(c, tried.error());
  }
  ATTNSCOPE_TRY(time_all());
  for (Contender& c : contenders_) {
    if (!c.result.ok() || !request_.measure.record) continue;
    report(0.92, fmt::format("recording {}", c.result.name));
    if (const Status recorded = record(c); !recorded)
      fail_with(c, recorded.error());
    else
      find(c);
  }
  // Measured at both ends: on a busy machine one of them may have met a neighbour.
  if (result.peaks.flops_per_s > 0) better_of(result.peaks, device_.measure_peaks(request_.problem.dtype));
  raise_to_seen(result.peaks, contenders_);
  expect(result);
  for (Contender& c : contenders_) result.variants.push_back(std::move(c.result));
  sort_variants(result.variants);
  report(1.0, "done");
  return result;
}

}  // namespace

std::string_view status_name(VariantStatus status) {
  switch (status) {
    case VariantStatus::kOk: return "ok";
    case VariantStatus::kRefused: return "refused";
    case VariantStatus::kFailed: return "failed";
  }
  return "?";
}

const VariantResult* CompareResult::fastest() const {
  return !variants.empty() && variants.front().ok() ? &variants.front() : nullptr;
}

const VariantResult* CompareResult::find(std::string_view name) const {
  const auto at = std::find_if(variants.begin(), variants.end(),
                               [name](const VariantResult& v) { return v.name == name; });
  return at == variants.end() ? nullptr : &*at;
}

std::vector<std::string> known_variants(DeviceType device) {
  std::vector<std::string> names;
  for (const Backend* backend : registered_backends())
    if (backend->device() == device) names.emplace_back(backend->name());
  return names;
}

Status check(const BenchDevice& device, const CompareRequest& request) {
  // First of all: sizes whose products would not fit 64 bits end here.
  const double bytes = tensor_bytes(request.problem) * 1.25;  // the output twice: once more to poison it
  const auto free = static_cast<double>(device.free_bytes());
  if (bytes > 1e18 || (free > 0 && bytes > free))
    return fail(
        ErrorCode::kOutOfMemory,
        fmt::format("the tensors alone need {}, {} is available", format_bytes(bytes), format_bytes(free)),
        "use a smaller --shape");
  ATTNSCOPE_TRY(request_shape(request.problem));
  const std::vector<std::string> known = known_variants(device.device().type);
  const char* where = device.device().is_cpu() ? "the CPU" : "this GPU";
  const auto check_name = [&](const char* option, const std::string& name) -> Status {
    if (std::find(known.begin(), known.end(), name) != known.end()) return {};
    const std::string near = closest(name, known);
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: no variant '{}' on {}", option, name, where),
                fmt::format("{}known: {}", near.empty() ? "" : fmt::format("did you mean '{}'? ", near),
                            join(known, ", ")));
  };
  for (const std::string& name : request.variants) ATTNSCOPE_TRY(check_name("--backends", name));
  for (const auto& [name, guess] : request.guess.by_variant)
    ATTNSCOPE_TRY(check_name(request.guess.source.c_str(), name));
  if (!request.guess.fastest.empty())
    ATTNSCOPE_TRY(check_name(request.guess.source.c_str(), request.guess.fastest));
  return {};
}

Result<CompareResult> compare(BenchDevice& device, const CompareRequest& request, const Progress& progress) {
  return Comparison(device, request, progress).run();
}

}  // namespace attnscope::compare
