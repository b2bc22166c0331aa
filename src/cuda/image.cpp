#include "cuda/image.h"

#include "cuda/device.h"
#include "cuda/status.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::cuda {
namespace {

Result<KernelResources> read_resources(const DriverApi& api, CUkernel kernel, int shared_bytes, int threads,
                                       const DeviceInfo& info) {
  KernelResources r;
  const auto read = [&](CUfunction_attribute attribute, int& value) {
    return check(api, api.kernel_get_attribute(&value, attribute, kernel, info.index),
                 "cuKernelGetAttribute");
  };
  ATTNSCOPE_TRY(read(CU_FUNC_ATTRIBUTE_NUM_REGS, r.registers));
  ATTNSCOPE_TRY(read(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, r.local_bytes));
  ATTNSCOPE_TRY(read(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, r.max_threads));
  r.shared_bytes = shared_bytes;
  const int by_registers = info.registers_per_sm / std::max(1, r.registers * threads);
  const int64_t block_shared = shared_bytes + info.shared_reserved_per_block;
  const int by_shared = static_cast<int>(info.shared_per_sm / std::max<int64_t>(1, block_shared));
  r.blocks_per_sm = std::min({by_registers, by_shared, info.max_threads_per_sm / threads});
  return r;
}

}  // namespace

Result<Image> Image::load(std::span<const std::byte> cubin, const char* kernel, const char* shared_symbol,
                          int threads, int device) {
  ATTNSCOPE_ASSIGN(const DeviceInfo* info, device_info(device));
  Image image;
  ATTNSCOPE_ASSIGN(image.api_, driver_api());
  const DriverApi& api = *image.api_;
  const DeviceGuard guard(device);
  ATTNSCOPE_TRY(check(guard.status(), "cudaSetDevice"));
  ATTNSCOPE_TRY(check(cudaFree(nullptr), "starting the device"));  // the driver calls below need its context
  ATTNSCOPE_TRY(check(
      api, api.library_load_data(&image.library_, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
      fmt::format("loading the image of {}", kernel)));
  ATTNSCOPE_TRY(check(api, api.library_get_kernel(&image.kernel_, image.library_, kernel), kernel));
  CUdeviceptr symbol = 0;
  size_t size = 0;
  int shared_bytes = 0;
  ATTNSCOPE_TRY(
      check(api, api.library_get_global(&symbol, &size, image.library_, shared_symbol), shared_symbol));
  ATTNSCOPE_TRY(check(cudaMemcpy(&shared_bytes, reinterpret_cast<const void*>(symbol), sizeof shared_bytes,
                                 cudaMemcpyDeviceToHost),
                      shared_symbol));
  if (shared_bytes > info->shared_per_block_optin)
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} needs {} bytes of shared memory a block, {} gives {}", kernel, shared_bytes,
                            info->name, info->shared_per_block_optin));
  ATTNSCOPE_TRY(check(api,
                      api.kernel_set_attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_bytes,
                                               image.kernel_, device),
                      "cuKernelSetAttribute"));
  ATTNSCOPE_ASSIGN(image.resources_, read_resources(api, image.kernel_, shared_bytes, threads, *info));
  if (threads > image.resources_.max_threads || image.resources_.blocks_per_sm < 1)
    return fail(ErrorCode::kUnavailable,
                fmt::format("a block of {} with {} threads, {} registers each, does not fit {}", kernel,
                            threads, image.resources_.registers, info->name));
  image.threads_ = static_cast<unsigned>(threads);
  return image;
}

Status Image::launch(int blocks, const void* params, CUstream stream, const LaunchOptions& options) const {
  CUlaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (options.cluster > 1) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[count].value.clusterDim = {static_cast<unsigned>(options.cluster), 1, 1};
    ++count;
  }
  if (options.overlaps_previous) {
    attributes[count].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[count].value.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = threads_;
  config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(resources_.shared_bytes);
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  void* arguments[] = {const_cast<void*>(params)};
  return check(*api_,
               api_->launch_kernel_ex(&config, reinterpret_cast<CUfunction>(kernel_), arguments, nullptr),
               "cuLaunchKernelEx");
}

}  // namespace attnscope::cuda
