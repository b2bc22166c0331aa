// From argument vector to command: the general help, the version, and the suggestion for a mistyped name.
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"

#include <fmt/format.h>

#include <ostream>

namespace attnscope::cli {
namespace {

std::string general_help() {
  std::string text =
      "attnscope runs attention, shows what really ran, and explains why it cost what it cost.\n\n"
      "usage: attnscope COMMAND [options]        attnscope COMMAND --help\n\n";
  size_t widest = 0;
  for (const Command* command : commands()) widest = std::max(widest, display_width(command->name));
  for (const Command* command : commands())
    text += fmt::format("  {}  {}\n", pad(command->name, widest), command->summary);
  text += "\nexamples\n";
  for (const Command* command : commands()) text += fmt::format("  {}\n", command->example);
  text +=
      "\nexit codes: 0 fine, 1 the answer is no, 2 usage, 3 bad input file,\n"
      "            4 device or backend not available, 70 internal error\n";
  return text;
}

}  // namespace

int run_command_line(Context& context, const Arguments& arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h" ||
      arguments == Arguments{"help"}) {
    print_text(context, general_help());
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] == "help") return run_command_line(context, {arguments[1], "--help"});
  if (arguments[0] == "--version" || arguments[0] == "version") {
    context.out << "attnscope " ATTNSCOPE_VERSION "\n";
    return 0;
  }
  std::vector<std::string> names;
  for (const Command* command : commands()) {
    if (arguments[0] == command->name)
      return command->run(context, Arguments(arguments.begin() + 1, arguments.end()));
    names.emplace_back(command->name);
  }
  const std::string guess = closest(arguments[0], names);
  return print_error(context,
                     Error{ErrorCode::kInvalidArgument, fmt::format("there is no command {}", arguments[0]),
                           guess.empty() ? "commands of this build: " + join(names, " ")
                                         : fmt::format("did you mean: attnscope {}", guess)});
}

}  // namespace attnscope::cli
