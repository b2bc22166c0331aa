#include "cuda/device.h"

#include "cuda/status.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

namespace attnscope::cuda {

DeviceGuard::DeviceGuard(int device) noexcept {
  int current = 0;
  status_ = cudaGetDevice(&current);
  if (status_ != cudaSuccess) return;
  // A thread that has not used its device yet has no current context, which calls of the driver's API need:
  // cudaSetDevice binds it.
  thread_local uint64_t bound = 0;
  const uint64_t bit = uint64_t{1} << (device & 63);
  if (current == device && (bound & bit) != 0) return;
  status_ = cudaSetDevice(device);
  if (status_ != cudaSuccess) return;
  bound |= bit;
  if (current != device) previous_ = current;
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) (void)cudaSetDevice(previous_);
}

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

int driver_cuda_version() noexcept {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int runtime_cuda_version() noexcept {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

std::string unavailable_reason() {
  const int driver = driver_cuda_version();
  if (driver == 0) return "no NVIDIA driver is installed on this machine";
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();
    return fmt::format("the NVIDIA driver supports CUDA {}.{}, this build needs {}.0", driver / 1000,
                       driver % 1000 / 10, runtime_cuda_version() / 1000);
  }
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    return fmt::format("the driver reports no usable GPU: {}", cudaGetErrorString(status));
  }
  if (count == 0) return "the driver shows no GPU (CUDA_VISIBLE_DEVICES may hide them)";
  std::string reason;
  for (int index = 0; index < count; ++index) {
    const Status status_of_device = usable(index);
    if (status_of_device) return {};
    reason = status_of_device.error().message;
  }
  return reason;
}

Status usable(int index) {
  const int count = device_count();
  if (index < 0 || index >= count)
    return fail(ErrorCode::kUnavailable,
                fmt::format("there is no CUDA device {}: the driver shows {}", index, count),
                "attnscope doctor lists the devices");
  ATTNSCOPE_ASSIGN(const DeviceInfo* info, device_info(index));
  if (info->major < 8)
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} (device {}) is sm_{}; the CUDA kernels need sm_80 or newer", info->name,
                            index, info->sm()),
                "use --device cpu, or a GPU of the Ampere generation or later");
  return {};
}

namespace {

Result<std::unique_ptr<DeviceInfo>> query(int index) {
  cudaDeviceProp prop{};
  ATTNSCOPE_TRY(
      check(cudaGetDeviceProperties(&prop, index), fmt::format("properties of CUDA device {}", index)));
  auto info = std::make_unique<DeviceInfo>();
  info->index = index;
  info->name = prop.name;
  info->major = prop.major;
  info->minor = prop.minor;
  info->sm_count = prop.multiProcessorCount;
  info->warp_size = prop.warpSize;
  info->max_threads_per_sm = prop.maxThreadsPerMultiProcessor;
  info->max_threads_per_block = prop.maxThreadsPerBlock;
  info->max_blocks_per_sm = prop.maxBlocksPerMultiProcessor;
  info->registers_per_sm = prop.regsPerMultiprocessor;
  info->registers_per_block = prop.regsPerBlock;
  info->shared_per_block = static_cast<int64_t>(prop.sharedMemPerBlock);
  info->shared_per_block_optin = static_cast<int64_t>(prop.sharedMemPerBlockOptin);
  info->shared_per_sm = static_cast<int64_t>(prop.sharedMemPerMultiprocessor);
  info->shared_reserved_per_block = static_cast<int64_t>(prop.reservedSharedMemPerBlock);
  info->l2_bytes = prop.l2CacheSize;
  info->memory_bytes = static_cast<int64_t>(prop.totalGlobalMem);
  info->bus_width_bits = prop.memoryBusWidth;
  (void)cudaDeviceGetAttribute(&info->clock_khz, cudaDevAttrClockRate, index);
  (void)cudaDeviceGetAttribute(&info->memory_clock_khz, cudaDevAttrMemoryClockRate, index);
  return info;
}

}  // namespace

Result<const DeviceInfo*> device_info(int index) {
  static std::mutex mutex;
  static std::map<int, std::unique_ptr<DeviceInfo>>* cache = new std::map<int, std::unique_ptr<DeviceInfo>>();
  std::lock_guard lock(mutex);
  auto found = cache->find(index);
  if (found == cache->end()) {
    ATTNSCOPE_ASSIGN(auto info, query(index));
    found = cache->emplace(index, std::move(info)).first;
  }
  return found->second.get();
}

Result<MemoryState> memory_state(int index) {
  DeviceGuard guard(index);
  ATTNSCOPE_TRY(check(guard.status(), fmt::format("making CUDA device {} current", index)));
  size_t free_bytes = 0;
  size_t total = 0;
  ATTNSCOPE_TRY(check(cudaMemGetInfo(&free_bytes, &total), "cudaMemGetInfo"));
  return MemoryState{static_cast<int64_t>(free_bytes), static_cast<int64_t>(total)};
}

Result<PointerPlace> place_of(const void* pointer) {
  cudaPointerAttributes attributes{};
  ATTNSCOPE_TRY(check(cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes"));
  PointerPlace place;
  place.device = attributes.device;
  switch (attributes.type) {
    case cudaMemoryTypeDevice: place.kind = PointerPlace::Kind::kDevice; break;
    case cudaMemoryTypeManaged: place.kind = PointerPlace::Kind::kManaged; break;
    case cudaMemoryTypeHost: place.kind = PointerPlace::Kind::kPinnedHost; break;
    default: place.kind = PointerPlace::Kind::kUnregisteredHost; break;
  }
  return place;
}

}  // namespace attnscope::cuda
