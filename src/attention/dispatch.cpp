#include "attention/backend.h"
#include "attention/memory.h"
#include "attention/order_table.h"
#include "attention/plan_cache.h"
#include "attention/refusal.h"
#include "attention/registry.h"
#include "attention/request_key.h"
#include "attention/validate.h"
#include "base/event_sink.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace attnscope {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr const char* kNoBackends = "this build has none for CUDA tensors";
constexpr const char* kBuildWithCuda = "build with ATTNSCOPE_CUDA=ON, or move the tensors to the CPU";

std::vector<std::string> names_for(DeviceType device) {
  std::vector<std::string> names;
  for (const Backend* backend : registered_backends())
    if (backend->device() == device) names.emplace_back(backend->name());
  return names;
}

std::vector<Refusal> all_refusals(const Backend& backend, const Request& request) {
  Refusals refusals(backend.name());
  if (std::string why = backend.unavailable_reason(); !why.empty()) {
    refusals.add("unavailable", std::move(why));
    return refusals.take();
  }
  return backend.refusals(request);
}

Refusal unknown_backend(const std::string& name, DeviceType device) {
  const std::vector<std::string> known = names_for(device);
  const std::string near = closest(name, known);
  if (known.empty())
    return {name, "unknown-backend", fmt::format("no backend '{}': {}", terminal_safe(name), kNoBackends),
            kBuildWithCuda};
  return {name, "unknown-backend", fmt::format("no backend '{}' for this device", terminal_safe(name)),
          fmt::format("{}known: auto, {}", near.empty() ? "" : fmt::format("did you mean '{}'? ", near),
                      join(known, ", "))};
}

// The order in which backends are tried, with whether each was asked for by name.
struct Candidate {
  const Backend* backend;
  bool named;
};
struct Candidates {
  std::vector<Candidate> order;
  AutomaticOrder automatic;
};
Candidates candidates(const Request& request, const ChooseOptions& options, Decision& decision) {
  const DeviceType device = request.q.device.type;
  Candidates all;
  std::vector<Candidate>& order = all.order;
  const auto push = [&](const Backend* backend, bool named) {
    const bool there =
        std::any_of(order.begin(), order.end(), [&](const Candidate& c) { return c.backend == backend; });
    if (!there) order.push_back({backend, named});
  };
  const auto push_automatic = [&] {
    std::vector<const Backend*> preferred;
    for (const Backend* backend : registered_backends())
      if (backend->device() == device && backend->automatic()) preferred.push_back(backend);
    all.automatic = automatic_order(request, std::move(preferred), measured_order(request.q.device));
    for (const Backend* backend : all.automatic.backends) push(backend, false);
  };
  if (options.backends.empty()) push_automatic();
  for (const std::string& name : options.backends) {
    if (name == kAuto) {
      push_automatic();
    } else if (const Backend* backend = find_backend(name, device)) {
      push(backend, true);
    } else {
      decision.refusals.push_back(unknown_backend(name, device));
    }
  }
  return all;
}

// Why an automatic winner won: its time among the others', or the default order and why it was used.
std::string why_automatic(const Backend& winner, const AutomaticOrder& order) {
  std::string times;
  bool measured = false;
  if (order.point != nullptr)
    for (const OrderTime& time : order.point->times) {
      measured |= time.backend == winner.name();
      times += fmt::format("{}{} {}", times.empty() ? "" : ", ", time.backend, format_time_us(time.us));
    }
  if (measured) return fmt::format("measured order: {} ({})", times, order.note);
  return fmt::format("first in order of preference that takes the request ({})", order.note);
}

std::string cache_key(const std::string& key, const ChooseOptions& options) {
  std::string full = key;
  for (const std::string& name : options.backends) full += '\0' + name;
  return full;
}

Error no_backend_error(const Decision& decision, const ChooseOptions& options) {
  const auto named = [&](std::string_view name) {
    return std::find(options.backends.begin(), options.backends.end(), name) != options.backends.end();
  };
  std::string message = options.backends.empty() ? "no backend takes this request"
                                                 : fmt::format("refused by {}", join(options.backends, ", "));
  std::string remedy;
  if (decision.refusals.empty()) {
    message += fmt::format(": {}", kNoBackends);
    remedy = kBuildWithCuda;
  }
  for (const Refusal& r : decision.refusals) {
    const bool asked = options.backends.empty() || named(kAuto) || named(r.backend);
    if (asked) message += fmt::format("\n  {}", to_text(r));
    if (asked && remedy.empty()) remedy = r.remedy;
  }
  const bool unknown = std::any_of(decision.refusals.begin(), decision.refusals.end(),
                                   [](const Refusal& r) { return r.code == "unknown-backend"; });
  return Error{unknown ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable, std::move(message),
               std::move(remedy)};
}

Status check_memory_now(const Plan& plan, const Request& request) {
  if (!request.q.device.is_cpu()) return {};
  Refusals refusals(plan.backend_name());
  refuse_if_too_big(request, plan.cost().intermediate_bytes, refusals);
  if (refusals.empty()) return {};
  const Refusal refusal = refusals.take().front();
  return fail(ErrorCode::kOutOfMemory, fmt::format("{}: {}", refusal.backend, refusal.message),
              refusal.remedy);
}

// plan() without the outer checks; `key` is that of the request.
Result<std::shared_ptr<const Plan>> cached_plan(const Request& request, const ChooseOptions& options,
                                                const std::string& key) {
  const std::string full_key = cache_key(key, options);
  if (auto found = plan_cache().find(full_key)) return found;
  ATTNSCOPE_TRY(validate(request));
  const EventScope scope("attnscope::plan", EventKind::kRuntime);
  Decision decision = choose(request, options);
  if (decision.winner == nullptr) return tl::unexpected(no_backend_error(decision, options));
  ATTNSCOPE_ASSIGN(auto impl, decision.winner->plan(request));
  const CostModel cost = impl->cost();
  return plan_cache().insert(
      full_key, std::make_shared<const Plan>(*decision.winner, std::move(impl), cost,
                                             std::move(decision.refusals), key, std::move(decision.why)));
}

Status run_checked(const Plan& plan, const Request& request, const Outputs& outputs,
                   const RunOptions& options) {
  ATTNSCOPE_TRY(validate_run(request, outputs));
  ATTNSCOPE_TRY(validate_lengths(request));
  ATTNSCOPE_TRY(check_memory_now(plan, request));
  const EventScope scope(operator_name(plan.backend()), EventKind::kOperator);
  return plan.impl().run(request, outputs, options);
}

}  // namespace

std::string_view operator_name(const Backend& backend) {
  static const std::map<const Backend*, std::string> names = [] {
    std::map<const Backend*, std::string> all;
    for (const Backend* b : registered_backends()) all[b] = fmt::format("attnscope::{}", b->name());
    return all;
  }();
  const auto it = names.find(&backend);
  return it != names.end() ? std::string_view(it->second) : std::string_view("attnscope::backend");
}

const Backend* find_backend(std::string_view name, DeviceType device) {
  for (const Backend* backend : registered_backends())
    if (backend->device() == device && backend->name() == name) return backend;
  return nullptr;
}

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> infos;
  for (const Backend* backend : registered_backends()) {
    std::string why = backend->unavailable_reason();
    const bool available = why.empty();
    infos.push_back({std::string(backend->name()), std::string(backend->description()), backend->device(),
                     available, std::move(why)});
  }
  return infos;
}

Decision choose(const Request& request, const ChooseOptions& options) {
  Decision decision;
  if (const Status valid = validate(request); !valid) {
    decision.refusals.push_back({"request", "invalid-request", valid.error().message, valid.error().remedy});
    return decision;
  }
  const DeviceType device = request.q.device.type;
  const Candidates all = candidates(request, options, decision);
  const std::vector<Candidate>& order = all.order;
  for (const Candidate& candidate : order) {
    std::vector<Refusal> refusals = all_refusals(*candidate.backend, request);
    if (refusals.empty() && decision.winner == nullptr) {
      decision.winner = candidate.backend;
      decision.winner_name = candidate.backend->name();
      decision.why = candidate.named ? "asked for by name" : why_automatic(*candidate.backend, all.automatic);
    }
    std::move(refusals.begin(), refusals.end(), std::back_inserter(decision.refusals));
  }
  // The others' reasons too: what was not asked may still be what the caller should know.
  for (const Backend* backend : registered_backends()) {
    const bool seen =
        std::any_of(order.begin(), order.end(), [&](const Candidate& c) { return c.backend == backend; });
    if (seen || backend->device() != device) continue;
    std::vector<Refusal> refusals = all_refusals(*backend, request);
    std::move(refusals.begin(), refusals.end(), std::back_inserter(decision.refusals));
  }
  return decision;
}

Result<std::shared_ptr<const Plan>> plan(const Request& request, const ChooseOptions& options) {
  ATTNSCOPE_TRY(validate(request));
  return cached_plan(request, options, request_key(request));
}

Status run(const Plan& plan, const Request& request, const Outputs& outputs, const RunOptions& options) {
  if (!plan.key().empty() && plan.key() != request_key(request))
    return fail(ErrorCode::kInvalidArgument,
                "the request differs from the one the plan was made for in dtypes, sizes, strides, alignment "
                "or flags",
                "call plan() again: plans are cached");
  return run_checked(plan, request, outputs, options);
}

Status sdpa(const Request& request, const Outputs& outputs, const ChooseOptions& choose_options,
            const RunOptions& run_options) {
  const TensorView* inputs[] = {&request.q, &request.k, &request.v, &request.mask};
  EventInfo info{"attnscope::sdpa", EventKind::kOperator};
  info.inputs = inputs;
  info.input_count = request.mask_kind == MaskKind::kNone ? 3 : 4;
  const EventScope scope(info);
  ATTNSCOPE_ASSIGN(const auto made, cached_plan(request, choose_options, request_key(request)));
  return run_checked(*made, request, outputs, run_options);
}

}  // namespace attnscope
