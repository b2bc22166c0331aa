#pragma once
// The kernel images that the build embedded (images.cmake).

#include "attnscope/dtype.h"

#include <cstddef>
#include <span>

namespace attnscope::mla {

enum class Kernel { kForward, kCombine };

struct EmbeddedImage {
  const char* name;
  DType dtype;
  Kernel kernel;
  bool alias;  // forward: V is K's first columns
  const std::byte *begin, *end;

  std::span<const std::byte> bytes() const { return {begin, static_cast<size_t>(end - begin)}; }
};

std::span<const EmbeddedImage> images();

}  // namespace attnscope::mla
