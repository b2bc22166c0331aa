#include "backends/cpu_fused/fused_backend.h"

namespace attnscope {

const Backend& cpu_flash_backend() {
  static const cpu_fused::FusedBackend backend(
      {"flash", "flash_attention", cpu_fused::Style::kTuned},
      "tiled online softmax on packed panels, sized to the caches, with the widest dot products of this "
      "processor");
  return backend;
}

}  // namespace attnscope
