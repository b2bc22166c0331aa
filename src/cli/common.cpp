#include "cli/common.h"

#include "base/error.h"
#include "base/output_path.h"
#include "base/text.h"

#include <CLI/CLI.hpp>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <ostream>
#include <utility>

namespace attnscope::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = environment(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    return value.find("UTF-8") != std::string::npos || value.find("UTF8") != std::string::npos;
  }
  return false;
}

int terminal_width() {
  int width = 0;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  if (width == 0) width = std::atoi(environment("COLUMNS").c_str());
  return width == 0 ? 100 : std::clamp(width, 60, 200);
}

// Characters the reports use, and what stands for them on an ASCII terminal.
constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kAsciiFor{{
    {"µ", "u"},  {"·", "|"},  {"×", "x"},  {"…", "..."}, {"–", "-"},  {"—", "-"}, {"−", "-"},
    {"≤", "<="}, {"≥", ">="}, {"◄", "<"},  {"→", "->"},  {"←", "<-"}, {"█", "#"}, {"▌", "#"},
    {"░", "."},  {"≈", "~"},  {"±", "+-"}, {"│", "|"},   {"─", "-"},  {"’", "'"}, {"√", "sqrt "},
}};

// CLI11's text with the program's name in the usage line, and the command's example at the end.
std::string help_text(const CLI::App& app, std::string text) {
  const std::string usage = "Usage: " + app.get_name();
  if (const size_t at = text.find(usage); at != std::string::npos)
    text.replace(at, usage.size(), "Usage: attnscope " + app.get_name());
  while (text.ends_with("\n\n")) text.pop_back();
  for (const Command* command : commands())
    if (app.get_name() == command->name && text.find(command->example) == std::string::npos)
      text += std::string("\nExample: ") + command->example + "\n";
  return text;
}

}  // namespace

Terminal detect_terminal() {
  Terminal terminal;
  const bool out_is_terminal = isatty(STDOUT_FILENO) == 1;
  const std::string term = environment("TERM");
  terminal.colour = out_is_terminal && environment("NO_COLOR").empty() && term != "dumb" && !term.empty();
  // A pipe or a file gets UTF-8 unless the locale says otherwise by name; an unset locale on a terminal is
  // the C locale, which draws mojibake.
  const bool any_locale =
      !environment("LC_ALL").empty() || !environment("LC_CTYPE").empty() || !environment("LANG").empty();
  terminal.utf8 = any_locale ? locale_is_utf8() : !out_is_terminal;
  terminal.live = isatty(STDERR_FILENO) == 1 && term != "dumb";
  terminal.width = terminal_width();
  return terminal;
}

int print_error(Context& context, const Error& error) {
  std::string text = "error: " + terminal_safe(error.message, 2000) + "\n";
  if (!error.remedy.empty()) text += "  " + terminal_safe(error.remedy, 2000) + "\n";
  context.err << (context.terminal.utf8 ? text : to_ascii(text));
  return exit_code(error.code);
}

std::optional<int> parse(Context& context, CLI::App& app, const Arguments& arguments) {
  try {
    Arguments reversed(arguments.rbegin(), arguments.rend());
    app.parse(std::move(reversed));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    print_text(context, help_text(app, app.help()));
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    print_text(context, help_text(app, app.help("", CLI::AppFormatMode::All)));
    return 0;
  } catch (const CLI::ParseError& error) {
    return print_error(context, Error{ErrorCode::kInvalidArgument, error.what(),
                                      "see: attnscope " + app.get_name() + " --help"});
  }
}

std::string to_ascii(std::string_view utf8) {
  std::string out;
  out.reserve(utf8.size());
  while (!utf8.empty()) {
    if (static_cast<unsigned char>(utf8.front()) < 0x80) {
      out += utf8.front();
      utf8.remove_prefix(1);
      continue;
    }
    const auto* known = std::find_if(kAsciiFor.begin(), kAsciiFor.end(),
                                     [&](const auto& pair) { return utf8.starts_with(pair.first); });
    if (known != kAsciiFor.end()) {
      out += known->second;
      utf8.remove_prefix(known->first.size());
      continue;
    }
    out += '?';
    utf8.remove_prefix(1);
    while (!utf8.empty() && (static_cast<unsigned char>(utf8.front()) & 0xC0) == 0x80) utf8.remove_prefix(1);
  }
  return out;
}

void print_text(Context& context, std::string_view text) {
  if (context.terminal.utf8)
    context.out << text;
  else
    context.out << to_ascii(text);
}

std::string not_empty(const std::string& value) {
  return value.empty() ? "an empty name was given" : "";
}

void OutputFiles::add_to(CLI::App& app, unsigned kinds) {
  if (kinds & kJson)
    app.add_option("--json", json, "Write the result as JSON (- for stdout)")
        ->type_name("FILE")
        ->check(not_empty);
  if (kinds & kMarkdown)
    app.add_option("--markdown", markdown, "Write the report as Markdown (- for stdout)")
        ->type_name("FILE")
        ->check(not_empty);
  if (kinds & kHtml)
    app.add_option("--html", html, "Write the report as one offline HTML page (- for stdout)")
        ->type_name("FILE")
        ->check(not_empty);
}

Status write_output(Context& context, const std::string& path, std::string_view content) {
  if (path == "-") {
    context.out << content;
    return {};
  }
  const OutputPath target = resolve_output(path);
  const std::string written = target.in_place ? target.path : target.path + ".tmp" + std::to_string(getpid());
  const auto failed = [&](int code) {
    if (!target.in_place) std::remove(written.c_str());
    return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(code),
                "choose a writable place, or - for stdout");
  };
  errno = 0;
  std::ofstream file(written, std::ios::binary | (target.in_place ? std::ios::out : std::ios::trunc));
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file) return failed(errno);
  if (target.in_place) return {};
  if (chmod(written.c_str(), target.mode) != 0 || std::rename(written.c_str(), target.path.c_str()) != 0)
    return failed(errno);
  return {};
}

}  // namespace attnscope::cli
