#pragma once
// The images that `efficient` has for a dtype: those of the tensor-core kernel for 16 bits, and the f32
// kernel's.

#include "backends/cuda_mma/images.h"

namespace attnscope::efficient {

std::span<const mma::EmbeddedImage> images(DType dtype);  // empty: none

}  // namespace attnscope::efficient
