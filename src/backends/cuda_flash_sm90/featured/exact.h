#pragma once
// Head sizes between two images of the featured kernel: an instance of exactly that size, compiled at first
// use, as exact.h has it for the plain kernel. Images that transform scores (softcap, ALiBi, dropout) take
// several seconds to compile and so get one only where the next larger size is 256.

#include "attnscope/attention.h"
#include "backends/cuda_flash_sm90/featured/images.h"
#include "backends/cuda_jit/families.h"

#include <string>

namespace attnscope::flash_sm90 {

// The instance for the request instead of `embedded`, or why that image stays. Compiles nothing.
cuda::WantedInstance exact_featured_instance(const Request& request, const FeaturedImage& embedded);
// As a plan of flash on Hopper would want it, of this kernel or the plain one.
cuda::WantedInstance wanted_by_flash(const Request& request, const cuda::GpuTarget& gpu);

struct ExactFeatured {
  const FeaturedImage* image = nullptr;  // for the life of the process; null: the embedded one stays
  std::string note;                      // how it was had, or why not; empty when none was wanted
};
// Has the instance compiled, or takes it from the cache: once per instance and process.
ExactFeatured exact_featured(const Request& request, const FeaturedImage& embedded);

}  // namespace attnscope::flash_sm90
