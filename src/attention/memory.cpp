#include "attention/memory.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

namespace attnscope {
namespace {

struct CloseFile {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

int64_t read_number(const char* path) {
  const File file(std::fopen(path, "re"));
  long long value = -1;
  if (!file || std::fscanf(file.get(), "%lld", &value) != 1) return -1;
  return value;
}

int64_t mem_available() {
  const File file(std::fopen("/proc/meminfo", "re"));
  if (!file) return -1;
  char line[256];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    long long kib = 0;
    if (std::sscanf(line, "MemAvailable: %lld kB", &kib) == 1) return kib * 1024;
  }
  return -1;
}

}  // namespace

int64_t available_host_bytes() {
  int64_t available = mem_available();
  const int64_t limit = read_number("/sys/fs/cgroup/memory.max");
  const int64_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit > 0 && used >= 0) {
    const int64_t left = std::max<int64_t>(limit - used, 0);
    available = available < 0 ? left : std::min(available, left);
  }
  return std::max<int64_t>(available, 0);
}

int64_t host_memory_budget(const Request& request) {
  if (request.limits.memory_bytes > 0) return request.limits.memory_bytes;
  return available_host_bytes() / 10 * 9;
}

void refuse_if_too_big(const Request& request, double bytes, Refusals& refusals) {
  constexpr double kAlwaysFits = 16e6;  // not worth asking the system, unless a limit is set
  if (request.limits.memory_bytes <= 0 && bytes < kAlwaysFits) return;
  const int64_t budget = host_memory_budget(request);
  if (budget <= 0 && request.limits.memory_bytes <= 0) return;
  if (bytes <= static_cast<double>(budget)) return;
  refusals.add("too-big-for-memory",
               fmt::format("needs {} for intermediates, {} {}", format_bytes(bytes),
                           format_bytes(static_cast<double>(budget)),
                           request.limits.memory_bytes > 0 ? "is the limit set" : "is available"),
               "use flash or efficient, whose memory does not grow with L·S, or a smaller batch");
}

}  // namespace attnscope
