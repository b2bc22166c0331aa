#include "backends/device_identity.h"

#include "backends/cpu_common/threads.h"
#include "base/text.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>

namespace attnscope {
namespace {

// The model's name, without what a table's line could not hold.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return at == std::string::npos ? "" : terminal_safe(line.substr(at), 100);
  }
  return "CPU";
}

}  // namespace

DeviceIdentity device_identity(const Device& device) {
  if (!device.is_cpu()) return gpu_identity(device.index);
  utsname system{};
  uname(&system);
  // More threads move the points where one backend overtakes another.
  return {processor_name(), fmt::format("{}, {} threads", system.machine, cpu::process_threads()), 0};
}

}  // namespace attnscope
