#pragma once
// A rule is declared once, as one const aggregate in rules/<id>.cpp; the command line, the docs page and the
// reports are rendered from it. rules/CMakeLists.txt lists the rules and generates the table.

#include "analysis/finding.h"
#include "analysis/rule_facts.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

enum class RuleCategory : uint8_t { kAttention, kMemory, kOccupancy, kHost, kMeasurement };
std::string_view category_name(RuleCategory category);

// A limit that decides whether the rule speaks. Tests and `explain --set` may replace its value.
struct Threshold {
  std::string_view name;  // "min_bytes"
  double value;
  std::string_view unit;  // "B", "%", "µs", "calls"
  std::string_view meaning;
};

// What a trace must hold for the rule to be evaluated at all.
enum RuleNeeds : unsigned {
  kNeedsNothing = 0,
  kNeedsWork = 1,         // device work, or a CPU recording's kernels, or operators of a CPU
  kNeedsDevice = 2,       // kernels on a device
  kNeedsOperators = 4,    // operators on the host
  kNeedsLinks = 8,        // at least one launch that explains device work
  kNeedsShapes = 16,      // record_shapes
  kNeedsSteps = 32,       // at least two steps
  kNeedsResources = 64,   // registers and block sizes of kernels, and the device's properties
  kNeedsAttention = 128,  // at least one attention call
};

// The thresholds in force during one evaluation. (attnscope::Limits is the request's, attention.h.)
class RuleLimits {
 public:
  RuleLimits(std::span<const Threshold> declared, std::span<const Threshold> replaced)
      : declared_(declared), replaced_(replaced) {}
  // Every name asked for is declared by the rule: a test holds it.
  double operator[](std::string_view name) const;

 private:
  std::span<const Threshold> declared_, replaced_;
};

struct Rule {
  std::string_view id;
  RuleCategory category;
  Severity severity;  // of its findings, unless a finding lowers it
  std::string_view summary;
  std::string_view what;  // what is looked for
  std::string_view why;   // why it costs, or why the figure misleads
  std::string_view remedy;
  std::string_view false_positives;  // when it is right to ignore it, and what it leaves out
  std::span<const Threshold> thresholds;
  unsigned needs;
  std::vector<Finding> (*check)(const RuleFacts& facts, const RuleLimits& limits);
};

// Every rule, in the order of rules/CMakeLists.txt. Generated.
std::span<const Rule* const> rules();
const Rule* find_rule(std::string_view id);  // null when there is none

struct NotEvaluated {
  std::string id;
  std::string reason;  // "no input shapes were recorded (record_shapes=True)"
};

struct RuleReport {
  std::vector<Finding> findings;  // most severe first, then by saving
  std::vector<NotEvaluated> not_evaluated;
};

// `--set hidden-copy.min_bytes=4096`.
struct ThresholdValue {
  std::string name;  // "<rule id>.<threshold>"
  double value = 0;
};

struct RuleOptions {
  std::vector<std::string> only;  // empty: all
  std::vector<ThresholdValue> thresholds;
};

// Evaluates every rule on the metrics of a trace. Never fails; a rule whose input is missing is listed.
RuleReport run_rules(const Metrics& metrics, const RuleOptions& options = {});

// Fills the fields that every finding of a rule shares.
Finding make_finding(const Rule& rule, std::string title);

// The rule's page as Markdown: docs/rules and `attnscope rules ID` show the same text.
std::string rule_page(const Rule& rule);

}  // namespace attnscope
