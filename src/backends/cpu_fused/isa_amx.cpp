// bf16 kernels for processors with AMX; the flags come from the build.
#define ATTNSCOPE_ISA_NS amx_bf16
#include "backends/cpu_fused/kernel/engine_amx.h"
#include "backends/cpu_fused/kernel/engine_stream_bf16.h"

namespace attnscope::cpu_fused::amx_bf16 {

// Panels, then streaming.
const KernelSet* bf16_kernels() {
  static const KernelSet table[] = {
      {"amx_bf16", kAmxRows, AmxEngine::kElementBytes, kPanel, scratch_bytes<AmxEngine>, run_task_on_tiles,
       merge<AmxEngine>},
      kernel_set_of<DotStreamEngine>("amx_bf16"),
  };
  return table;
}

}  // namespace attnscope::cpu_fused::amx_bf16
