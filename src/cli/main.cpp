// The program's entry, and the outer one of the two fences that let no exception out.
#include "cli/command.h"
#include "cli/common.h"

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  using namespace attnscope::cli;
  std::signal(SIGPIPE, SIG_DFL);  // `attnscope … | head` ends quietly
  try {
    std::ios::sync_with_stdio(false);
    Context context{std::cout, std::cerr, detect_terminal()};
    const int code = run_command_line(context, Arguments(argv + 1, argv + argc));
    std::cout.flush();
    if (!std::cout) {
      std::fputs("error: cannot write to stdout\n", stderr);
      return 3;
    }
    return code;
  } catch (const std::bad_alloc&) {
    std::fputs("error: out of memory\n", stderr);
    return 70;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: internal: %s\n  please report this with the command line\n", e.what());
    return 70;
  }
}
