#pragma once
// The featured kernel's images that the build embedded (images.cmake).

#include "attnscope/dtype.h"
#include "backends/cuda_flash_sm90/featured/params.h"

#include <cstddef>
#include <span>

namespace attnscope::flash_sm90 {

struct FeaturedImage {
  const char* name;
  DType dtype;
  int e, ev;        // head sizes it computes; smaller ones are filled with zeros
  int keys;         // per step
  int warpgroups;   // of 64 query rows each
  bool transform;   // softcap, ALiBi, dropout too
  bool any_output;  // writes an output of any strides; the others need 16-byte alignment throughout
  Masking mask;
  const std::byte *begin, *end;

  int rows() const { return 64 * warpgroups; }
  int threads() const { return 128 * (1 + warpgroups); }
  std::span<const std::byte> cubin() const { return {begin, static_cast<size_t>(end - begin)}; }
};

std::span<const FeaturedImage> featured_images();
// Finds the tiles that a bool mask removes (kept.cu).
std::span<const std::byte> mask_tiles_image();

}  // namespace attnscope::flash_sm90
