#pragma once
// Where a pointer really lies; one implementation with CUDA, one without.

#include "attnscope/result.h"
#include "attnscope/tensor_view.h"

namespace attnscope::capi {

// kInvalidArgument when a tensor that says CUDA device n lies elsewhere.
[[nodiscard]] Status check_cuda_pointer(const char* name, const TensorView& view);
// Makes GPU activity available to sessions, where this build can.
void enable_device_activity();

}  // namespace attnscope::capi
