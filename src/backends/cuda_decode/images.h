#pragma once
// The kernel images that the build embedded (images.cmake): one per configuration and dtype, for all
// architectures.

#include "attnscope/dtype.h"

#include <cstddef>
#include <span>

namespace attnscope::decode {

struct EmbeddedImage {
  const char* name;
  DType dtype;
  int e, ev;      // head sizes it computes; smaller ones are filled with zeros
  int row_warps;  // of 16 query rows each
  int teams;      // that take turns with the keys
  int units;      // of 16 keys, per chunk of a team
  int stages;     // of K and V that a team has under way
  bool large;     // needs the shared memory of data-centre GPUs (sm_90, sm_100)
  const std::byte *begin, *end;

  int rows() const { return 16 * row_warps; }
  int keys() const { return 16 * units * teams; }
  int threads() const { return 32 * row_warps * teams; }
  std::span<const std::byte> bytes() const { return {begin, static_cast<size_t>(end - begin)}; }
};

std::span<const EmbeddedImage> images();
// The joining kernel.
std::span<const std::byte> tools(DType dtype);

}  // namespace attnscope::decode
