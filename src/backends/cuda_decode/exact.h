#pragma once
// Instances of decode compiled at first use: for head sizes that no image has (they fall out of the fast
// loop, whose code knows its head sizes), and for GPUs that no embedded machine code fits.

#include "attnscope/attention.h"
#include "backends/cuda_decode/images.h"
#include "backends/cuda_jit/families.h"

#include <optional>
#include <string>

namespace attnscope::decode {

// The instance for the request instead of `embedded`, or why that image stays. Compiles nothing.
cuda::WantedInstance exact_instance(const Request& request, const EmbeddedImage& embedded,
                                    const cuda::GpuTarget& gpu);
// The same without an image at hand.
cuda::WantedInstance wanted_instance(const Request& request, const cuda::GpuTarget& gpu);

struct ExactImage {
  std::optional<EmbeddedImage> image;  // its memory stays for the life of the process; none: `embedded` stays
  std::string note;                    // how it was had, or why not; empty when none was wanted
};
// Has the instance compiled, or takes it from the cache: once per instance and process.
ExactImage exact_image(const Request& request, const EmbeddedImage& embedded, const cuda::GpuTarget& gpu);

}  // namespace attnscope::decode
