#include "compare/machine.h"

#include "attention/memory.h"
#include "backends/cpu_common/threads.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <fstream>
#include <sstream>

namespace attnscope::compare {
namespace {

// The value behind "key : value" of a file such as /proc/cpuinfo; the first one, empty when there is none.
std::string value_in(const char* path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == std::string::npos) return {};
    const size_t end = line.find_last_not_of(" \t\"");
    return line.substr(begin, end - begin + 1);
  }
  return {};
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "0-3,8" → 5
int count_list(const std::string& text) {
  int count = 0;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0, last = 0;
    const int found = std::sscanf(part.c_str(), "%d-%d", &first, &last);
    if (found == 1) ++count;
    if (found == 2) count += last - first + 1;
  }
  return count;
}

std::vector<CacheInfo> read_caches() {
  std::vector<CacheInfo> caches;
  for (int i = 0; i < 16; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string size = read_line(folder + "size");
    if (size.empty()) break;
    CacheInfo cache;
    cache.level = std::atoi(read_line(folder + "level").c_str());
    cache.type = read_line(folder + "type");
    cache.bytes = std::atoll(size.c_str()) * (size.ends_with("K") ? 1024 : size.ends_with("M") ? 1 << 20 : 1);
    cache.shared_by = count_list(read_line(folder + "shared_cpu_list"));
    caches.push_back(cache);
  }
  return caches;
}

std::vector<std::string> read_isa() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2")) found.emplace_back("SSE4.2");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.emplace_back("AVX2+FMA");
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    found.emplace_back("AVX-512");
  const std::string flags = " " + value_in("/proc/cpuinfo", "flags", ':') + " ";
  for (const auto& [flag, name] : {std::pair{" avx512_vnni ", "AVX512_VNNI"},
                                   {" avx512_bf16 ", "AVX512_BF16"},
                                   {" avx512_fp16 ", "AVX512_FP16"},
                                   {" amx_bf16 ", "AMX_BF16"}})
    if (flags.find(flag) != std::string::npos) found.emplace_back(name);
#endif
  return found;
}

}  // namespace

Machine read_machine() {
  Machine m;
  utsname system{};
  uname(&system);
  const std::string distribution = value_in("/etc/os-release", "PRETTY_NAME", '=');
  m.os = fmt::format("{}{}{} {}", distribution, distribution.empty() ? "" : ", ", system.sysname,
                     system.release);
  m.architecture = system.machine;
  m.cpu = value_in("/proc/cpuinfo", "model name", ':');
  if (m.cpu.empty()) m.cpu = m.architecture;
  m.processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  m.usable_threads = cpu::process_threads();
  m.isa = read_isa();
  m.caches = read_caches();
  m.memory_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  m.available_bytes = available_host_bytes();
  return m;
}

std::vector<LibraryVersion> library_versions() {
  const dnnl_version_t* dnnl = dnnl_version();
  return {
#if defined(__clang__)
      {"compiler", fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__)},
#else
      {"compiler", fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__)},
#endif
      {"oneDNN", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
      {"OpenMP", fmt::format("{}", _OPENMP)},
      {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                    NLOHMANN_JSON_VERSION_PATCH)},
      {"zlib", zlibVersion()},
      {"zstd", ZSTD_versionString()},
  };
}

}  // namespace attnscope::compare
