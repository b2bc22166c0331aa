// bf16 kernels for processors with AVX512_BF16; the flags come from the build.
#define ATTNSCOPE_ISA_NS avx512_bf16
#include "backends/cpu_fused/kernel/engine_bf16.h"
#include "backends/cpu_fused/kernel/engine_stream_bf16.h"
#include "backends/cpu_fused/kernel/task.h"

namespace attnscope::cpu_fused::avx512_bf16 {

const KernelSet* native(Element element, bool stream) {
  static const KernelSet panels = kernel_set_of<DotEngine>("avx512_bf16");
  static const KernelSet streaming = kernel_set_of<DotStreamEngine>("avx512_bf16");
  if (element != Element::kBF16) return nullptr;
  return stream ? &streaming : &panels;
}

}  // namespace attnscope::cpu_fused::avx512_bf16
