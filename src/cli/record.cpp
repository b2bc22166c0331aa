// record: runs a program with our injection library in it and turns what it left into traces.
#include "base/error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/record_options.h"
#include "formats/chrome/writer.h"
#include "profiler/export.h"
#include "profiler/injection/assemble.h"
#include "trace/link.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>

namespace attnscope::cli {
namespace {

namespace fs = std::filesystem;

// "5s", "250ms", "2m" → milliseconds.
Result<int> parse_duration(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double factor = unit == "ms" ? 1 : unit == "s" || unit.empty() ? 1e3 : unit == "m" ? 60e3 : 0;
  if (end == text.c_str() || factor == 0 || !(value > 0) || value * factor > 1e9)
    return fail(ErrorCode::kInvalidArgument, fmt::format("--duration {} is no length of time", text),
                "5s, 250ms, 2m");
  return static_cast<int>(value * factor);
}

// libattnscope_inject.so: ATTNSCOPE_INJECT, beside the program's lib folder.
Result<std::string> injection_library() {
  std::vector<fs::path> places;
  if (const char* forced = std::getenv("ATTNSCOPE_INJECT")) places.emplace_back(forced);
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    places.push_back(self.parent_path().parent_path() / "lib/libattnscope_inject.so");
    places.push_back(self.parent_path() / "libattnscope_inject.so");
  }
  for (const fs::path& place : places)
    if (fs::exists(place, error)) return fs::absolute(place, error).string();
  return fail(ErrorCode::kUnavailable, "libattnscope_inject.so was not found beside this program",
              "set ATTNSCOPE_INJECT to it");
}

// A private folder in memory where there is one: what a program wrote before it died stays there.
class SpoolFolder {
 public:
  [[nodiscard]] Status create() {
    for (std::string place : {"/dev/shm", "/tmp"}) {
      place += "/attnscope-XXXXXX";
      if (mkdtemp(place.data())) {
        path_ = place;
        return {};
      }
    }
    return fail(ErrorCode::kIo,
                fmt::format("no folder for the recording could be made: {}", std::strerror(errno)),
                "make /dev/shm or /tmp writable");
  }
  ~SpoolFolder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const {
    std::vector<std::pair<fs::file_time_type, std::string>> found;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(path_, error))
      if (entry.path().extension() == ".spool")
        found.emplace_back(entry.last_write_time(error), entry.path().string());
    std::sort(found.begin(), found.end());
    std::vector<std::string> files;
    for (auto& [time, file] : found) files.push_back(std::move(file));
    return files;
  }

 private:
  std::string path_;
};

struct Ending {
  int status = 0;  // as waitpid gives it
  pid_t process = 0;
};

// Interrupts reach the program through the terminal; this process waits for what it leaves.
Result<Ending> run_program(const RecordOptions& options, const std::string& library,
                           const std::string& folder, int duration_ms) {
  struct sigaction ignore{}, old_int{}, old_quit{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGINT, &ignore, &old_int);
  sigaction(SIGQUIT, &ignore, &old_quit);
  const pid_t child = fork();
  if (child == 0) {
    sigaction(SIGINT, &old_int, nullptr);
    sigaction(SIGQUIT, &old_quit, nullptr);
    setenv("CUDA_INJECTION64_PATH", library.c_str(), 1);
    if (options.ranges == "nvtx") setenv("NVTX_INJECTION64_PATH", library.c_str(), 1);
    setenv("ATTNSCOPE_SPOOL", folder.c_str(), 1);
    setenv("ATTNSCOPE_FLUSH_MS", std::to_string(options.flush_ms).c_str(), 1);
    if (duration_ms > 0) setenv("ATTNSCOPE_DURATION_MS", std::to_string(duration_ms).c_str(), 1);
    std::vector<char*> argv;
    for (const std::string& word : options.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(errno == ENOENT ? 127 : 126);
  }
  Ending ending;
  ending.process = child;
  const bool started = child > 0;
  while (started && waitpid(child, &ending.status, 0) < 0 && errno == EINTR) {
  }
  sigaction(SIGINT, &old_int, nullptr);
  sigaction(SIGQUIT, &old_quit, nullptr);
  if (!started)
    return fail(ErrorCode::kInternal,
                fmt::format("the program could not be started: {}", std::strerror(errno)));
  if (WIFEXITED(ending.status) && (WEXITSTATUS(ending.status) == 127 || WEXITSTATUS(ending.status) == 126))
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} could not be run", options.command.front()),
                "check the name and PATH");
  return ending;
}

// trace.json.gz → trace.4711.json.gz
std::string with_process(const std::string& path, uint32_t process) {
  const size_t slash = path.rfind('/');
  const size_t dot = path.find('.', slash == std::string::npos ? 0 : slash + 1);
  if (dot == std::string::npos) return fmt::format("{}.{}", path, process);
  return fmt::format("{}.{}{}", path.substr(0, dot), process, path.substr(dot));
}

bool empty(const profiler::Recording& r) {
  return r.device_events.empty() && r.events.empty() && r.runtime_events.empty();
}

void report(Context& context, const profiler::Recording& r, const std::string& path) {
  int kernels = 0, copies = 0, fills = 0;
  for (const profiler::DeviceEvent& e : r.device_events)
    ++(e.kind == profiler::RecordKind::kKernel ? kernels
       : e.kind == profiler::RecordKind::kCopy ? copies
                                               : fills);
  context.err << fmt::format("process {}: {} kernels, {} copies, {} fills, {} ranges over {} -> {}\n",
                             r.process, kernels, copies, fills, r.events.size(),
                             format_time_us(static_cast<double>(r.duration_ns) / 1e3), path);
  const profiler::ActivityLoss& loss = r.activity_loss;
  if (loss.dropped_records + loss.lost_buffers + loss.unknown_records + loss.malformed_records > 0)
    context.err << fmt::format("  lost: {} records dropped, {} buffers, {} of unknown kind, {} malformed\n",
                               loss.dropped_records, loss.lost_buffers, loss.unknown_records,
                               loss.malformed_records);
  for (const std::string& note : loss.notes) context.err << "  note: " << terminal_safe(note, 400) << "\n";
}

// One trace per process that did something; the started program's own, or else the busiest, takes the name
// asked for.
Status write_traces(Context& context, const RecordOptions& options, const SpoolFolder& folder, pid_t program,
                    int& written) {
  std::vector<profiler::Recording> recordings;
  for (const std::string& file : folder.files()) {
    auto content = profiler::spool::read(file);
    if (!content) {
      context.err << "  note: " << one_line(content.error()) << "\n";
      continue;
    }
    profiler::Recording recording = profiler::spool::assemble(*content, {options.steps});
    if (!empty(recording) || recordings.empty()) recordings.push_back(std::move(recording));
  }
  std::erase_if(recordings, [&](const auto& r) { return empty(r) && recordings.size() > 1; });
  const auto busiest = [&](const auto& a, const auto& b) {
    const bool a_main = a.process == static_cast<uint64_t>(program) && !empty(a);
    const bool b_main = b.process == static_cast<uint64_t>(program) && !empty(b);
    if (a_main != b_main) return a_main;
    return a.device_events.size() > b.device_events.size();
  };
  std::stable_sort(recordings.begin(), recordings.end(), busiest);
  for (const profiler::Recording& r : recordings) {
    if (empty(r)) {
      for (const std::string& note : r.activity_loss.notes)
        context.err << "  note: " << terminal_safe(note, 400) << "\n";
      continue;
    }
    const std::string path =
        written == 0 ? options.output : with_process(options.output, static_cast<uint32_t>(r.process));
    const trace::Trace trace = profiler::to_trace(r);
    ATTNSCOPE_TRY(formats::chrome::write_file(trace, trace::Links::build(trace), path));
    report(context, r, path);
    ++written;
  }
  return {};
}

Status check_writable(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  if (!folder.empty() && !fs::is_directory(folder, error))
    return fail(ErrorCode::kIo, fmt::format("there is no folder {}", folder.string()), "make it first");
  if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0)
    return fail(ErrorCode::kIo, fmt::format("{} is not writable", folder.empty() ? "." : folder.string()),
                "choose another -o");
  return {};
}

Result<int> record(Context& context, const RecordOptions& options) {
  ATTNSCOPE_TRY(check_writable(options.output));
  int duration_ms = 0;
  if (!options.duration.empty()) {
    ATTNSCOPE_ASSIGN(duration_ms, parse_duration(options.duration));
  }
  ATTNSCOPE_ASSIGN(const std::string library, injection_library());
  SpoolFolder folder;
  ATTNSCOPE_TRY(folder.create());
  ATTNSCOPE_ASSIGN(const Ending ending, run_program(options, library, folder.path(), duration_ms));
  int written = 0;
  ATTNSCOPE_TRY(write_traces(context, options, folder, ending.process, written));
  if (WIFSIGNALED(ending.status))
    context.err << fmt::format("the program was ended by signal {} ({})\n", WTERMSIG(ending.status),
                               strsignal(WTERMSIG(ending.status)));
  if (written == 0)
    return fail(ErrorCode::kUnavailable, "the program used neither CUDA nor NVTX: there is nothing to record",
                "check that it runs on a GPU here (attnscope doctor)");
  // The program's own answer is this command's.
  return WIFEXITED(ending.status) ? WEXITSTATUS(ending.status) : 128 + WTERMSIG(ending.status);
}

int run_record(Context& context, const Arguments& arguments) {
  RecordOptions options;
  if (const auto done = options.parse(context, arguments)) return *done;
  const Result<int> result = record(context, options);
  return result ? *result : print_error(context, result.error());
}

}  // namespace

extern const Command record_command;
const Command record_command{"record", kRecordSummary, kRecordExample, run_record};

}  // namespace attnscope::cli
