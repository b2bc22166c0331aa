#include "cuda/memory.h"

#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/device.h"
#include "cuda/status.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <map>
#include <mutex>

namespace attnscope::cuda {
namespace {

void report(EventKind kind, std::string_view what, const void* address, size_t bytes) {
  EventInfo info;
  info.name = what;
  info.kind = kind;
  info.bytes_written = static_cast<int64_t>(bytes);
  info.address = reinterpret_cast<uint64_t>(address);
  report_instant(info);
}

}  // namespace

namespace {

// Our own pool of each device, so that the process's default pool (the framework's, perhaps) keeps its
// settings. Freed blocks stay in it: a planned call then costs no cudaMalloc.
Result<cudaMemPool_t> pool_of(int device) {
  static std::mutex mutex;
  static std::map<int, cudaMemPool_t>* pools = new std::map<int, cudaMemPool_t>();
  std::lock_guard lock(mutex);
  if (auto found = pools->find(device); found != pools->end()) return found->second;
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = device;
  cudaMemPool_t pool = nullptr;
  ATTNSCOPE_TRY(check(cudaMemPoolCreate(&pool, &props), "cudaMemPoolCreate"));
  uint64_t threshold = std::numeric_limits<uint64_t>::max();
  ATTNSCOPE_TRY(check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
                      "cudaMemPoolSetAttribute"));
  pools->emplace(device, pool);
  return pool;
}

}  // namespace

Status release_cached_memory(int device) {
  DeviceGuard guard(device);
  ATTNSCOPE_TRY(check(guard.status(), "cudaSetDevice"));
  ATTNSCOPE_ASSIGN(cudaMemPool_t pool, pool_of(device));
  return check(cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
}

Result<DeviceBuffer> DeviceBuffer::allocate(size_t bytes, cudaStream_t stream, int device,
                                            std::string_view what) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  DeviceGuard guard(device);
  ATTNSCOPE_TRY(check(guard.status(), "cudaSetDevice"));
  ATTNSCOPE_ASSIGN(cudaMemPool_t pool, pool_of(device));
  buffer.stream_ = stream;
  buffer.device_ = device;
  ATTNSCOPE_TRY(check(
      cudaMallocFromPoolAsync(&buffer.data_, bytes, pool, stream),
      fmt::format("{} of {} on CUDA device {}", what, format_bytes(static_cast<double>(bytes)), device)));
  buffer.bytes_ = bytes;
  report(EventKind::kAllocation, what, buffer.data_, bytes);
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  if (!data_) return;
  DeviceGuard guard(device_);
  report(EventKind::kFree, "free", data_, bytes_);
  (void)cudaFreeAsync(data_, stream_);
}

Result<PinnedBuffer> PinnedBuffer::allocate(size_t bytes) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  ATTNSCOPE_TRY(check(cudaMallocHost(&buffer.data_, bytes), fmt::format("pinned memory of {} bytes", bytes)));
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_) (void)cudaFreeHost(data_);
}

Result<Workspace> Workspace::acquire(const RunOptions& options, size_t bytes, int device) {
  Workspace workspace;
  if (bytes == 0) return workspace;
  if (options.workspace) {
    if (options.workspace_bytes < bytes)
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("the workspace has {} bytes, this plan needs {}", options.workspace_bytes, bytes),
          "ask Plan::workspace_bytes()");
    if (reinterpret_cast<uintptr_t>(options.workspace) % 256 != 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("the workspace at {} is not 256-byte aligned", options.workspace),
                  "memory from cudaMalloc is");
    workspace.data_ = options.workspace;
    return workspace;
  }
  ATTNSCOPE_ASSIGN(workspace.owned_, DeviceBuffer::allocate(bytes, static_cast<cudaStream_t>(options.stream),
                                                            device, "attention workspace"));
  workspace.data_ = workspace.owned_.data();
  return workspace;
}

}  // namespace attnscope::cuda
