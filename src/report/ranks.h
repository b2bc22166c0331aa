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

RankComparison compare_ranks(std::span<const ExplainModel> models);
// "rank 3", or the file's name when the trace does not say.
std::string rank_label(const ExplainModel& model);

}  // namespace attnscope::report
