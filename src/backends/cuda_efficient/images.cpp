#include "backends/cuda_efficient/images.h"

namespace attnscope::efficient {

std::span<const mma::EmbeddedImage> images(DType dtype) {
  if (dtype_is_half(dtype)) return mma::images();
  if (dtype == DType::kF32) return f32_images();
  return {};
}

}  // namespace attnscope::efficient
