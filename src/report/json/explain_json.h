#pragma once
// attnscope.explain/1: docs/schemas/explain.schema.json.

#include "report/explain_model.h"
#include "report/ranks.h"

#include <span>
#include <string>
#include <string_view>

namespace attnscope::report {

std::string explain_json(const ExplainModel& model, std::string_view version);
// Several traces: {"schema":"attnscope.explain-ranks/1","ranks":[documents of explain_json
// …],"comparison":{…}}.
std::string explain_ranks_json(std::span<const std::string> documents, const RankComparison& comparison,
                               std::string_view version);

}  // namespace attnscope::report
