#pragma once
// The report of `explain` as Markdown, for issues and pull requests.

#include "report/explain_model.h"
#include "report/text/explain_text.h"

#include <string>
#include <string_view>

namespace attnscope::report {

// GitHub-flavoured; every name from the trace is escaped, so that none can make a link, a tag or a table
// cell.
std::string explain_markdown(const ExplainModel& model, const TextOptions& options);

// Text in which no character has a meaning in Markdown or HTML; line breaks become spaces.
std::string escape_markdown(std::string_view text, size_t max_chars = 200);
// The same between backticks, as code.
std::string markdown_code(std::string_view text, size_t max_chars = 200);

}  // namespace attnscope::report
