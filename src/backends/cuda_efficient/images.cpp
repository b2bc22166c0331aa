#include "backends/cuda_efficient/images.h"

#include <algorithm>

namespace attnscope::efficient {

std::span<const mma::EmbeddedImage> images(DType dtype) {
  if (dtype_is_half(dtype)) return mma::images();
  if (dtype == DType::kF32) return f32_images();
  return {};
}

bool takes_f32_sm90(const Request& r, int sm) {
  constexpr int64_t kMaxColumns = 128;
  return sm == 90 && r.q.dtype == DType::kF32 && std::max(r.head_dim(), r.value_dim()) <= kMaxColumns;
}

}  // namespace attnscope::efficient
