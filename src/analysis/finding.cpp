#include "analysis/finding.h"

namespace attnscope {

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kInfo: return "info";
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kError: return "error";
  }
  return "note";
}

std::optional<Severity> severity_from(std::string_view name) {
  for (Severity s : {Severity::kInfo, Severity::kNote, Severity::kWarning, Severity::kError})
    if (severity_name(s) == name) return s;
  return std::nullopt;
}

std::string_view certainty_name(Certainty certainty) {
  switch (certainty) {
    case Certainty::kLow: return "low";
    case Certainty::kMedium: return "medium";
    case Certainty::kHigh: return "high";
  }
  return "medium";
}

}  // namespace attnscope
