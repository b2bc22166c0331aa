#pragma once
// Instances of the tensor-core kernel compiled at first use: for head sizes between two embedded images where
// the work saved is worth a second of compiling, and for GPUs that no embedded machine code fits, where the
// driver would else compile the embedded PTX for the next larger size.

#include "attnscope/attention.h"
#include "backends/cuda_jit/families.h"
#include "backends/cuda_mma/images.h"

#include <optional>
#include <span>
#include <string>

namespace attnscope::mma {

// What the request asks of an image.
bool needs_features(const Request& request);
bool needs_dropout(const Request& request);
// Of `images` the ones for the smallest head size that holds the request's and with no more features than it
// needs have this rank; null: none does.
const EmbeddedImage* smallest_image(const Request& request, std::span<const EmbeddedImage> images);
// Is `image` one that choose_image() may take as well as `other`: same size and features?
bool same_rank(const EmbeddedImage& image, const EmbeddedImage& other);

// The instance for the request instead of `embedded`, or why that image stays. Compiles nothing.
cuda::WantedInstance exact_instance(const Request& request, const EmbeddedImage& embedded,
                                    const cuda::GpuTarget& gpu);
// As a plan of flash_sm80 or of efficient would want it, without an image at hand.
cuda::WantedInstance wanted_by_flash(const Request& request, const cuda::GpuTarget& gpu);
cuda::WantedInstance wanted_by_efficient(const Request& request, const cuda::GpuTarget& gpu);

struct ExactImage {
  std::optional<EmbeddedImage> image;  // its memory stays for the life of the process; none: `embedded` stays
  std::string note;                    // how it was had, or why not; empty when none was wanted
};
// Has the instance compiled, or takes it from the cache: once per instance and process.
ExactImage exact_image(const Request& request, const EmbeddedImage& embedded, const cuda::GpuTarget& gpu);

}  // namespace attnscope::mma
