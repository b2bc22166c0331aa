// bf16 kernels for processors with AVX512_BF16; the flags come from the build.
#define ATTNSCOPE_ISA_NS avx512_bf16
#include "backends/cpu_fused/kernel/engine_bf16.h"
#include "backends/cpu_fused/kernel/engine_stream_bf16.h"
#include "backends/cpu_fused/kernel/task.h"

namespace attnscope::cpu_fused::avx512_bf16 {

// Panels, then streaming.
const KernelSet* bf16_kernels() {
  static const KernelSet table[] = {kernel_set_of<DotEngine>("avx512_bf16"),
                                    kernel_set_of<DotStreamEngine>("avx512_bf16")};
  return table;
}

}  // namespace attnscope::cpu_fused::avx512_bf16
