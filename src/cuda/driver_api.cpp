#include "cuda/driver_api.h"

#include "cuda/status.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace attnscope::cuda {
namespace {

template <class F>
Status find(const char* symbol, F& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(symbol, &address, 12000, cudaEnableDefault, &found);
  ATTNSCOPE_TRY(check(status, symbol));
  if (found != cudaDriverEntryPointSuccess || address == nullptr)
    return fail(ErrorCode::kUnavailable, fmt::format("the NVIDIA driver has no {}", symbol),
                "install a driver for CUDA 12 or newer");
  function = reinterpret_cast<F>(address);
  return {};
}

Result<DriverApi> load() {
  DriverApi api;
  ATTNSCOPE_TRY(find("cuLibraryLoadData", api.library_load_data));
  ATTNSCOPE_TRY(find("cuLibraryGetKernel", api.library_get_kernel));
  ATTNSCOPE_TRY(find("cuLibraryGetGlobal", api.library_get_global));
  ATTNSCOPE_TRY(find("cuKernelGetAttribute", api.kernel_get_attribute));
  ATTNSCOPE_TRY(find("cuKernelSetAttribute", api.kernel_set_attribute));
  ATTNSCOPE_TRY(find("cuLaunchKernelEx", api.launch_kernel_ex));
  ATTNSCOPE_TRY(find("cuTensorMapEncodeTiled", api.tensor_map_encode_tiled));
  ATTNSCOPE_TRY(find("cuGetErrorString", api.get_error_string));
  return api;
}

}  // namespace

Result<const DriverApi*> driver_api() {
  static const Result<DriverApi> api = load();
  if (!api) return tl::unexpected(api.error());
  return &*api;
}

Status check(const DriverApi& api, CUresult status, std::string_view what, std::source_location where) {
  if (status == CUDA_SUCCESS) return {};
  const char* text = nullptr;
  api.get_error_string(status, &text);
  const ErrorCode code = status == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kOutOfMemory
                         : status == CUDA_ERROR_NO_BINARY_FOR_GPU || status == CUDA_ERROR_NO_DEVICE
                             ? ErrorCode::kUnavailable
                             : ErrorCode::kInternal;
  return fail(code, fmt::format("{}: {}", what, text != nullptr ? text : "unknown driver error"), {}, where);
}

}  // namespace attnscope::cuda
