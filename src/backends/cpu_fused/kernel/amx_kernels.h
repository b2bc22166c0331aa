#pragma once
// The kernel table of a translation unit with AMX tiles, real or in software.

#include "backends/cpu_fused/kernel/engine_amx_split.h"
#include "backends/cpu_fused/kernel/engine_stream_bf16.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

template <class E>
constexpr KernelSet kernel_set_on_tiles(const char* isa, int block_keys) {
  return {isa,        E::kTile,         E::kElementBytes,     kPanel,
          block_keys, scratch_bytes<E>, run_task_on_tiles<E>, merge<E>};
}

// f32 blocks are half as long: three pieces of the weights of a tile and of a V panel fill L1.
const KernelSet* native(Element element, bool stream) {
  static const KernelSet f32 = kernel_set_on_tiles<SplitEngine<float, 3>>("amx_bf16 in 3 pieces", 128);
  static const KernelSet f16 =
      kernel_set_on_tiles<SplitEngine<F16, 2>>("amx_bf16 in 2 pieces", kMaxBlockKeys);
  static const KernelSet bf16 = kernel_set_on_tiles<AmxEngine>("amx_bf16", kMaxBlockKeys);
  static const KernelSet bf16_stream = kernel_set_of<DotStreamEngine>("amx_bf16");
  if (element == Element::kBF16) return stream ? &bf16_stream : &bf16;
  if (stream) return nullptr;
  return element == Element::kF32 ? &f32 : &f16;
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
