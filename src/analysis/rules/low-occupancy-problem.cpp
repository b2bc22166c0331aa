// Kernels that live on many resident warps and do not have them.

#include "analysis/occupancy.h"
#include "analysis/rule.h"
#include "base/text.h"

#include <fmt/format.h>

namespace attnscope {

extern const Rule low_occupancy_problem_rule;

namespace {

constexpr Threshold kThresholds[] = {
    {"max_occupancy", 25, "%", "of the warps that could be resident, for the kernel and its grid"},
    {"min_share", 5, "%", "of the trace's device time in kernels of this name and launch"},
    {"min_time", 10, "µs", "per kernel; shorter ones are dominated by starting up"}};

// These hide memory latency by having many warps in flight.
bool lives_on_warps(KernelKind kind) {
  switch (kind) {
    case KernelKind::kElementwise:
    case KernelKind::kMask:
    case KernelKind::kCopy:
    case KernelKind::kCast:
    case KernelKind::kFill:
    case KernelKind::kTranspose:
    case KernelKind::kReduction:
    case KernelKind::kSoftmax:
    case KernelKind::kNorm:
    case KernelKind::kRope:
    case KernelKind::kGather: return true;
    default: return false;
  }
}

std::string cause(const Occupancy& fit, const BlockDemand& demand, const SmLimits& sm) {
  if (fit.waves && *fit.waves < 1)
    return fmt::format("a grid of {} blocks fills {} of what {} multiprocessors could hold",
                       group_digits(demand.grid_blocks), percent_text(*fit.waves * 100), sm.sms);
  return fmt::format("{} threads × {} registers, {} B of shared memory leave {}", demand.threads,
                     demand.registers, group_digits(demand.shared_bytes), occupancy_line(fit));
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::vector<Finding> findings;
  for (const KernelGroup& group : facts.metrics().kernels) {
    if (group.cls != trace::EventClass::kKernel || facts.metrics().cpu_only) continue;
    const KernelName& name = facts.metrics().decoded(group.name);
    const trace::DeviceProperties* device = facts.device_of(group.first);
    if (!lives_on_warps(name.kind) || !device || facts.share(group.device_ns) < limits["min_share"]) continue;
    if (us(group.median_ns) < limits["min_time"]) continue;
    const std::optional<SmLimits> sm = sm_limits(*device);
    const std::optional<BlockDemand> demand = block_demand(facts.trace().kernel_configs()[group.config]);
    if (!sm || !demand) continue;
    const Occupancy fit = occupancy(*sm, *demand);
    const double reached = fit.achieved_percent.value_or(fit.percent);
    if (fit.blocks_per_sm == 0 || reached > limits["max_occupancy"]) continue;
    Finding finding =
        make_finding(low_occupancy_problem_rule,
                     fmt::format("{}: at most {} occupancy, {} each ({} of device time): {}",
                                 terminal_safe(short_kernel_name(name), 60), percent_text(reached),
                                 format_time_us(us(group.median_ns)),
                                 percent_text(facts.share(group.device_ns)), cause(fit, *demand, *sm)));
    finding.range = std::string(facts.trace().text(group.launched_by));
    finding.saving_basis = "not estimated: depends on whether memory bandwidth is already reached";
    finding.confidence = Certainty::kMedium;
    finding.evidence.push_back(facts.evidence(group.first));
    finding.evidence_total = group.count;
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule low_occupancy_problem_rule{
    .id = "low-occupancy-problem",
    .category = RuleCategory::kOccupancy,
    .severity = Severity::kWarning,
    .summary = "A memory-bound kernel runs with few resident warps.",
    .what =
        "Elementwise, reduction, softmax, normalisation and copy kernels with a large share of device time "
        "whose "
        "registers, shared memory or grid leave at most a quarter of the warps resident.",
    .why =
        "These kernels wait for memory and hide that by switching between warps. With few of them the memory "
        "system "
        "is not kept busy.",
    .remedy =
        "If the grid is small: give it more independent work (a larger batch, a split of the reduction), or "
        "run "
        "it beside other work. If registers or shared memory limit it: smaller blocks, fewer registers per "
        "thread.",
    .false_positives =
        "Products, fused attention and collectives are left out: they are built for few warps. A kernel "
        "that runs beside others on another stream need not fill the device.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsResources,
    .check = check};

}  // namespace attnscope
