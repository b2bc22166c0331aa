#pragma once
// The kernel table of a translation unit whose products are all in f32.

#include "backends/cpu_fused/kernel/engine_f32.h"
#include "backends/cpu_fused/kernel/engine_stream.h"
#include "backends/cpu_fused/kernel/task.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

#define ATTNSCOPE_STRING_(x) #x
#define ATTNSCOPE_STRING(x) ATTNSCOPE_STRING_(x)

// Panels for f32, f16, bf16, then streaming for the same.
const KernelSet* widened() {
  constexpr const char* kIsa = ATTNSCOPE_STRING(ATTNSCOPE_ISA_NS);
  static const KernelSet table[] = {
      kernel_set_of<WidenEngine<float>>(kIsa), kernel_set_of<WidenEngine<F16>>(kIsa),
      kernel_set_of<WidenEngine<BF16>>(kIsa),  kernel_set_of<StreamEngine<float>>(kIsa),
      kernel_set_of<StreamEngine<F16>>(kIsa),  kernel_set_of<StreamEngine<BF16>>(kIsa),
  };
  return table;
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
