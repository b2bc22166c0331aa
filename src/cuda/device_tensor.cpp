#include "cuda/device_tensor.h"

#include "cuda/device.h"
#include "cuda/status.h"

namespace attnscope::cuda {

size_t extent_bytes(const TensorView& view) {
  int64_t last = 0;
  for (int d = 0; d < view.rank; ++d) {
    if (view.size(d) == 0) return 0;
    last += (view.size(d) - 1) * view.stride(d);
  }
  return static_cast<size_t>(last + 1) * dtype_size(view.dtype);
}

Result<DeviceTensor> DeviceTensor::copy_of(const TensorView& host, int device, cudaStream_t stream) {
  DeviceTensor tensor;
  const size_t bytes = extent_bytes(host);
  // The same misalignment as on the host: a view that starts inside a vector stays one.
  const size_t shift = reinterpret_cast<uintptr_t>(host.data) % 16;
  ATTNSCOPE_ASSIGN(tensor.buffer_, DeviceBuffer::allocate(bytes + shift, stream, device, "tensor"));
  tensor.view_ = host;
  tensor.view_.device = {DeviceType::kCuda, device};
  tensor.view_.data = tensor.buffer_.as<std::byte>() + shift;
  DeviceGuard guard(device);
  if (bytes > 0)
    ATTNSCOPE_TRY(check(cudaMemcpyAsync(tensor.view_.data, host.data, bytes, cudaMemcpyHostToDevice, stream),
                        "copy to the GPU"));
  ATTNSCOPE_TRY(check(cudaStreamSynchronize(stream), "copy to the GPU"));
  return tensor;
}

Result<DeviceTensor> DeviceTensor::empty(DType dtype, std::array<int64_t, 4> sizes, int rank, int device,
                                         cudaStream_t stream) {
  DeviceTensor tensor;
  TensorView view;
  view.dtype = dtype;
  view.rank = rank;
  view.sizes = sizes;
  view.device = {DeviceType::kCuda, device};
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    view.strides[static_cast<size_t>(d)] = stride;
    stride *= view.size(d);
  }
  ATTNSCOPE_ASSIGN(tensor.buffer_, DeviceBuffer::allocate(extent_bytes(view), stream, device, "tensor"));
  view.data = tensor.buffer_.data();
  tensor.view_ = view;
  return tensor;
}

Status DeviceTensor::copy_to(const TensorView& host, cudaStream_t stream) const {
  const DeviceGuard guard(view_.device.index);
  if (const size_t bytes = extent_bytes(view_); bytes > 0)
    ATTNSCOPE_TRY(check(cudaMemcpyAsync(host.data, view_.data, bytes, cudaMemcpyDeviceToHost, stream),
                        "copy from the GPU"));
  return check(cudaStreamSynchronize(stream), "copy from the GPU");
}

Status DeviceTensor::fill_bytes(int value, cudaStream_t stream) const {
  if (buffer_.bytes() == 0) return {};
  const DeviceGuard guard(view_.device.index);
  return check(cudaMemsetAsync(buffer_.data(), value, buffer_.bytes(), stream), "fill");
}

}  // namespace attnscope::cuda
