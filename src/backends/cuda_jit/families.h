#pragma once
// Kernels whose instances are compiled at run time: their embedded sources (attnscope_add_kernel_sources
// lines of src/backends/CMakeLists.txt) and what each would compile for a request (one line each in
// families.cpp).

#include "attnscope/attention.h"
#include "cuda/gpu_target.h"
#include "cuda/jit.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace attnscope::cuda {

// Every embedded source by its path under src. Generated.
std::span<const KernelSource> kernel_sources();

// What a plan for a request would have compiled, or why it would not.
struct WantedInstance {
  std::optional<KernelInstance> instance;
  std::string why_not;  // one line: "the embedded image fits", "takes head sizes up to 256"
  bool serves = true;   // false: the backend would not take the request at all on that GPU
};

struct JitFamily {
  std::string_view backend;  // its name on the command line
  WantedInstance (*wanted)(const Request& request, const GpuTarget& gpu);
};
// In the order in which `auto` asks the backends.
std::span<const JitFamily> jit_families();

}  // namespace attnscope::cuda
