#pragma once
// The machine and the libraries, as facts for headers and for doctor.

#include <cstdint>
#include <string>
#include <vector>

namespace attnscope::compare {

struct CacheInfo {
  int level = 0;
  std::string type;  // "Data", "Instruction", "Unified"
  int64_t bytes = 0;
  int shared_by = 0;  // logical processors
};

struct Machine {
  std::string os;                // "Debian GNU/Linux 12 (bookworm), Linux 6.1"
  std::string cpu;               // model name
  std::string architecture;      // x86_64
  int processors = 0;            // online
  int usable_threads = 0;        // this process's affinity and OMP_NUM_THREADS
  std::vector<std::string> isa;  // of those attnscope has code for or asks about, that are there
  std::vector<CacheInfo> caches;
  int64_t memory_bytes = 0;
  int64_t available_bytes = 0;  // to this process, control group included
};
Machine read_machine();

struct LibraryVersion {
  std::string name;
  std::string version;
};
// Compiler and libraries of this build, as found at run time where they can be asked.
std::vector<LibraryVersion> library_versions();

}  // namespace attnscope::compare
