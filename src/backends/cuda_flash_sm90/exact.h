#pragma once
// Head sizes between two embedded images: an instance of exactly that size, compiled at first use, where the
// work it saves is worth a second of compiling. Where it is not, or cannot be had, the embedded image
// computes the next larger size over zeros.

#include "attnscope/attention.h"
#include "backends/cuda_flash_sm90/images.h"
#include "backends/cuda_jit/families.h"

#include <optional>
#include <string>

namespace attnscope::flash_sm90 {

// The instance for the request instead of `embedded`, or why that image stays. Compiles nothing.
cuda::WantedInstance exact_instance(const Request& request, const EmbeddedImage& embedded);

// The same without an image at hand: of those embedded, the one for the smallest head size that fits.
cuda::WantedInstance wanted_instance(const Request& request);
cuda::WantedInstance wanted_on(const Request& request, const cuda::GpuTarget& gpu);

struct ExactImage {
  std::optional<EmbeddedImage>
      image;         // its memory stays for the life of the process; none: the embedded one stays
  std::string note;  // how it was had, or why not; empty when none was wanted
};
// Has the instance compiled, or takes it from the cache: once per instance and process.
ExactImage exact_image(const Request& request, const EmbeddedImage& embedded);

}  // namespace attnscope::flash_sm90
