#pragma once
// Streams and events as owned values. Nothing here touches the default stream.

#include "attnscope/result.h"

#include <cuda_runtime_api.h>

#include <utility>

namespace attnscope::cuda {

// A non-blocking stream of one device.
class Stream {
 public:
  [[nodiscard]] static Result<Stream> create(int device);
  Stream() = default;
  Stream(Stream&& other) noexcept { *this = std::move(other); }
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~Stream();
  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }
  [[nodiscard]] Status synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
  int device_ = 0;
};

class Event {
 public:
  // timing = false: cheaper, only for ordering.
  [[nodiscard]] static Result<Event> create(int device, bool timing = true);
  Event() = default;
  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event();
  cudaEvent_t get() const { return event_; }
  [[nodiscard]] Status record(cudaStream_t stream) const;
  [[nodiscard]] Status synchronize() const;
  // Microseconds from `begin` to this event; both must have completed.
  [[nodiscard]] Result<double> elapsed_us_since(const Event& begin) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Is this stream being captured into a graph? (Work that cannot be captured is then refused.)
[[nodiscard]] Result<bool> is_capturing(cudaStream_t stream);
// The device a stream belongs to; the null stream belongs to the current device.
[[nodiscard]] Result<int> device_of(cudaStream_t stream);

}  // namespace attnscope::cuda
