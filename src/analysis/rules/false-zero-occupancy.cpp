// A reported occupancy of 0 % that is the profiler's mistake.

#include "analysis/occupancy.h"
#include "analysis/rule.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <set>

namespace attnscope {

extern const Rule false_zero_occupancy_rule;

namespace {

using trace::EventIndex;

constexpr Threshold kThresholds[] = {{"min_kernels", 1, "kernels", "with a false zero"}};

struct Launches {
  std::vector<EventIndex> events;
  std::set<trace::StringId> names;
  Total ns;
  int64_t least_shared = INT64_MAX, most_shared = 0;
  double least = 1e9, most = 0;
  Occupancy example;
};

// One device's false zeros.
void add(const RuleFacts& facts, const Work& work, const trace::KernelConfig& config, const Occupancy& real,
         Launches& into) {
  into.events.push_back(work.event);
  into.names.insert(facts.trace().name_id(work.event));
  into.ns += work.ns;
  into.least_shared = std::min(into.least_shared, config.shared_bytes);
  into.most_shared = std::max(into.most_shared, config.shared_bytes);
  into.least = std::min(into.least, real.percent);
  into.most = std::max(into.most, real.percent);
  into.example = real;
}

std::vector<Finding> check(const RuleFacts& facts, const RuleLimits& limits) {
  std::map<int, Launches> devices;
  std::map<int, int64_t> limit_of;
  for (const Work& work : facts.work()) {
    if (work.cls != trace::EventClass::kKernel || facts.metrics().cpu_only) continue;
    const trace::DeviceProperties* device = facts.device_of(work.event);
    if (!device) continue;
    const trace::KernelConfig& config = facts.trace().kernel_config(work.event);
    if (config.reported_occupancy_pct != 0 || zero_cause(*device, config) != ZeroCause::kFalse) continue;
    const SmLimits sm = *sm_limits(*device);
    limit_of[device->id] = sm.shared_per_block;
    add(facts, work, config, occupancy(sm, *block_demand(config)), devices[device->id]);
  }
  std::vector<Finding> findings;
  for (const auto& [id, launches] : devices) {
    if (static_cast<double>(launches.events.size()) < limits["min_kernels"]) continue;
    const bool one = launches.least == launches.most;
    const std::string real =
        one ? fmt::format("{} ({})", format_percent(launches.most), occupancy_line(launches.example))
            : fmt::format("{} to {}", format_percent(launches.least), format_percent(launches.most));
    const std::string shared =
        launches.least_shared == launches.most_shared
            ? group_digits(launches.most_shared)
            : group_digits(launches.least_shared) + " to " + group_digits(launches.most_shared);
    Finding finding = make_finding(
        false_zero_occupancy_rule,
        fmt::format("{} reported 0 %, really {}: {} B of shared memory > {} B, the "
                    "limit Kineto calculates with",
                    counted(launches.events.size(), "kernel"), real, shared, group_digits(limit_of[id])));
    if (launches.names.size() == 1)
      finding.range = terminal_safe(short_kernel_name(facts.metrics().decoded(*launches.names.begin())), 80);
    finding.saving_us = 0;
    finding.saving_per = "trace";
    finding.saving_basis = "nothing to save: the kernels are fine, the figure is wrong";
    finding.confidence = Certainty::kHigh;
    facts.cite(finding, launches.events);
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace

const Rule false_zero_occupancy_rule{
    .id = "false-zero-occupancy",
    .category = RuleCategory::kOccupancy,
    .severity = Severity::kNote,
    .summary = "The profiler reports 0 % occupancy for kernels that keep warps resident.",
    .what =
        "Kernels whose reported occupancy is 0 although their registers and shared memory leave at least one "
        "block "
        "resident, because they use more shared memory than a block may without opting in.",
    .why =
        "Kineto's calculator is given the default limit of shared memory per block (48 KiB) and never the "
        "opt-in "
        "limit. Above it the calculation finds no resident block. How the kernel was launched plays no part.",
    .remedy = "Read the figure given here instead: it uses the opt-in limit of the device.",
    .false_positives =
        "A grid too small to register also reads 0 %, and rightly so: those are not counted here.",
    .thresholds = kThresholds,
    .needs = kNeedsDevice | kNeedsResources,
    .check = check};

}  // namespace attnscope
