#include "backends/cuda_jit/families.h"

#include "backends/cuda_flash_sm90/exact.h"

namespace attnscope::cuda {

// One line a kernel: the backend's name, its architecture, what it wants compiled.
std::span<const JitFamily> jit_families() {
  static constexpr JitFamily table[] = {
      {"flash", "sm_90a", flash_sm90::wanted_instance},
  };
  return table;
}

}  // namespace attnscope::cuda
