// Reads and links a trace and prints what that cost, as one JSON line:
//   trace_read FILE [REPEATS]      best of several, in one process; "-" reads standard input once
#include "formats/chrome/reader.h"
#include "trace/link.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

using namespace attnscope;

namespace {

struct Stamp {
  double wall, cpu;
};
Stamp now() {
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(wall).count(),
          static_cast<double>(cpu.tv_sec) + static_cast<double>(cpu.tv_nsec) * 1e-9};
}
// Of this program alone: getrusage would count what stood here before exec.
double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::strtod(line.c_str() + 6, nullptr) * 1024 / 1e6;
  return 0;
}

struct Cost {
  double read_cpu_s = 1e30, total_cpu_s = 1e30, total_wall_s = 1e30;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: trace_read FILE|- [REPEATS]\n");
    return 2;
  }
  const std::string path = argv[1];
  const int repeats = path == "-" ? 1 : argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
  Cost best;
  uint64_t plain = 0, events = 0, kept = 0, unlinked = 0;
  double peak_first_mb = 0;
  for (int i = 0; i < repeats; ++i) {
    formats::chrome::ReadStats stats;
    const Stamp begin = now();
    const auto trace = formats::chrome::read_file(path, {}, &stats);
    const Stamp read = now();
    if (!trace) {
      fmt::print(stderr, "{}\n", trace.error().message);
      return 3;
    }
    const trace::Links links = trace::Links::build(*trace);
    const Stamp end = now();
    best.read_cpu_s = std::min(best.read_cpu_s, read.cpu - begin.cpu);
    best.total_cpu_s = std::min(best.total_cpu_s, end.cpu - begin.cpu);
    best.total_wall_s = std::min(best.total_wall_s, end.wall - begin.wall);
    plain = stats.plain_bytes;
    events = trace->totals().events;
    kept = trace->size();
    const trace::WorkSum& lost = links.unlinked_sum();
    unlinked = lost.kernels + lost.copies + lost.fills;
    if (i == 0) peak_first_mb = peak_mb();  // later rounds only add what the allocator kept
  }
  const double mb = static_cast<double>(plain) / 1e6;
  const double budget_mb = 24 + 0.2 * mb;
  fmt::print(
      R"({{"plain_mb": {:.1f}, "events": {}, "kept": {}, "unlinked": {}, "repeats": {}, "read_mb_per_cpu_s": {:.0f}, )"
      R"("read_and_link_mb_per_cpu_s": {:.0f}, "read_and_link_mb_per_s": {:.0f}, "peak_mb": {:.1f}, "budget_mb": {:.1f}}})"
      "\n",
      mb, events, kept, unlinked, repeats, mb / best.read_cpu_s, mb / best.total_cpu_s,
      mb / best.total_wall_s, peak_first_mb, budget_mb);
  return peak_first_mb <= budget_mb ? 0 : 1;
}
