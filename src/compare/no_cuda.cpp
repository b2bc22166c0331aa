// The CUDA device in a build without CUDA: absent, with the reason.
#include "compare/device.h"

namespace attnscope::compare {

Result<std::unique_ptr<BenchDevice>> open_cuda_device(int) {
  return fail(ErrorCode::kUnavailable, "this build has no CUDA",
              "configure with -DATTNSCOPE_CUDA=ON, or use --device cpu");
}
int cuda_device_count() {
  return 0;
}
std::string cuda_state() {
  return "not in this build (nvcc was not found, or ATTNSCOPE_CUDA=OFF)";
}

}  // namespace attnscope::compare
