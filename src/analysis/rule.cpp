#include "analysis/rule.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope {

std::string_view category_name(RuleCategory category) {
  switch (category) {
    case RuleCategory::kAttention: return "attention";
    case RuleCategory::kMemory: return "memory";
    case RuleCategory::kOccupancy: return "occupancy";
    case RuleCategory::kHost: return "host";
    case RuleCategory::kMeasurement: return "measurement";
  }
  return "attention";
}

double RuleLimits::operator[](std::string_view name) const {
  for (const Threshold& t : replaced_)
    if (t.name == name) return t.value;
  for (const Threshold& t : declared_)
    if (t.name == name) return t.value;
  return 0;
}

const Rule* find_rule(std::string_view id) {
  for (const Rule* rule : rules())
    if (rule->id == id) return rule;
  return nullptr;
}

Finding make_finding(const Rule& rule, std::string title) {
  Finding finding;
  finding.id = rule.id;
  finding.severity = rule.severity;
  finding.title = std::move(title);
  finding.why = rule.why;
  finding.remedy = rule.remedy;
  return finding;
}

namespace {

bool has_resources(const Metrics& metrics) {
  for (const KernelGroup& group : metrics.kernels) {
    if (group.cls != trace::EventClass::kKernel || metrics.cpu_only) continue;
    const trace::KernelConfig& config = metrics.trace->kernel_configs()[group.config];
    if (config.registers >= 0 && config.block[0] > 0) return true;
  }
  return false;
}

// Why a rule cannot be evaluated; empty when it can.
std::string missing_input(const RuleFacts& facts, unsigned needs) {
  const Metrics& metrics = facts.metrics();
  const bool gpu = facts.on_gpu();
  if ((needs & kNeedsWork) && facts.work().empty()) return "the trace holds no kernels, copies or fills";
  if ((needs & kNeedsDevice) && !gpu)
    return "no device work was recorded (profile with ProfilerActivity.CUDA)";
  if ((needs & kNeedsOperators) &&
      std::none_of(metrics.ranges.begin(), metrics.ranges.end(),
                   [](const RangeStats& r) { return r.cls == trace::EventClass::kOperator; }))
    return "no operators were recorded (profile with ProfilerActivity.CPU)";
  if ((needs & kNeedsLinks) && gpu && metrics.launches == 0)
    return "no launch in the file explains any device work";
  if ((needs & kNeedsShapes) && !metrics.trace->metadata().record_shapes) {
    const bool any = std::any_of(metrics.ranges.begin(), metrics.ranges.end(), [&](const RangeStats& r) {
      return r.cls == trace::EventClass::kOperator && metrics.trace->operator_args(r.first).recorded();
    });
    if (!any) return "no input shapes were recorded (profile with record_shapes=True)";
  }
  if ((needs & kNeedsSteps) && metrics.steps.size() < 2)
    return "fewer than two steps were recorded (call profiler.step(), or mark the repeated part with a "
           "range)";
  if ((needs & kNeedsResources) && !has_resources(metrics))
    return "the trace does not record the kernels' registers and blocks";
  if ((needs & kNeedsAttention) && metrics.attention_calls.empty()) return "no attention call was found";
  return {};
}

}  // namespace

RuleReport run_rules(const Metrics& metrics, const RuleOptions& options) {
  RuleReport report;
  const RuleFacts facts(metrics);
  for (const Rule* rule : rules()) {
    if (!options.only.empty() &&
        std::find(options.only.begin(), options.only.end(), rule->id) == options.only.end())
      continue;
    if (std::string reason = missing_input(facts, rule->needs); !reason.empty()) {
      report.not_evaluated.push_back({std::string(rule->id), std::move(reason)});
      continue;
    }
    std::vector<Threshold> replaced;
    for (const ThresholdValue& given : options.thresholds) {
      const std::string_view name = given.name;
      if (name.starts_with(rule->id) && name.substr(rule->id.size()).starts_with("."))
        replaced.push_back({name.substr(rule->id.size() + 1), given.value, {}, {}});
    }
    for (Finding& finding : rule->check(facts, RuleLimits(rule->thresholds, replaced)))
      report.findings.push_back(std::move(finding));
  }
  std::stable_sort(report.findings.begin(), report.findings.end(), [](const Finding& a, const Finding& b) {
    if (a.severity != b.severity) return a.severity > b.severity;
    return a.saving_us.value_or(0) > b.saving_us.value_or(0);
  });
  return report;
}

std::string rule_page(const Rule& rule) {
  std::string page = fmt::format("# {}\n\n{}\n\nCategory: {} · severity: {}\n\n", rule.id, rule.summary,
                                 category_name(rule.category), severity_name(rule.severity));
  page += fmt::format("## What\n\n{}\n\n## Why\n\n{}\n\n## Remedy\n\n{}\n\n## When to ignore it\n\n{}\n",
                      rule.what, rule.why, rule.remedy, rule.false_positives);
  if (!rule.thresholds.empty()) {
    page += "\n## Thresholds\n\n| name | value | meaning |\n|---|---|---|\n";
    for (const Threshold& t : rule.thresholds)
      page += fmt::format("| `{}` | {} {} | {} |\n", t.name, t.value, t.unit, t.meaning);
  }
  return page;
}

}  // namespace attnscope
