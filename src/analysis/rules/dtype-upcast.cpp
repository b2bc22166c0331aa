// 16-bit values widened to f32 inside attention, or for a product whose inputs were 16-bit.

#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule dtype_upcast_rule;

namespace {

using trace::EventIndex;
using trace::kNoEvent;
using Nature = RuleFacts::CopyNature;

constexpr Threshold kThresholds[] = {
    {"min_share", 1, "%", "of the trace's device time, all casts of one place together"}};

bool is_product(std::string_view name) {
  return decode_operator_name(name).kind == KernelKind::kGemm;
}

// The call that the cast serves: an attention call, or the product that asked for it.
EventIndex served_call(const RuleFacts& facts, const Work& work, const Above& above) {
  if (const int call = facts.attention_of(work.event); call >= 0)
    return facts.metrics().attention_calls[static_cast<size_t>(call)].event;
  for (auto op = above.operators.rbegin(); op != above.operators.rend(); ++op)
    if (is_product(facts.trace().name(*op))) return *op;
  return kNoEvent;
}

struct Place {
  Gathered casts;
  size_t up = 0, down = 0;
};

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::map<std::string, Place> places;
  for (const Work& work : facts.work()) {
    if (work.name->kind != KernelKind::kCast && work.name->kind != KernelKind::kCopy) continue;
    const Above above = facts.above(work.event);
    const Nature nature = facts.copy_nature(work, above);
    if (nature != Nature::kUpcast && nature != Nature::kDowncast) continue;
    const EventIndex call = served_call(facts, work, above);
    if (call == kNoEvent) continue;
    Place& place = places[facts.where(above)];
    (nature == Nature::kUpcast ? place.up : place.down) += 1;
    place.casts.events.push_back(work.event);
    place.casts.ns += work.ns;
    if (place.casts.calls.empty() || place.casts.calls.back() != call) place.casts.calls.push_back(call);
  }
  std::vector<Finding> findings;
  for (const auto& [where, place] : places) {
    const Gathered& g = place.casts;
    // Casting down alone is what a 16-bit path does with f32 data; only widening is the matter here.
    if (place.up == 0 || facts.share(g.ns) < limits["min_share"]) continue;
    const size_t calls = std::max<size_t>(g.calls.size(), 1);
    std::string down;
    if (place.down > 0)
      down = fmt::format(", {} back{}", place.down % calls == 0 ? place.down / calls : place.down,
                         place.down % calls == 0 ? "" : " in all");
    Finding finding = make_finding(
        dtype_upcast_rule, fmt::format("16-bit values widened to f32: {}{}{}, {} ({} of device time)",
                                       counted(place.up % calls == 0 ? place.up / calls : place.up, "cast"),
                                       place.up % calls == 0 ? "" : " in all", down, per_call(g.ns, calls),
                                       percent_text(facts.share(g.ns))));
    finding.range = where;
    finding.saving_us = us(g.ns) / static_cast<double>(calls);
    finding.saving_per = "call";
    finding.saving_basis =
        "the measured time of the casts alone; what runs on f32 afterwards costs more on top";
    finding.confidence = Certainty::kHigh;
    finding.group = "attention:" + where;
    facts.cite(finding, g.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule dtype_upcast_rule{
    .id = "dtype-upcast",
    .category = RuleCategory::kAttention,
    .severity = Severity::kWarning,
    .summary = "Inputs of 16 bits were widened to f32 inside attention or for a matrix product.",
    .what =
        "Cast kernels from f16 or bf16 to f32 inside an attention call, or under a matrix product that was "
        "given "
        "16-bit inputs. Casts back to 16 bits in the same place are counted with them.",
    .why =
        "Each cast reads and writes a whole tensor, everything after it moves twice the bytes, and the "
        "products "
        "may leave the tensor cores.",
    .remedy =
        "Use a fused attention backend, which keeps 16-bit inputs and accumulates in f32 inside the kernel; "
        "or "
        "allow reduced-precision reductions in the math path "
        "(torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)) after checking the error.",
    .false_positives =
        "The math path widens on purpose, for accuracy. Where it serves as the reference, the cost is "
        "the point. Casts outside attention and products (normalisation in f32, optimizer state) are "
        "not looked at.",
    .thresholds = kThresholds,
    .needs = kNeedsWork | kNeedsOperators | kNeedsLinks,
    .check = check};

}  // namespace attnscope
