#include "backends/cpu_fused/fused_backend.h"

namespace attnscope {

const Backend& cpu_efficient_backend() {
  static const cpu_fused::FusedBackend backend(
      {"efficient", "efficient_attention", cpu_fused::Style::kSimple},
      "one fused kernel with small tiles, every product in f32: any mask, bias, stride or head size");
  return backend;
}

}  // namespace attnscope
