#pragma once
// The kernels of each instruction set.

#include "backends/cpu_common/isa.h"
#include "backends/cpu_fused/problem.h"

namespace attnscope::cpu_fused {

// How products are computed. kWiden: in f32. kNative: with the processor's bf16 products where it has them:
// for bf16 they round the attention weights to bf16, as PyTorch does; f32 and f16 keep their precision.
enum class Precision : uint8_t { kWiden, kNative };

// How K and V are read: packed block by block, or in place (few rows).
enum class Access : uint8_t { kPanels, kStream };

// element is f32, f16 or bf16.
const KernelSet& kernel_set(cpu::Isa isa, Element element, Precision precision, Access access);

}  // namespace attnscope::cpu_fused
