#include "profiler/cupti_decode.h"

#include "base/demangle.h"

#include <algorithm>
#include <cstddef>
#include <string>

namespace attnscope::profiler {
namespace {

// The fields read below lie in the same place in every record version from CUDA 11.8 on; later versions only
// append.
static_assert(offsetof(CUpti_ActivityKernel9, shmemLimitConfig) ==
              offsetof(CUpti_ActivityKernel10, shmemLimitConfig));
static_assert(offsetof(CUpti_ActivityKernel9, clusterZ) == offsetof(CUpti_ActivityKernel10, clusterZ));
static_assert(offsetof(CUpti_ActivityKernel9, maxActiveClusters) ==
              offsetof(CUpti_ActivityKernel10, maxActiveClusters));
static_assert(offsetof(CUpti_ActivityMemcpy5, graphId) == offsetof(CUpti_ActivityMemcpy6, graphId));
static_assert(offsetof(CUpti_ActivityMemset3, graphId) == offsetof(CUpti_ActivityMemset4, graphId));

// "cudaLaunchKernel_v7000" → "cudaLaunchKernel"; "cuMemcpyDtoD_v2" keeps nothing of its suffix either.
std::string_view without_version(std::string_view name) {
  const size_t at = name.rfind("_v");
  if (at == std::string_view::npos || at + 2 == name.size()) return name;
  const auto digits = name.substr(at + 2);
  return std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })
             ? name.substr(0, at)
             : name;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Calls that only read or set state on the host. cudaMemGetInfo and the like do wait, and stay.
bool left_out(std::string_view name, bool driver) {
  static constexpr std::string_view kRuntime[] = {"cudaGetDevice",
                                                  "cudaSetDevice",
                                                  "cudaGetLastError",
                                                  "cudaPeekAtLastError",
                                                  "cudaEventCreate",
                                                  "cudaEventDestroy",
                                                  "cudaEventRecord",
                                                  "cudaEventQuery",
                                                  "cudaStreamIsCapturing",
                                                  "cudaStreamGetDevice",
                                                  "cudaDeviceGetAttribute",
                                                  "cudaPointerGetAttributes",
                                                  "cudaStreamGetCaptureInfo",
                                                  "cudaGetDeviceCount",
                                                  "cudaDriverGetVersion",
                                                  "cudaRuntimeGetVersion",
                                                  "cudaEventElapsedTime",
                                                  "cudaFuncGetAttributes",
                                                  "cudaOccupancy",
                                                  "cudaGetDriverEntryPoint",
                                                  "cudaGetFuncBySymbol",
                                                  "cudaStreamGetPriority",
                                                  "cudaDeviceGetStreamPriorityRange",
                                                  "cudaThreadExchangeStreamCaptureMode"};
  // Of the driver's API: launches, copies, fills, memory, modules, waits.
  static constexpr std::string_view kDriver[] = {"Launch", "Memcpy",  "Memset",      "MemAlloc",  "MemFree",
                                                 "Module", "Library", "Synchronize", "MemCreate", "MemMap"};
  if (driver)
    return std::none_of(std::begin(kDriver), std::end(kDriver),
                        [name](std::string_view kept) { return contains(name, kept); });
  return std::any_of(std::begin(kRuntime), std::end(kRuntime),
                     [name](std::string_view out) { return name.starts_with(out); });
}

bool sane(uint64_t begin, uint64_t end) {
  return begin != 0 && end >= begin;
}

}  // namespace

int64_t CuptiDecoder::api_name(bool driver, uint32_t cbid) {
  const uint64_t key = (static_cast<uint64_t>(driver) << 32) | cbid;
  if (const auto found = api_names_.find(key); found != api_names_.end()) return found->second;
  const char* text = nullptr;
  const auto domain = driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
  std::string name;
  if (api_.callback_name(domain, cbid, &text) == CUPTI_SUCCESS && text)
    name = without_version(text);
  else
    name = std::string(driver ? "driver call " : "runtime call ") + std::to_string(cbid);
  const int64_t id = text && left_out(name, driver) ? -1 : static_cast<int64_t>(names_.intern(name));
  api_names_.emplace(key, id);
  return id;
}

uint32_t CuptiDecoder::kernel_name(const char* name) {
  if (!name) return names_.intern("(unnamed kernel)");
  const auto [known, fresh] = kernel_names_.try_emplace(name, 0);
  if (fresh) known->second = names_.intern(demangle(name));  // as PyTorch's traces have it
  return known->second;
}

void CuptiDecoder::decode(uint8_t* buffer, size_t valid_bytes, ActivityRecords& into) {
  if (!buffer || valid_bytes == 0) return;
  CUpti_Activity* record = nullptr;
  while (true) {
    const CUptiResult result = api_.next_record(buffer, valid_bytes, &record);
    if (result == CUPTI_SUCCESS) {
      decode_record(*record, into);
      continue;
    }
    if (result != CUPTI_ERROR_MAX_LIMIT_REACHED) ++into.loss.broken_buffers;
    return;
  }
}

void CuptiDecoder::decode_api(const CUpti_Activity& record, bool driver, ActivityRecords& into) {
  const auto& r = reinterpret_cast<const CUpti_ActivityAPI&>(record);
  const int64_t name = api_name(driver, r.cbid);
  if (name < 0) return;
  if (!sane(r.start, r.end)) {
    ++into.loss.malformed;
    return;
  }
  into.apis.push_back({static_cast<uint32_t>(name), driver, r.start, r.end, r.processId, r.threadId,
                       r.correlationId, r.returnValue});
}

void CuptiDecoder::decode_kernel(const CUpti_Activity& record, ActivityRecords& into) {
  const auto& r = reinterpret_cast<const CUpti_ActivityKernel9&>(record);
  if (!sane(r.start, r.end)) {
    ++into.loss.malformed;
    return;
  }
  KernelRecord k;
  k.name = kernel_name(r.name);
  k.begin_ns = r.start;
  k.end_ns = r.end;
  k.device = r.deviceId;
  k.context = r.contextId;
  k.stream = r.streamId;
  k.correlation = r.correlationId;
  k.grid = {r.gridX, r.gridY, r.gridZ};
  k.block = {r.blockX, r.blockY, r.blockZ};
  k.cluster = {std::max(1u, r.clusterX), std::max(1u, r.clusterY), std::max(1u, r.clusterZ)};
  k.registers_per_thread = r.registersPerThread;
  k.static_shared = r.staticSharedMemory;
  k.dynamic_shared = r.dynamicSharedMemory;
  k.shared_executed = r.sharedMemoryExecuted;
  k.shared_optin = r.shmemLimitConfig == CUPTI_FUNC_SHMEM_LIMIT_OPTIN;
  k.local_per_thread = r.localMemoryPerThread;
  k.max_active_clusters = r.maxActiveClusters;
  k.launch_type = r.launchType;
  k.graph_node = r.graphNodeId;
  k.graph = r.graphId;
  into.kernels.push_back(k);
}

void CuptiDecoder::decode_record(const CUpti_Activity& record, ActivityRecords& into) {
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_RUNTIME: return decode_api(record, false, into);
    case CUPTI_ACTIVITY_KIND_DRIVER: return decode_api(record, true, into);
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return decode_kernel(record, into);
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& r = reinterpret_cast<const CUpti_ActivityMemcpy5&>(record);
      if (!sane(r.start, r.end)) break;
      into.copies.push_back({r.copyKind, r.srcKind, r.dstKind, r.bytes, r.start, r.end, r.deviceId,
                             r.contextId, r.streamId, r.correlationId, -1, -1, r.graphNodeId, r.graphId});
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& r = reinterpret_cast<const CUpti_ActivityMemcpyPtoP3&>(record);
      if (!sane(r.start, r.end)) break;
      into.copies.push_back({r.copyKind, r.srcKind, r.dstKind, r.bytes, r.start, r.end, r.deviceId,
                             r.contextId, r.streamId, r.correlationId, static_cast<int32_t>(r.srcDeviceId),
                             static_cast<int32_t>(r.dstDeviceId), r.graphNodeId, r.graphId});
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& r = reinterpret_cast<const CUpti_ActivityMemset3&>(record);
      if (!sane(r.start, r.end)) break;
      into.fills.push_back({r.value, r.bytes, r.start, r.end, r.deviceId, r.contextId, r.streamId,
                            r.correlationId, static_cast<uint8_t>(r.memoryKind), r.graphNodeId, r.graphId});
      return;
    }
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
      const auto& r = reinterpret_cast<const CUpti_ActivitySynchronization&>(record);
      if (!sane(r.start, r.end)) break;
      into.syncs.push_back({static_cast<uint8_t>(r.type), r.start, r.end, r.contextId, r.streamId,
                            r.correlationId, r.cudaEventId});
      return;
    }
    case CUPTI_ACTIVITY_KIND_OVERHEAD: {
      const auto& r = reinterpret_cast<const CUpti_ActivityOverhead2&>(record);
      if (!sane(r.start, r.end)) break;
      into.overheads.push_back({static_cast<uint32_t>(r.overheadKind), r.start, r.end});
      return;
    }
    default: ++into.loss.unknown; return;
  }
  ++into.loss.malformed;
}

}  // namespace attnscope::profiler
