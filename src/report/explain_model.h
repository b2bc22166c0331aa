#pragma once
// Everything `explain` says about one trace, decided; renderers only format it.

#include "analysis/metrics.h"
#include "analysis/roofline.h"
#include "analysis/rule.h"
#include "trace/link.h"
#include "trace/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnscope::report {

// The one sentence a person should take away.
struct Verdict {
  std::string id;    // "idle", "busy", "attention", "cpu", "no-device-work", "empty"
  std::string text;  // without a final full stop when it ends in one anyway
};

// Something the trace could have held and does not.
struct NotSeen {
  std::string id;    // "shapes", "device-work", "annotations", "steps", "operators", "launches"
  std::string text;  // what is missing and what follows from it
  std::vector<std::string> python;  // lines that record it; empty when nothing can be done in Python
};

// One attention group with everything a line needs.
struct AttentionSummary {
  uint32_t group = 0;  // into Metrics::attention_groups
  uint64_t calls = 0;
  double median_us = 0;  // device time per call; host time in a CPU-only trace
  bool host_time = false;
  std::optional<Roofline> roofline;  // of the median call
  std::string device_peaks;          // the table's name for the device; empty: not in it
  std::string arch;                  // "sm_90"
};

struct Diagnostic {
  trace::Diag id = trace::Diag::kCount;
  uint64_t count = 0;
};

struct ExplainModel {
  std::string source;  // the file's name as given
  const trace::Trace* trace = nullptr;
  const trace::Links* links = nullptr;
  const Metrics* metrics = nullptr;
  RuleReport rules;
  Verdict verdict;
  std::string device;  // "NVIDIA H200", "2 × NVIDIA H200", "" for none
  std::vector<NotSeen> not_seen;
  std::vector<AttentionSummary> attention;
  std::vector<Diagnostic> diagnostics;  // of the reader and the linker, worst first
  // Per step, medians; −1: not known.
  int64_t step_host_ns = -1, step_device_ns = -1, step_busy_ns = -1;
  double idle_percent = -1;  // of the devices' windows
};

// metrics, its trace and links must outlive the model.
ExplainModel make_explain_model(std::string source, const Metrics& metrics, RuleReport rules);

// Python lines that record what `missing` names, for the error and help texts.
std::vector<std::string> recording_recipe();

// The work ran on the host: a CPU-only trace, or our own recording of a CPU backend.
bool ran_on_host(const Metrics& metrics);

// Time of one kernel group as a share of all device work, in percent.
double share_percent(const Metrics& metrics, int64_t ns);

// "8 calls, 5 kernels + 1 copy + 1 fill per call": counts without rounding.
std::string work_text(const trace::WorkSum& work);

}  // namespace attnscope::report
