// The program's entry, and the outer one of the two fences that let no exception out.
#include "base/output_path.h"
#include "cli/command.h"
#include "cli/common.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>

namespace {

// A file opened while stdout is closed would become stdout, and the report end up in it: closed standard
// streams are held, by something that fails every use.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// Interrupted: no half-written file stays. What was ignored from the start (nohup) stays ignored.
void end_by_signal(int number) {
  attnscope::remove_temporary_files();
  std::signal(number, SIG_DFL);
  std::raise(number);
}
void clean_up_when_interrupted() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(number, end_by_signal) == SIG_IGN) std::signal(number, SIG_IGN);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace attnscope::cli;
  hold_standard_streams();
  clean_up_when_interrupted();
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
