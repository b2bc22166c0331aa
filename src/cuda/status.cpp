#include "cuda/status.h"

#include <fmt/format.h>

namespace attnscope::cuda {
namespace {

struct Advice {
  ErrorCode code;
  const char* remedy;
};

Advice advice_for(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return {ErrorCode::kOutOfMemory,
              "free memory on the GPU (nvidia-smi lists who holds it), use a smaller shape, or a fused "
              "variant, which keeps no score matrix"};
    case cudaErrorInsufficientDriver:
      return {ErrorCode::kUnavailable, "install an NVIDIA driver that supports CUDA 13 (580 or newer)"};
    case cudaErrorNoDevice: return {ErrorCode::kUnavailable, "check nvidia-smi and CUDA_VISIBLE_DEVICES"};
    case cudaErrorInvalidDevice:
      return {ErrorCode::kInvalidArgument, "attnscope doctor lists the devices that can be used"};
    case cudaErrorNoKernelImageForDevice:
      return {
          ErrorCode::kUnavailable,
          "this build holds kernels for sm_80 and newer; rebuild with CMAKE_CUDA_ARCHITECTURES for this GPU"};
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
      return {ErrorCode::kUnavailable, "restart the driver's services (fabric manager, persistence daemon)"};
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return {
          ErrorCode::kInternal,
          "the CUDA context of this process is lost; run again under compute-sanitizer to find the access"};
    default: return {ErrorCode::kInternal, ""};
  }
}

}  // namespace

Status check(cudaError_t status, std::string_view what, std::source_location where) {
  if (status == cudaSuccess) [[likely]]
    return {};
  (void)cudaGetLastError();
  const Advice advice = advice_for(status);
  return fail(advice.code,
              fmt::format("{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status)),
              advice.remedy, where);
}

Status check_launch(std::string_view kernel, std::source_location where) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) [[likely]]
    return {};
  return check(status, fmt::format("launch of {}", kernel), where);
}

}  // namespace attnscope::cuda
