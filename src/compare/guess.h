#pragma once
// What was expected before anything ran, per variant, and where what was seen differs.

#include "compare/counts.h"

#include "attnscope/result.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace attnscope::compare {

struct Guess {
  std::optional<int> kernels, copies, fills;
};

struct GuessSheet {
  std::map<std::string, Guess> by_variant;  // what a person or a file says; others are then not guessed
  std::string fastest;                      // empty: not guessed
  std::string source;                       // "guess.toml", "asked"; empty: the formula
};

// A TOML table per variant with any of kernels, copies, fills: ["naive"] kernels = 5. Errors: kIo when it
// cannot be read, kBadInput with the line when it is not understood, and when it states nothing.
[[nodiscard]] Result<GuessSheet> read_guess_file(const std::string& path);

// One figure that did not come out as guessed.
struct GuessBreak {
  std::string variant;
  std::string figure;  // "kernels", "copies", "fills"
  int guessed = 0;
  int seen = 0;
};
std::vector<GuessBreak> broken(const std::string& variant, const Guess& guess, const CallCounts& counts);

}  // namespace attnscope::compare
