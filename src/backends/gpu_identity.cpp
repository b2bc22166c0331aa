#include "backends/device_identity.h"
#include "base/text.h"
#include "cuda/device.h"

#include <fmt/format.h>

namespace attnscope {

DeviceIdentity gpu_identity(int index) {
  const auto info = cuda::device_info(index);
  if (!info) return {};
  return {terminal_safe((*info)->name, 100), fmt::format("sm_{}", (*info)->sm()),
          cuda::driver_cuda_version()};
}

}  // namespace attnscope
