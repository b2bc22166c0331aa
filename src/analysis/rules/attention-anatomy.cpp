// An unfused attention call taken apart: what the formula needs, and what ran besides.

#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace attnscope {

extern const Rule attention_anatomy_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {
    {"formula_kernels", 5, "kernels",
     "product, scale, mask, softmax, product: what the formula is made of; one less for a call without a "
     "mask"}};

enum Part : size_t { kProducts, kSoftmax, kGuard, kScale, kMask, kCasts, kCopies, kRest, kParts };
constexpr std::array<std::string_view, kParts> kPartNames = {
    "products", "softmax", "guard against empty rows", "scale and bias", "mask", "casts", "copies", "other"};

Part part_of(const RuleFacts& facts, const Work& work, bool after_product) {
  if (work.cls == trace::EventClass::kMemcpy) return kCopies;
  for (EventIndex op : facts.above(work.event).operators)
    if (facts.trace().name(op).find("safe_softmax") != std::string_view::npos)
      return work.name->kind == KernelKind::kSoftmax ? kSoftmax : kGuard;
  switch (work.name->kind) {
    case KernelKind::kGemm: return kProducts;
    case KernelKind::kSoftmax: return kSoftmax;
    case KernelKind::kMask: return kMask;
    case KernelKind::kFill: return after_product ? kRest : kMask;
    case KernelKind::kElementwise: return kScale;
    case KernelKind::kCast: return kCasts;
    case KernelKind::kCopy:
    case KernelKind::kTranspose: {
      const auto nature = facts.copy_nature(work, facts.above(work.event));
      return nature == RuleFacts::CopyNature::kUpcast || nature == RuleFacts::CopyNature::kDowncast ? kCasts
                                                                                                    : kCopies;
    }
    default: return kRest;
  }
}

struct Place {
  std::vector<EventIndex> events;
  std::array<size_t, kParts> count{};
  std::array<Total, kParts> ns{};
  size_t calls = 0, kernels = 0, formula = 0, on_fma = 0;
  Total total_ns, fma_ns;
};

void add_call(const RuleFacts& facts, const AttentionCall& call, Place& place) {
  ++place.calls;
  bool after_product = false;
  for (EventIndex event : call.work) {
    Work work{event, facts.trace().cls(event), facts.trace().dur_ns(event),
              &facts.metrics().decoded(facts.trace().name_id(event))};
    if (work.cls == trace::EventClass::kMemset) continue;
    const Part part = part_of(facts, work, after_product);
    after_product |= part == kProducts;
    ++place.count[part];
    place.ns[part] += work.ns;
    place.total_ns += work.ns;
    place.kernels += work.cls == trace::EventClass::kMemcpy ? 0 : 1;
    place.events.push_back(event);
    if (part == kProducts && work.name->tensor_cores == Tristate::kNo && !work.name->is_gemv) {
      ++place.on_fma;
      place.fma_ns += work.ns;
    }
  }
}

std::string describe(const Place& place) {
  std::string text;
  const auto calls = static_cast<double>(place.calls);
  for (size_t part = 0; part < kParts; ++part) {
    if (place.count[part] == 0) continue;
    text += fmt::format("{}{} {} ({}, {})", text.empty() ? "" : " · ", place.count[part] / place.calls,
                        kPartNames[part], format_time_us(us(place.ns[part]) / calls),
                        percent_text(100.0 * static_cast<double>(place.ns[part]) /
                                     static_cast<double>(std::max<int64_t>(1, place.total_ns))));
    if (part == kProducts && place.on_fma > 0)
      text += fmt::format(", {} of them on FMA units", place.on_fma / place.calls);
  }
  return text;
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::map<std::tuple<std::string, size_t, size_t>, Place> places;
  for (const AttentionCall& call : facts.metrics().attention_calls) {
    if (call.bare_kernel || call.hand_written || call.implementation != AttentionImpl::kAtenMath) continue;
    if (call.pass == AttentionPass::kBackward || call.kernels == 0) continue;
    const Above above = facts.above(call.event);
    const std::string where =
        above.range == trace::kNoEvent ? call.op : std::string(facts.trace().name(above.range));
    const size_t formula = static_cast<size_t>(
        std::clamp(limits["formula_kernels"] - (call.mask == MaskUse::kNone ? 1 : 0), 0.0, 1e6));
    Place& place = places[{where, call.kernels, formula}];
    place.formula = formula;
    add_call(facts, call, place);
  }
  std::vector<Finding> findings;
  for (const auto& [key, place] : places) {
    if (place.kernels <= place.formula * place.calls) continue;
    Finding finding = make_finding(attention_anatomy_rule,
                                   fmt::format("{} kernels where the formula has {}: {}",
                                               place.kernels / place.calls, place.formula, describe(place)));
    finding.range = std::get<0>(key);
    finding.saving_basis = "see the findings on each part; their savings are of the same time";
    finding.confidence = Certainty::kHigh;
    finding.group = "attention:" + finding.range;
    facts.cite(finding, place.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule attention_anatomy_rule{
    .id = "attention-anatomy",
    .category = RuleCategory::kAttention,
    .severity = Severity::kNote,
    .summary = "What an unfused attention call is made of, part by part, against the formula's steps.",
    .what =
        "Every kernel of an attention call that took the math path, sorted into products, softmax, guard, "
        "scale, "
        "mask, casts and copies, with each part's share of the call.",
    .why =
        "A short call may hide twenty kernels. Which of them the formula needs, and which serve accuracy, "
        "safety or "
        "layout, is not visible in the source.",
    .remedy =
        "If the math path was not chosen on purpose, see backend-fallback for what refused the fused ones.",
    .false_positives = "None: it states what ran. Hand-written attention is reported by unfused-attention.",
    .thresholds = kThresholds,
    .needs = kNeedsWork | kNeedsOperators | kNeedsAttention,
    .check = check};

}  // namespace attnscope
