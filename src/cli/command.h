#pragma once
// One subcommand of the command line, and what it gets to work with.
//
// A command is one file src/cli/<name>.cpp that defines `const Command <name>_command`, and one line
// attnscope_add_command(<name>) in src/cli/CMakeLists.txt, which generates the table main() reads.

#include <iosfwd>
#include <string>
#include <vector>

namespace attnscope::cli {

// What the output goes to. Decided once in main(); tests set it by hand.
struct Terminal {
  bool colour = false;  // a terminal, NO_COLOR not set, TERM not dumb
  bool utf8 = true;     // false: every character outside ASCII is replaced by an ASCII one
  bool live = false;    // stderr is a terminal: progress may be drawn
  int width = 100;      // columns
};

// Streams and terminal of this run. Commands print only through these.
struct Context {
  std::ostream& out;
  std::ostream& err;
  Terminal terminal;
};

using Arguments = std::vector<std::string>;  // what follows the command's name

// `run` returns the process's exit code (see base/error.h). It may throw nothing but what main's
// fence turns into code 70: foreseeable failures go through print_error().
struct Command {
  const char* name;
  const char* summary;  // one line for `attnscope --help`
  const char* example;  // one command line that works
  int (*run)(Context& context, const Arguments& arguments);
};

// Every command of this build, in the order of src/cli/CMakeLists.txt. Generated.
extern const std::vector<const Command*>& commands();

// Finds and runs a command: arguments as main() got them, without the program's name.
int run_command_line(Context& context, const Arguments& arguments);

}  // namespace attnscope::cli
