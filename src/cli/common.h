#pragma once
// What every subcommand shares: parsing with the right exit codes, error lines, and the
// fit of a text to the terminal.

#include "attnscope/result.h"
#include "cli/command.h"
#include "cli/outputs.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace attnscope::cli {

// Colour, width and character set of stdout from the environment (NO_COLOR, TERM, COLUMNS, LC_ALL …).
Terminal detect_terminal();

// Prints "error: message" and the remedy on its own line to stderr; returns the exit code.
int print_error(Context& context, const Error& error);

// Parses; when there is nothing left to do (help was asked for, or the usage was wrong) the exit code.
// The help ends with the command's example.
std::optional<int> parse(Context& context, CLI::App& app, const Arguments& arguments);

// Prints a text report: its characters replaced when the terminal is not UTF-8.
void print_text(Context& context, std::string_view text);
// "µ" -> "u", "·" -> "|", "…" -> "..." and so on; any other character outside ASCII -> "?".
std::string to_ascii(std::string_view utf8);

// A CLI11 check: why an empty value is none, or nothing.
std::string not_empty(const std::string& value);
// The same of what is no int64: CLI11 itself would take the nearest one.
std::string whole_number(const std::string& value);

}  // namespace attnscope::cli
