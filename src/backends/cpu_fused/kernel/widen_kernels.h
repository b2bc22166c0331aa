#pragma once
// The kernel table of a translation unit whose products are all in f32.

#include "backends/cpu_fused/kernel/engine_f32.h"
#include "backends/cpu_fused/kernel/task.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

#define ATTNSCOPE_STRING_(x) #x
#define ATTNSCOPE_STRING(x) ATTNSCOPE_STRING_(x)

const KernelSet* kernels() {
  static const KernelSet table[] = {
      kernel_set_of<WidenEngine<float>>(ATTNSCOPE_STRING(ATTNSCOPE_ISA_NS)),
      kernel_set_of<WidenEngine<F16>>(ATTNSCOPE_STRING(ATTNSCOPE_ISA_NS)),
      kernel_set_of<WidenEngine<BF16>>(ATTNSCOPE_STRING(ATTNSCOPE_ISA_NS)),
  };
  return table;
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
