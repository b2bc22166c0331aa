#pragma once
// The report of `diff`.

#include "analysis/diff.h"
#include "report/text/explain_text.h"

#include <string>
#include <string_view>

namespace attnscope::report {

// "B is 8 % slower: step 1.06 ms → 1.15 ms (95 %: 1.05 to 1.11)".
std::string diff_verdict(const Diff& diff);
std::string diff_text(const Diff& diff, std::string_view name_a, std::string_view name_b, double threshold,
                      const TextOptions& options);
std::string diff_json(const Diff& diff, std::string_view name_a, std::string_view name_b, double threshold,
                      std::string_view version);

}  // namespace attnscope::report
