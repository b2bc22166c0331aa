#pragma once
// A GPU as code generation sees it, by its compute capability alone: kernels can be compiled for one that is
// not in this machine, and a plan made on it later asks for the same instance.

#include "attnscope/result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace attnscope::cuda {

struct GpuTarget {
  int sm = 0;                    // 90: compute capability 9.0
  int64_t shared_per_block = 0;  // bytes that a kernel may ask for
  int64_t shared_per_sm = 0;

  int major() const { return sm / 10; }
  std::string arch() const;  // "sm_86"
  // What NVRTC is told: "sm_80" for all of 8.x, which run that machine code (for 8.9 some kernels spill that
  // do not for 8.0). A kernel that needs its GPU's own instructions says its architecture itself.
  std::string code_arch() const;
};

// Of `sm` 80 or more; one that is not known gets the least shared memory of all that are.
GpuTarget gpu_target(int sm);
// "sm_86", "sm_90a", "sm_120a". kInvalidArgument for anything but a GPU that kernels are compiled for; the
// remedy lists those.
[[nodiscard]] Result<GpuTarget> gpu_target_named(std::string_view arch);

}  // namespace attnscope::cuda
