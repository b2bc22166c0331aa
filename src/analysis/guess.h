#pragma once
// A guess: what somebody expects a trace to show, range by range, read from a TOML file. Each table names a
// range or an operator; figures are per call unless the key ends in _total:
//
//   ["attn_fwd"]
//   kernels = 5
//   device_time = "<= 200 us"

#include "analysis/kernel_name.h"
#include "attnscope/result.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace attnscope {

enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

// "<= 200 us": times are kept in nanoseconds, percentages as written.
struct Comparison {
  CompareOp op = CompareOp::kEqual;
  double value = 0;
  std::string text;  // as written, for reports
  bool holds(double seen) const;
};

enum class GuessKey : uint8_t {
  kKernels,
  kCopies,
  kFills,
  kSequence,
  kBackend,
  kTensorCores,
  kDtype,
  kDeviceTime,
  kHostTime,
  kOccupancy
};

struct Expectation {
  GuessKey key = GuessKey::kKernels;
  bool total = false;  // over all calls instead of per call
  std::variant<Comparison, std::vector<KernelKind>, std::string, bool> value;
  std::string name;  // the key as written: "kernels", "device_time_total"
  std::string text;  // the line as people read it: "kernels = 5"
  int line = 0;
};

// A compiled pattern; linear in the length of what it is held against, whatever the pattern.
class NamePattern {
 public:
  NamePattern() = default;
  static Result<NamePattern> compile(std::string_view pattern);
  bool matches(std::string_view name) const;  // the whole name
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

struct GuessTable {
  std::string name;
  NamePattern pattern;  // set when match = "regex"
  std::vector<Expectation> expectations;
  int line = 0;
  bool matches(std::string_view range) const { return pattern ? pattern.matches(range) : range == name; }
};

struct Guess {
  std::vector<GuessTable> tables;
};

// Reads a guess. The errors name the line, the value and what would be right; `source` is the file's name.
// Files above 1 MiB, and names nested more than 32 deep, are refused.
Result<Guess> parse_guess(std::string_view toml, std::string_view source);
Result<Guess> read_guess_file(const std::string& path);
// The text of a guess file, held against what the TOML parser must not see: more than 1 MiB, names nested so
// deep that it would recurse off its stack. Errors: kIo with the remedy, kBadInput.
Result<std::string> read_guess_text(const std::string& path, const std::string& remedy);

// "<= 200 us", "5", ">= 12 %". `unit` says what the key measures.
enum class GuessUnit : uint8_t { kCount, kTime, kPercent };
Result<Comparison> parse_comparison(std::string_view text, GuessUnit unit);

}  // namespace attnscope
