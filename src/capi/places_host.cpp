// A build without CUDA: a CUDA tensor is refused by the dispatcher, which has no backend for it.
#include "capi/places.h"

namespace attnscope::capi {

Status check_cuda_pointer(const char*, const TensorView&) {
  return {};
}
void enable_device_activity() {}

}  // namespace attnscope::capi
