#pragma once
// Tensors on a GPU for tests, benches and the command line: a host view's twin with the same strides.

#include "attnscope/tensor_view.h"
#include "cuda/memory.h"

#include <cstddef>
#include <vector>

namespace attnscope::cuda {

class DeviceTensor {
 public:
  // The same sizes and strides (from element 0 to the last one the strides reach), contents copied on
  // `stream`; returns when the copy is done.
  [[nodiscard]] static Result<DeviceTensor> copy_of(const TensorView& host, int device, cudaStream_t stream);
  // Dense, contents undefined.
  [[nodiscard]] static Result<DeviceTensor> empty(DType dtype, std::array<int64_t, 4> sizes, int rank,
                                                  int device, cudaStream_t stream);
  DeviceTensor() = default;
  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT(google-explicit-constructor)
  // Into a host view of the same sizes and strides; waits for `stream`.
  [[nodiscard]] Status copy_to(const TensorView& host, cudaStream_t stream) const;
  // Every byte of the storage.
  [[nodiscard]] Status fill_bytes(int value, cudaStream_t stream) const;
  size_t bytes() const { return buffer_.bytes(); }

 private:
  DeviceBuffer buffer_;
  TensorView view_;
};

// Bytes from element 0 to the last element that the strides reach; 0 for an empty view.
size_t extent_bytes(const TensorView& view);

}  // namespace attnscope::cuda
