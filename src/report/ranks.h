#pragma once
// Several traces of one job, rank by rank.

#include "report/explain_model.h"

#include <span>
#include <string>
#include <vector>

namespace attnscope::report {

struct RankRow {
  std::string figure;          // "step, host", "device time", "idle", "kernels"
  std::string unit;            // "us", "%", "count"
  std::vector<double> values;  // by trace, in the order given; NaN never: unknown rows are left out
  double spread_percent = 0;   // largest over smallest − 1
};

struct RankComparison {
  std::string text;  // one sentence: who is slowest, by how much
  std::vector<RankRow> rows;
};

// What a comparison needs of one trace, so that the traces themselves need not be kept.
struct RankSummary {
  std::string label;  // "rank 3", or the file's name when the trace does not say
  double step_host_us = -1, step_device_us = -1, device_us = -1, idle_percent = -1;
  double kernels = -1, copies = -1, findings = -1;
};
RankSummary summarise(const ExplainModel& model);
RankComparison compare_ranks(std::span<const RankSummary> ranks);

}  // namespace attnscope::report
