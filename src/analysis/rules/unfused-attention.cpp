// Attention written out as products, mask and softmax, each a kernel of its own.

#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule unfused_attention_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"min_share", 5, "%", "of the trace's device time, all such attention of one place together"},
    {"min_scores_bytes", 1048576, "B", "scores smaller than this stay in cache, and fusing saves little"}};

struct Place {
  std::vector<EventIndex> events;
  size_t calls = 0, kernels = 0;
  Total ns, between_ns;
  int64_t scores_bytes = -1;
};

// Ours, recorded: the variant's operator stands below attnscope::sdpa.
bool is_own_unfused(const RuleFacts& facts, const AttentionCall& call) {
  for (EventIndex event : call.work)
    for (EventIndex op : facts.above(event).operators) {
      const std::string_view name = facts.trace().name(op);
      if (name == "attnscope::naive" || name == "attnscope::inplace") return true;
    }
  return false;
}

int64_t scores_bytes(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  const auto width = static_cast<int64_t>(numeric_bytes(call.dtype));
  if (!s.known() || s.heads < 0 || s.length < 0 || s.kv_length < 0 || width == 0) return -1;
  return product({s.batch, s.heads, s.length, s.kv_length, width});
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::map<std::string, Place> places;
  for (const AttentionCall& call : facts.metrics().attention_calls) {
    if (call.pass == AttentionPass::kBackward || call.work.empty()) continue;
    if (!call.hand_written && !is_own_unfused(facts, call)) continue;
    const Above above = facts.above(call.event);
    Place& place =
        places[above.range == trace::kNoEvent ? std::string() : std::string(facts.trace().name(above.range))];
    ++place.calls;
    place.scores_bytes = std::max(place.scores_bytes, scores_bytes(call));
    for (EventIndex event : call.work) {
      place.ns += facts.trace().dur_ns(event);
      place.events.push_back(event);
      const KernelName& name = facts.metrics().decoded(facts.trace().name_id(event));
      place.kernels += facts.trace().cls(event) == trace::EventClass::kKernel ? 1 : 0;
      if (name.kind != KernelKind::kGemm) place.between_ns += facts.trace().dur_ns(event);
    }
  }
  std::vector<Finding> findings;
  for (const auto& [where, place] : places) {
    if (facts.share(place.ns) < limits["min_share"]) continue;
    if (place.scores_bytes >= 0 && static_cast<double>(place.scores_bytes) < limits["min_scores_bytes"])
      continue;
    const std::string scores = place.scores_bytes < 0
                                   ? ""
                                   : fmt::format("; the scores ({}) go through memory",
                                                 format_bytes(static_cast<double>(place.scores_bytes)));
    Finding finding = make_finding(
        unfused_attention_rule,
        fmt::format(
            "attention written out in {} kernels: {} ({} of device time), {} of it between the products{}",
            place.kernels / std::max<size_t>(place.calls, 1), per_call(place.ns, place.calls),
            percent_text(facts.share(place.ns)),
            format_time_us(us(place.between_ns) / static_cast<double>(place.calls)), scores));
    finding.range = where;
    finding.saving_us = us(place.between_ns) / static_cast<double>(place.calls);
    finding.saving_per = "call";
    finding.saving_basis =
        "up to: everything between the two products, which a fused kernel does in registers";
    finding.confidence = Certainty::kMedium;
    finding.group = "attention:" + where;
    facts.cite(finding, place.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule unfused_attention_rule{
    .id = "unfused-attention",
    .category = RuleCategory::kAttention,
    .severity = Severity::kWarning,
    .summary = "Attention is written out as separate operators; the scores go through memory at every step.",
    .what =
        "A product, a softmax and a second product whose recorded shapes chain, outside "
        "scaled_dot_product_attention "
        "(its math path is reported by other rules), with scores of at least 1 MiB.",
    .why =
        "The score matrix has length × length entries per head. Each step between the products reads and "
        "writes all "
        "of it, while a fused kernel keeps a tile of it on the chip.",
    .remedy =
        "Call scaled_dot_product_attention with is_causal or attn_mask. For a change of the scores that it "
        "does "
        "not know, FlexAttention compiles one kernel.",
    .false_positives =
        "Code that needs the attention weights themselves has to write them out. Without recorded shapes "
        "nothing is found. Compiled code may have fused the middle already.",
    .thresholds = kThresholds,
    .needs = kNeedsWork | kNeedsOperators | kNeedsAttention,
    .check = check};

}  // namespace attnscope
