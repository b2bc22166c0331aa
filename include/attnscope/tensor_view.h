#pragma once
// A non-owning strided view, up to four dimensions.

#include "attnscope/dtype.h"

#include <array>
#include <cstdint>

namespace attnscope {

// Sizes and strides in elements; strides may be 0 (broadcast) or negative-free any. The stride of a
// dimension of size 1 never matters. Attention tensors are [batch, heads, seq, head_dim].
struct TensorView {
  void* data = nullptr;  // element (0,0,0,0), at a multiple of its size; inputs are never written through
  DType dtype = DType::kF32;
  Device device;
  int rank = 4;
  std::array<int64_t, 4> sizes{1, 1, 1, 1};
  std::array<int64_t, 4> strides{1, 1, 1, 1};

  constexpr int64_t size(int d) const { return sizes[static_cast<size_t>(d)]; }
  constexpr int64_t stride(int d) const { return strides[static_cast<size_t>(d)]; }
  constexpr int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[static_cast<size_t>(d)];
    return n;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }

  // A dense row-major view [b, h, s, d].
  static constexpr TensorView contiguous(void* data, DType dtype, std::array<int64_t, 4> sizes,
                                         Device device = {}) {
    TensorView v;
    v.data = data;
    v.dtype = dtype;
    v.device = device;
    v.sizes = sizes;
    int64_t stride = 1;
    for (int d = 3; d >= 0; --d) {
      v.strides[static_cast<size_t>(d)] = stride;
      stride *= sizes[static_cast<size_t>(d)];
    }
    return v;
  }
};

}  // namespace attnscope
