#pragma once
// Device memory in stream order, pinned host memory, and the workspace of one call.

#include "attnscope/attention.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string_view>
#include <utility>

namespace attnscope::cuda {

// Memory from the device's stream-ordered pool: usable by work on `stream` after the allocation, freed in
// stream order when the buffer goes out of scope, so it is safe while kernels still use it. Allocation and
// free are reported to the event sink.
class DeviceBuffer {
 public:
  [[nodiscard]] static Result<DeviceBuffer> allocate(size_t bytes, cudaStream_t stream, int device,
                                                     std::string_view what);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(stream_, other.stream_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~DeviceBuffer();
  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  cudaStream_t stream_ = nullptr;
  int device_ = 0;
};

// Page-locked host memory: copies from and to it are asynchronous.
class PinnedBuffer {
 public:
  [[nodiscard]] static Result<PinnedBuffer> allocate(size_t bytes);
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedBuffer();
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// The workspace of one run: the caller's when it is large enough, else from the pool. An error when the
// caller's is too small or misaligned (256 bytes).
class Workspace {
 public:
  [[nodiscard]] static Result<Workspace> acquire(const RunOptions& options, size_t bytes, int device);
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  DeviceBuffer owned_;
};

// Sizes of parts laid out one after the other, each at a 256-byte boundary.
class WorkspaceLayout {
 public:
  // Offset of a new part of `bytes` bytes.
  size_t add(size_t bytes) {
    const size_t offset = total_;
    total_ += (bytes + 255) / 256 * 256;
    return offset;
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};

// Gives memory that the pool keeps for reuse back to the driver (after the work that used it is done).
[[nodiscard]] Status release_cached_memory(int device);

}  // namespace attnscope::cuda
