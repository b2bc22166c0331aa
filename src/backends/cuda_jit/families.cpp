#include "backends/cuda_jit/families.h"

#include "backends/cuda_decode/exact.h"
#include "backends/cuda_flash_sm90/featured/exact.h"
#include "backends/cuda_mma/exact.h"

namespace attnscope::cuda {

// One line a kernel: the backend's name, what it wants compiled.
std::span<const JitFamily> jit_families() {
  static constexpr JitFamily table[] = {
      {"decode", decode::wanted_instance},
      {"flash", flash_sm90::wanted_by_flash},
      {"flash_sm80", mma::wanted_by_flash},
      {"efficient", mma::wanted_by_efficient},
  };
  return table;
}

}  // namespace attnscope::cuda
