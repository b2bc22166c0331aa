#pragma once
// What a rule has to say about a trace: plain data that every report shows.

#include "trace/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// Note: worth knowing, nothing is wrong. Warning: costs something that can be had back. Error: a result or a
// figure is wrong.
enum class Severity : uint8_t { kInfo, kNote, kWarning, kError };
std::string_view severity_name(Severity severity);  // "info", "note", "warning", "error"
std::optional<Severity> severity_from(std::string_view name);

// How sure the rule is of its claim.
enum class Certainty : uint8_t { kLow, kMedium, kHigh };
std::string_view certainty_name(Certainty certainty);  // "low", "medium", "high"

// One event that shows it: its place in the file and its time relative to the trace's base.
struct Evidence {
  trace::EventIndex event = trace::kNoEvent;
  uint64_t ordinal = 0;
  int64_t ns = 0;
  friend bool operator==(const Evidence&, const Evidence&) = default;
};

struct Finding {
  std::string id;  // the rule's
  Severity severity = Severity::kNote;
  std::string title;               // one line with the figures
  std::string range;               // where: "attn_fwd", "step", an operator; empty: the whole trace
  std::vector<Evidence> evidence;  // the first few, in time order
  uint64_t evidence_total = 0;     // how many there are
  std::string why;
  std::string remedy;
  // What would be saved, per call, per step or in the whole trace (saving_per says which). Empty: not known;
  // 0: nothing, and saving_basis says why.
  std::optional<double> saving_us;
  std::string saving_per;  // "call", "step", "trace"
  std::string saving_basis;
  Certainty confidence = Certainty::kMedium;
  std::string group;  // findings of one group save the same time: their savings are not added
};

}  // namespace attnscope
