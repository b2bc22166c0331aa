#pragma once
// What every subcommand shares: parsing with the right exit codes, error lines, output files, and the
// fit of a text to the terminal.

#include "attnscope/result.h"
#include "cli/command.h"

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

// --json, --markdown, --html of a command; a file, or - for stdout.
struct OutputFiles {
  std::string json;
  std::string markdown;
  std::string html;
  enum Kinds : unsigned { kJson = 1, kMarkdown = 2, kHtml = 4 };
  void add_to(CLI::App& app, unsigned kinds);
  // True when one of them takes stdout: the text report is then not printed.
  bool takes_stdout() const { return json == "-" || markdown == "-" || html == "-"; }
};

// Writes to a file by a temporary beside it and a rename, so that a reader never sees half of it; "-" is
// the context's stdout.
Status write_output(Context& context, const std::string& path, std::string_view content);

}  // namespace attnscope::cli
