#pragma once
// A comparison as text for a terminal, as JSON (attnscope.compare/1) and as Markdown. They only format.

#include "compare/compare.h"

#include <string>

namespace attnscope::compare {

struct TextStyle {
  bool colour = false;
  int width = 100;  // columns; less important table columns go when they do not fit
};

std::string render_text(const CompareResult& result, const TextStyle& style = {});
std::string render_markdown(const CompareResult& result);
std::string render_json(const CompareResult& result);
// Timelines are there for variants whose recording was kept.
std::string render_html(const CompareResult& result);

// Statements that the text and the Markdown report share.

// "flash is fastest: 45.1 µs, 1.27 × cudnn, 20.7 × naive. It moves 67 MB; naive moves 1.9 GB."
std::string verdict(const CompareResult& result);
// "attnscope 0.1.0 · AMD EPYC, 2 threads · causal attention, batch …"
std::string headline(const CompareResult& result);
// What the arithmetic and the memory traffic would take at the measured peaks.
std::string expectation_text(const CompareResult& result);
// How times and counts were taken.
std::string method_text(const CompareResult& result);
// "2 of 16 rows …" for rows where every key is masked and the variant gives NaN; empty when there are none.
std::string empty_row_text(const VariantResult& variant);

// A broken guess, explained by what ran: one headline and what it was made of.
struct BreakText {
  std::string headline;              // "naive: one copy you did not write, 33.6 MB, 5.6 ms per call (7 %)"
  std::vector<std::string> details;  // causes with their cost, remedies
};
std::vector<BreakText> explain_breaks(const VariantResult& variant, const CompareResult& result);

// Findings that no broken guess showed, one line a rule: the first variant's figures, all variants' names.
std::vector<std::string> other_findings(const CompareResult& result);

// Commands worth running next.
std::vector<std::string> next_steps(const CompareResult& result);

}  // namespace attnscope::compare
