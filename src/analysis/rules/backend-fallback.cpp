// Attention that did not take the fastest path: which backends refused, and why.

#include "analysis/rule.h"
#include "analysis/sdpa_filters.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

extern const Rule backend_fallback_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"min_share", 1, "%", "of the trace's device time, all such calls of one place together"}};

struct Place {
  std::vector<EventIndex> calls;
  const AttentionCall* example = nullptr;
  Total ns;
};

bool has_backward(const RuleFacts& facts) {
  const std::vector<AttentionCall>& calls = facts.metrics().attention_calls;
  return std::any_of(calls.begin(), calls.end(),
                     [](const AttentionCall& c) { return c.pass == AttentionPass::kBackward; });
}

bool is_amd(const RuleFacts& facts) {
  return facts.trace().metadata().hip_runtime_version.has_value();
}

// "flash: a mask was given; …", one backend a clause; what accepts these inputs is said as such.
std::string verdicts(const SdpaRequest& request, bool below_efficient, bool* any_accepts) {
  std::string text;
  const auto add = [&](std::string_view backend, const std::vector<std::string>& reasons) {
    if (!text.empty()) text += " · ";
    if (reasons.empty()) *any_accepts = true;
    text += reasons.empty() ? fmt::format("{}: nothing recorded refuses it", backend)
                            : fmt::format("{}: {}", backend, fmt::join(reasons, ", "));
  };
  add("flash", flash_refusals(request));
  if (!request.amd) add("cudnn", cudnn_refusals(request));
  if (below_efficient) add("efficient", efficient_refusals(request));
  return text;
}

Finding describe(const RuleFacts& facts, const std::string& where, const Place& place) {
  const AttentionCall& call = *place.example;
  const bool math = call.implementation == AttentionImpl::kAtenMath;
  std::optional<SdpaRequest> request = read_sdpa_request(call.op, facts.inputs(call.event));
  std::string reasons =
      "the inputs were not recorded, so the refusing conditions cannot be told (record_shapes=True)";
  bool any_accepts = false;
  if (request) {
    request->training = has_backward(facts);
    request->amd = is_amd(facts);
    if (!call.work.empty()) request->capability = facts.capability_of(call.work.front());
    reasons = verdicts(*request, math, &any_accepts);
  }
  Finding finding =
      make_finding(backend_fallback_rule,
                   fmt::format("{} ran {}, {}: {} ({} of device time)", counted(place.calls.size(), "call"),
                               math ? "the math path" : "the efficient backend",
                               !request      ? "forced or fallen back"
                               : any_accepts ? "forced: another backend takes these inputs"
                                             : "fallen back",
                               per_call(place.ns, place.calls.size()), percent_text(facts.share(place.ns))));
  if (!math) finding.severity = Severity::kNote;
  finding.range = where;
  finding.why = reasons + ". " + std::string(backend_fallback_rule.why);
  finding.saving_basis = "not estimated: run `attnscope compare` on this shape to see what the others take";
  finding.confidence = request ? Certainty::kMedium : Certainty::kLow;
  finding.group = "attention:" + where;
  facts.cite(finding, place.calls);
  return finding;
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::map<std::pair<std::string, trace::StringId>, Place> places;
  for (const AttentionCall& call : facts.metrics().attention_calls) {
    if (call.hand_written || call.bare_kernel || call.pass == AttentionPass::kBackward) continue;
    if (call.implementation != AttentionImpl::kAtenMath && call.implementation != AttentionImpl::kEfficient)
      continue;
    if (!call.op.starts_with("aten::") || call.kernels == 0) continue;
    const Above above = facts.above(call.event);
    const std::string where =
        above.range == trace::kNoEvent ? call.op : std::string(facts.trace().name(above.range));
    Place& place = places[{where, facts.trace().operator_args_id(call.event)}];
    place.example = &call;
    place.calls.push_back(call.event);
    place.ns += call.device_ns;
  }
  std::vector<Finding> findings;
  for (const auto& [key, place] : places)
    if (facts.share(place.ns) >= limits["min_share"]) findings.push_back(describe(facts, key.first, place));
  return findings;
}

}  // namespace

const Rule backend_fallback_rule{
    .id = "backend-fallback",
    .category = RuleCategory::kAttention,
    .severity = Severity::kWarning,
    .summary =
        "The fastest attention backend did not run; the conditions that refused are "
        "listed.",
    .what =
        "Forward calls that ran the math path (a warning) or the efficient backend (a note) on a GPU. The "
        "filters of "
        "flash, cuDNN and efficient are applied to the recorded shapes, strides, dtypes and values.",
    .why =
        "The dispatcher takes the first backend whose every condition holds and says nothing about the "
        "others. A "
        "mask, a head_dim or a stride silently changes the speed several times over.",
    .remedy =
        "Remove the refusing condition (is_causal instead of a mask tensor, head_dim a multiple of 8, last "
        "stride "
        "1, 16-bit inputs). Where nothing refuses, look for sdpa_kernel(...) or enable_flash_sdp(False).",
    .false_positives =
        "The backend may have been chosen on purpose, or be missing from the build; a trace cannot show "
        "that. The conditions are those of PyTorch 2.5 to 2.11. Whether gradients are needed is judged "
        "by whether a backward call is in the trace; storage offsets are not recorded.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsOperators | kNeedsAttention,
    .check = check};

}  // namespace attnscope
