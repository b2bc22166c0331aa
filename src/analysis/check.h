#pragma once
// A guess held against a trace, line by line.

#include "analysis/finding.h"
#include "analysis/guess.h"
#include "analysis/metrics.h"

#include <string>
#include <vector>

namespace attnscope {

enum class Verdict : uint8_t {
  kHeld,
  kBroken,
  kUnknown,  // the trace does not hold what is needed to tell; counts as not held
};
std::string_view verdict_name(Verdict verdict);  // "held", "broken", "unknown"

struct CheckLine {
  std::string key;   // "kernels"
  std::string text;  // "kernels = 5"
  Verdict verdict = Verdict::kHeld;
  std::string seen;                // "5 per call × 3 calls"
  std::vector<Evidence> evidence;  // the events that broke it, the first few
  uint64_t evidence_total = 0;
  int line = 0;  // in the guess
};

struct CheckSubject {
  std::string name;  // as the guess writes it
  uint64_t calls = 0;
  std::vector<CheckLine> lines;
};

struct CheckReport {
  std::vector<CheckSubject> subjects;
  uint64_t held = 0, broken = 0, unknown = 0;
  bool all_held() const { return broken == 0 && unknown == 0; }
};

// Counts are those launched by the whole process while the call was open, and must agree in every call;
// times are the median over the calls. A table that names nothing in the trace is broken.
CheckReport check_guess(const Metrics& metrics, const Guess& guess);

// A guess that this trace fulfils, as TOML: its ranges and attention operators (else its costliest
// operators), with times a quarter above what was seen. Every line of it holds on the same trace.
Result<std::string> write_guess(const Metrics& metrics);

}  // namespace attnscope
