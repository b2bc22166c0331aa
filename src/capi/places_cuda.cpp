#include "capi/places.h"

#include "cuda/device.h"
#include "profiler/cupti_source.h"

#include <fmt/format.h>

namespace attnscope::capi {

Status check_cuda_pointer(const char* name, const TensorView& view) {
  ATTNSCOPE_ASSIGN(const cuda::PointerPlace place, cuda::place_of(view.data));
  using Kind = cuda::PointerPlace::Kind;
  if (place.kind == Kind::kManaged) return {};
  if (place.kind != Kind::kDevice)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} says CUDA device {}, but its memory is the host's", name, view.device.index),
                "move the tensor to the GPU");
  if (place.device != view.device.index)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} says CUDA device {}, but its memory is on device {}", name, view.device.index,
                            place.device),
                "keep all tensors of a call on one device");
  return {};
}

void enable_device_activity() {
  profiler::enable_cuda_activity();
}

}  // namespace attnscope::capi
