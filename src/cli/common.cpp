#include "cli/common.h"

#include "base/error.h"
#include "base/text.h"

#include <CLI/CLI.hpp>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
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

// The option that an argument names: "--json" or "--json=FILE"; null when it is none.
CLI::Option* option_named(CLI::App& app, const std::string& argument) {
  if (argument.size() < 2 || argument[0] != '-') return nullptr;
  return app.get_option_no_throw(argument.substr(0, argument.find('=')));
}

// CLI11 takes whatever follows an option as its value, another option too: why that is a mistake, or nothing.
std::string option_as_value(CLI::App& app, const Arguments& arguments) {
  for (size_t i = 0; i + 1 < arguments.size() && arguments[i] != "--"; ++i) {
    const CLI::Option* option = option_named(app, arguments[i]);
    if (!option || option->get_expected_min() == 0 || arguments[i].find('=') != std::string::npos) continue;
    if (option_named(app, arguments[i + 1]))
      return arguments[i] + " needs a value; the option " + arguments[i + 1] + " follows it";
    ++i;
  }
  return {};
}

std::string empty_value(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty() && option->get_expected_min() > 0) return option->get_name();
  return {};
}

// "--arch was given 2 times: it takes one value", of the first option that was, or nothing.
std::string repeated_option(CLI::App& app, const Arguments& arguments) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_expected_max() != 1) continue;
    const auto times = std::count_if(arguments.begin(), arguments.end(), [&](const std::string& argument) {
      return option_named(app, argument) == option;
    });
    if (times > 1)
      return option->get_name() + " was given " + std::to_string(times) + " times: it takes one value";
  }
  return {};
}

// "there is no option …; did you mean …", of the first that there is none of, or nothing.
std::string unknown_option(CLI::App& app, const Arguments& arguments) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    const std::string name = argument.substr(0, argument.find('='));
    if (!name.starts_with("--") || option_named(app, argument)) continue;
    const std::string near = closest(name, known);
    return "there is no option " + name + (near.empty() ? "" : "; did you mean " + near);
  }
  return {};
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
  terminal.live = isatty(STDERR_FILENO) == 1 && term != "dumb" && !term.empty();
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
  const auto refuse = [&](const std::string& message) {
    return print_error(
        context, Error{ErrorCode::kInvalidArgument, message, "see: attnscope " + app.get_name() + " --help"});
  };
  try {
    if (const std::string taken = option_as_value(app, arguments); !taken.empty()) return refuse(taken);
    Arguments reversed(arguments.rbegin(), arguments.rend());
    app.parse(std::move(reversed));
    if (const std::string name = empty_value(app); !name.empty())
      return refuse(name + ": an empty value was given");
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    print_text(context, help_text(app, app.help()));
    return 0;
  } catch (const CLI::CallForAllHelp&) {
    print_text(context, help_text(app, app.help("", CLI::AppFormatMode::All)));
    return 0;
  } catch (const CLI::ParseError& error) {
    const bool mismatch = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
    const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    const std::string better = mismatch ? repeated_option(app, arguments)
                               : extras ? unknown_option(app, arguments)
                                        : "";
    return refuse(better.empty() ? error.what() : better);
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

std::string whole_number(const std::string& value) {
  if (value.empty()) return "an empty value was given";
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc{} && end == value.data() + value.size();
  return whole ? "" : "'" + value + "' is not a whole number of 64 bits";
}

}  // namespace attnscope::cli
