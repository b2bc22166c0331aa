#pragma once
// attnscope.explain/1: docs/schemas/explain.schema.json.

#include "report/explain_model.h"

#include <span>
#include <string>

namespace attnscope::report {

std::string explain_json(const ExplainModel& model, std::string_view version);
// Several ranks: {"schema":"attnscope.explain-ranks/1","ranks":[explain/1 …],"comparison":{…}}.
std::string explain_ranks_json(std::span<const ExplainModel> models, std::string_view version);

}  // namespace attnscope::report
