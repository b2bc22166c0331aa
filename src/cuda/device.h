#pragma once
// The GPUs of this machine: which can be used, why one cannot, and the figures kernels and reports need.

#include "attnscope/result.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attnscope::cuda {

// Makes a device current for a scope and restores the thread's previous one.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) noexcept;
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  cudaError_t status() const { return status_; }

 private:
  int previous_ = -1;  // −1: nothing to restore
  cudaError_t status_ = cudaSuccess;
};

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0;
  int minor = 0;
  int sm_count = 0;
  int warp_size = 32;
  int max_threads_per_sm = 0;
  int max_threads_per_block = 0;
  int max_blocks_per_sm = 0;
  int registers_per_sm = 0;
  int registers_per_block = 0;
  int64_t shared_per_block = 0;        // without opting in: 48 KiB
  int64_t shared_per_block_optin = 0;  // what a kernel may ask for
  int64_t shared_per_sm = 0;
  int64_t shared_reserved_per_block = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int bus_width_bits = 0;
  int sm() const { return major * 10 + minor; }
};

// Number of devices the driver shows; 0 without a driver. Never fails, never prints.
int device_count() noexcept;

// Why no GPU can be used at all ("no NVIDIA driver …"), empty when one can.
std::string unavailable_reason();

// Success when device `index` exists and is sm_80 or newer.
[[nodiscard]] Status usable(int index);

// Cached: the first call per device asks the driver. The reference lives as long as the process.
[[nodiscard]] Result<const DeviceInfo*> device_info(int index);

struct MemoryState {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};
[[nodiscard]] Result<MemoryState> memory_state(int index);

// 13000 for 13.0; 0 when there is no driver.
int driver_cuda_version() noexcept;
int runtime_cuda_version() noexcept;

// Whose memory a pointer is.
struct PointerPlace {
  enum class Kind : uint8_t {
    kUnregisteredHost,
    kPinnedHost,
    kDevice,
    kManaged
  } kind = Kind::kUnregisteredHost;
  int device = -1;
};
[[nodiscard]] Result<PointerPlace> place_of(const void* pointer);

}  // namespace attnscope::cuda
