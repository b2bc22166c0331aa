#include "backends/cuda_jit/families.h"

#include "backends/cuda_decode/exact.h"
#include "backends/cuda_flash_sm90/exact.h"
#include "backends/cuda_flash_sm90/featured/mask_plan.h"
#include "backends/cuda_flash_sm90/featured/plan.h"
#include "backends/cuda_mma/exact.h"

namespace attnscope::cuda {
namespace {

WantedInstance featured_images_only() {
  return {std::nullopt, "runs on Hopper's featured kernel, which has embedded images only"};
}

WantedInstance wanted_by_flash(const Request& r, const GpuTarget& gpu) {
  WantedInstance plain = flash_sm90::wanted_on(r, gpu);
  return plain.serves && flash_sm90::needs_featured(r) ? featured_images_only() : plain;
}

// On Hopper masks are the featured kernel's.
WantedInstance wanted_by_efficient(const Request& r, const GpuTarget& gpu) {
  if (gpu.sm == 90 && r.mask_kind != MaskKind::kNone && flash_sm90::mask_obstacle(r).empty())
    return featured_images_only();
  return mma::wanted_by_efficient(r, gpu);
}

}  // namespace

// One line a kernel: the backend's name, what it wants compiled.
std::span<const JitFamily> jit_families() {
  static constexpr JitFamily table[] = {
      {"decode", decode::wanted_instance},
      {"flash", wanted_by_flash},
      {"flash_sm80", mma::wanted_by_flash},
      {"efficient", wanted_by_efficient},
  };
  return table;
}

}  // namespace attnscope::cuda
