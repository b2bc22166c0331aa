#include "compare/guess.h"

#include "analysis/guess.h"
#include "base/text.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>

namespace attnscope::compare {
namespace {

constexpr std::array<std::pair<const char*, std::optional<int> Guess::*>, 3> kFigures{{
    {"kernels", &Guess::kernels},
    {"copies", &Guess::copies},
    {"fills", &Guess::fills},
}};

Status read_variant(const std::string& path, const std::string& variant, const toml::table& table,
                    Guess& guess) {
  for (const auto& [key, value] : table) {
    const std::string name(key.str());
    const auto* figure =
        std::find_if(kFigures.begin(), kFigures.end(), [&](const auto& f) { return name == f.first; });
    const auto where = value.source().begin;
    if (figure == kFigures.end())
      return fail(ErrorCode::kBadInput,
                  fmt::format("{} line {}: [{}] has no figure '{}' that compare counts", path, where.line,
                              variant, name),
                  "figures are kernels, copies and fills; `attnscope check` knows more");
    const auto number = value.value<int64_t>();
    if (!value.is_integer() || *number < 0 || *number > 1'000'000)
      return fail(ErrorCode::kBadInput, fmt::format("{} line {}: {} of [{}] must be a whole number from 0",
                                                    path, where.line, name, variant));
    guess.*(figure->second) = static_cast<int>(*number);
  }
  return {};
}

}  // namespace

Result<GuessSheet> read_guess_file(const std::string& path) {
  const char* remedy = "give a guess file (TOML) with --guess: [naive] and below it kernels = 5";
  ATTNSCOPE_ASSIGN(const std::string text, read_guess_text(path, remedy));
  GuessSheet sheet;
  sheet.source = path;
  try {
    const toml::table root = toml::parse(text, path);
    for (const auto& [key, value] : root) {
      const std::string variant(key.str());
      const toml::table* table = value.as_table();
      if (!table && variant == "fastest" && value.is_string()) {
        sheet.fastest = *value.value<std::string>();
        continue;
      }
      if (!table)
        return fail(ErrorCode::kBadInput,
                    fmt::format("{} line {}: '{}' is not a table", path, value.source().begin.line, variant),
                    "write [\"naive\"] and below it kernels = 5");
      ATTNSCOPE_TRY(read_variant(path, variant, *table, sheet.by_variant[variant]));
    }
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::kBadInput,
                fmt::format("{} line {}: {}", path, error.source().begin.line, error.description()),
                "e.g. [naive] and below it kernels = 5");
  }
  for (const auto& [variant, guess] : sheet.by_variant)
    if (!guess.kernels && !guess.copies && !guess.fills)
      return fail(ErrorCode::kBadInput, fmt::format("{}: [{}] states nothing", path, variant),
                  "give it kernels, copies or fills, or leave it out");
  if (sheet.by_variant.empty() && sheet.fastest.empty())
    return fail(ErrorCode::kBadInput, fmt::format("{} states nothing", path), remedy);
  return sheet;
}

std::vector<GuessBreak> broken(const std::string& variant, const Guess& guess, const CallCounts& counts) {
  std::vector<GuessBreak> breaks;
  const auto test = [&](const char* figure, const std::optional<int>& guessed, int seen) {
    if (guessed && *guessed != seen) breaks.push_back({variant, figure, *guessed, seen});
  };
  test("kernels", guess.kernels, counts.kernels);
  test("copies", guess.copies, counts.copies);
  test("fills", guess.fills, counts.fills);
  return breaks;
}

}  // namespace attnscope::compare
