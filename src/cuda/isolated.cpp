#include "cuda/isolated.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>

namespace attnscope::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// What the child sends: this, then `bytes` of payload. An error's payload is its message, a zero, its remedy.
struct Header {
  uint32_t ok = 0;
  uint32_t code = 0;
  uint64_t bytes = 0;
};
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

void write_all(int pipe, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = write(pipe, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) _exit(1);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

// Quiet and without a core file: whatever happens here is told by the parent.
void become_quiet() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTERM, SIGPIPE})
    std::signal(signal, SIG_DFL);
  const rlimit none{0, 0};
  (void)setrlimit(RLIMIT_CORE, &none);
  if (const int null = open("/dev/null", O_RDWR); null >= 0)
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) (void)dup2(null, stream);
}

[[noreturn]] void child(int pipe, const std::function<Result<std::string>()>& work) {
  become_quiet();
  Header header;
  std::string payload;
  try {
    Result<std::string> result = work();
    header.ok = result ? 1 : 0;
    if (!result) header.code = static_cast<uint32_t>(result.error().code);
    payload = result ? std::move(*result) : result.error().message + '\0' + result.error().remedy;
  } catch (const std::exception& e) {
    header.code = static_cast<uint32_t>(ErrorCode::kInternal);
    payload = std::string(e.what()) + '\0';
  }
  header.bytes = payload.size();
  write_all(pipe, &header, sizeof header);
  write_all(pipe, payload.data(), payload.size());
  _exit(0);
}

enum class Reading { kComplete, kEnded, kTimedOut };

// Until the whole message is there, the pipe's end, or the deadline.
Reading receive(int pipe, Clock::time_point deadline, std::string& message) {
  char buffer[65536];
  for (;;) {
    Header header;
    if (message.size() >= sizeof header) {
      std::memcpy(&header, message.data(), sizeof header);
      if (header.bytes > kMostBytes) return Reading::kEnded;
      if (message.size() >= sizeof header + header.bytes) return Reading::kComplete;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Reading::kTimedOut;
    pollfd wait{pipe, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return Reading::kEnded;
    if (ready <= 0) continue;
    const ssize_t n = read(pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Reading::kEnded;
    message.append(buffer, static_cast<size_t>(n));
  }
}

Result<std::string> unpack(const std::string& message) {
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  std::string payload = message.substr(sizeof header, header.bytes);
  if (header.ok == 1) return payload;
  const size_t zero = payload.find('\0');
  return fail(static_cast<ErrorCode>(header.code), payload.substr(0, zero),
              zero == std::string::npos ? "" : payload.substr(zero + 1));
}

}  // namespace

Result<std::string> run_isolated(std::string_view what, int timeout_ms,
                                 const std::function<Result<std::string>()>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return fail(ErrorCode::kInternal, fmt::format("{}: no pipe: {}", what, std::strerror(errno)));
  const pid_t process = fork();
  if (process < 0) {
    const int code = errno;
    close(ends[0]);
    close(ends[1]);
    return fail(ErrorCode::kInternal, fmt::format("{}: no child process: {}", what, std::strerror(code)));
  }
  if (process == 0) {
    close(ends[0]);
    child(ends[1], work);
  }
  close(ends[1]);
  std::string message;
  const Reading reading = receive(ends[0], Clock::now() + std::chrono::milliseconds(timeout_ms), message);
  close(ends[0]);
  if (reading == Reading::kTimedOut) (void)kill(process, SIGKILL);
  int status = 0;
  pid_t waited = 0;
  do waited = waitpid(process, &status, 0);
  while (waited < 0 && errno == EINTR);
  if (reading == Reading::kComplete) return unpack(message);
  if (reading == Reading::kTimedOut)
    return fail(ErrorCode::kInternal,
                fmt::format("{} took longer than {} s and was ended", what, timeout_ms / 1000));
  if (waited == process && WIFSIGNALED(status))
    return fail(ErrorCode::kInternal, fmt::format("{} crashed with signal {}", what, WTERMSIG(status)));
  return fail(ErrorCode::kInternal, fmt::format("{} ended without a result", what));
}

}  // namespace attnscope::cuda
