#pragma once
// Masks of the featured kernel on the host: which it takes, their descriptor, the tiles that a bool mask
// removes.

#include "attention/backend.h"
#include "backends/cuda_flash_sm90/featured/images.h"
#include "backends/cuda_flash_sm90/featured/params.h"
#include "cuda/driver_api.h"
#include "cuda/image.h"

#include <string>

namespace attnscope::flash_sm90 {

Masking masking(const Request& request);
// Why no image takes the request's mask or bias; empty when one does.
std::string mask_obstacle(const Request& request);

// The parameters that the mask decides, but for its map; nothing without a mask.
void set_mask(const Request& request, MaskedParams& params);
// The map of the mask's tiles for this image.
[[nodiscard]] Status encode_mask(const cuda::DriverApi& api, const Request& request,
                                 const FeaturedImage& image, void* map);

// A kernel ahead of the main one that finds the tiles that a bool mask removes; not where the call is too
// short to gain from it.
class KeptTiles {
 public:
  [[nodiscard]] static Result<KeptTiles> of(const Request& request, const FeaturedImage& image);
  bool needed() const { return image_ != nullptr; }
  size_t workspace_bytes() const { return needed() ? static_cast<size_t>(params_.tiles) : 0; }
  std::string describe() const;
  // Launches it into `workspace`, and lets `main` read that.
  [[nodiscard]] Status run(const Request& request, void* workspace, const RunOptions& options,
                           MaskedParams& main) const;

 private:
  const cuda::Image* image_ = nullptr;  // null: not needed
  KeptParams params_{};                 // all but the addresses
};

}  // namespace attnscope::flash_sm90
