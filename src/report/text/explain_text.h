#pragma once
// The text report of `explain`. All names from the trace are made safe for a terminal here.

#include "attnscope/result.h"
#include "report/explain_model.h"
#include "report/ranks.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace attnscope::report {

struct TextOptions {
  size_t width = 100;
  bool colour = false;
  size_t top = 5;  // rows of the kernel table; twice as many findings
};

// The report; ends with the next step.
std::string explain_text(const ExplainModel& model, const TextOptions& options);
// One finding with its why, evidence, remedy and basis; number counts from 1 as in the report.
Result<std::string> finding_text(const ExplainModel& model, size_t number, const TextOptions& options);
// One range or operator: calls, figures, and what was launched inside it.
Result<std::string> range_text(const ExplainModel& model, std::string_view name, const TextOptions& options);
std::string ranks_text(std::span<const RankSummary> ranks, const TextOptions& options);

}  // namespace attnscope::report
