// Kernels that keep few warps resident because each works on a large tile in registers: no fault.

#include "analysis/occupancy.h"
#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

extern const Rule low_occupancy_by_design_rule;

namespace {

constexpr Threshold kThresholds[] = {
    {"max_occupancy", 30, "%", "theoretical occupancy up to which it is called low"},
    {"min_share", 2, "%", "of the trace's device time in kernels of this name and launch"},
    {"most_lines", 4, "lines", "the kernels with most time; more would say the same again"}};

// Tensor-core tiles and fused attention hold their accumulators in registers: few warps are enough.
bool tiles_by_design(const KernelName& name) {
  if (name.kind == KernelKind::kAttention)
    return name.role == AttentionRole::kMain || name.role == AttentionRole::kSplit;
  const bool product = name.kind == KernelKind::kGemm || name.kind == KernelKind::kConv;
  return product && name.tensor_cores == Tristate::kYes;
}

struct Launches {
  const KernelGroup* example = nullptr;  // the group with most time
  uint64_t count = 0;
  Total ns;
};

std::optional<Finding> describe(const RuleFacts& facts, const RuleLimits& limits, const Launches& launches) {
  const KernelGroup& group = *launches.example;
  const KernelName& name = facts.metrics().decoded(group.name);
  const std::optional<SmLimits> sm = sm_limits(*facts.device_of(group.first));
  const std::optional<BlockDemand> demand = block_demand(facts.trace().kernel_configs()[group.config]);
  if (!sm || !demand) return std::nullopt;
  const Occupancy fit = occupancy(*sm, *demand);
  if (fit.blocks_per_sm == 0 || fit.percent > limits["max_occupancy"]) return std::nullopt;
  if (!(fit.limiters & (kLimitRegisters | kLimitShared))) return std::nullopt;
  Finding finding =
      make_finding(low_occupancy_by_design_rule,
                   fmt::format("{}: {} occupancy by design: {} threads × {} registers, {} B of shared memory "
                               "leave {} block{}, {} of {} "
                               "warps ({})",
                               terminal_safe(short_kernel_name(name), 60), format_percent(fit.percent),
                               demand->threads, demand->registers, group_digits(demand->shared_bytes),
                               fit.blocks_per_sm, fit.blocks_per_sm == 1 ? "" : "s", fit.warps_per_sm,
                               fit.max_warps_per_sm, limiter_text(fit.limiters)));
  finding.range = std::string(facts.trace().text(group.launched_by));
  finding.saving_us = 0;
  finding.saving_per = "trace";
  finding.saving_basis = "nothing to save: more resident warps would need smaller tiles and more traffic";
  finding.confidence = Certainty::kHigh;
  finding.evidence.push_back(facts.evidence(group.first));
  finding.evidence_total = launches.count;
  return finding;
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  // One line per kernel and launch configuration, whoever launched it.
  std::map<std::pair<trace::StringId, uint32_t>, Launches> kernels;
  for (const KernelGroup& group : facts.metrics().kernels) {  // longest first
    if (group.cls != trace::EventClass::kKernel || facts.metrics().cpu_only) continue;
    if (!tiles_by_design(facts.metrics().decoded(group.name)) || !facts.device_of(group.first)) continue;
    Launches& launches = kernels[{group.name, group.config}];
    if (!launches.example) launches.example = &group;
    launches.count += group.count;
    launches.ns += group.device_ns;
  }
  std::vector<Finding> findings;
  std::vector<const Launches*> most;
  for (const auto& [key, launches] : kernels)
    if (facts.share(launches.ns) >= limits["min_share"]) most.push_back(&launches);
  std::stable_sort(most.begin(), most.end(),
                   [](const Launches* a, const Launches* b) { return a->ns > b->ns; });
  for (const Launches* launches : most) {
    if (static_cast<double>(findings.size()) >= limits["most_lines"]) break;
    if (std::optional<Finding> finding = describe(facts, limits, *launches))
      findings.push_back(std::move(*finding));
  }
  return findings;
}

}  // namespace

const Rule low_occupancy_by_design_rule{
    .id = "low-occupancy-by-design",
    .category = RuleCategory::kOccupancy,
    .severity = Severity::kInfo,
    .summary = "A tiled kernel keeps few warps resident, as it was built to.",
    .what =
        "Fused attention and tensor-core products of low theoretical occupancy, limited by registers or "
        "shared "
        "memory, with a noticeable share of device time.",
    .why =
        "Such a kernel hides latency by asynchronous copies and instruction-level parallelism within a warp, "
        "not by "
        "many warps: its accumulators fill the register file on purpose. Occupancy says nothing about its "
        "speed.",
    .remedy = "None needed. Judge it by TFLOP/s or by bytes per second against the device's peak.",
    .false_positives =
        "A tile that is too large for the problem also looks like this; compare with other tile sizes.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsResources,
    .check = check};

}  // namespace attnscope
