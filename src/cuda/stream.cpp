#include "cuda/stream.h"

#include "cuda/device.h"
#include "cuda/status.h"

namespace attnscope::cuda {

Result<Stream> Stream::create(int device) {
  DeviceGuard guard(device);
  ATTNSCOPE_TRY(check(guard.status(), "cudaSetDevice"));
  Stream stream;
  stream.device_ = device;
  ATTNSCOPE_TRY(check(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "cudaStreamCreate"));
  return stream;
}

Stream::~Stream() {
  if (stream_) (void)cudaStreamDestroy(stream_);
}

Status Stream::synchronize() const {
  return check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

Result<Event> Event::create(int device, bool timing) {
  DeviceGuard guard(device);
  ATTNSCOPE_TRY(check(guard.status(), "cudaSetDevice"));
  Event event;
  ATTNSCOPE_TRY(
      check(cudaEventCreateWithFlags(&event.event_, timing ? cudaEventDefault : cudaEventDisableTiming),
            "cudaEventCreate"));
  return event;
}

Event::~Event() {
  if (event_) (void)cudaEventDestroy(event_);
}

Status Event::record(cudaStream_t stream) const {
  return check(cudaEventRecord(event_, stream), "cudaEventRecord");
}

Status Event::synchronize() const {
  return check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}

Result<double> Event::elapsed_us_since(const Event& begin) const {
  float ms = 0;
  ATTNSCOPE_TRY(check(cudaEventElapsedTime(&ms, begin.event_, event_), "cudaEventElapsedTime"));
  return static_cast<double>(ms) * 1e3;
}

Result<bool> is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ATTNSCOPE_TRY(check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing"));
  return status != cudaStreamCaptureStatusNone;
}

Result<int> device_of(cudaStream_t stream) {
  int device = 0;
  if (stream == nullptr) {
    ATTNSCOPE_TRY(check(cudaGetDevice(&device), "cudaGetDevice"));
    return device;
  }
  ATTNSCOPE_TRY(check(cudaStreamGetDevice(stream, &device), "cudaStreamGetDevice"));
  return device;
}

}  // namespace attnscope::cuda
