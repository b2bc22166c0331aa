#pragma once
// Instruction sets with kernels of their own, and which one this process uses.

#include "attnscope/result.h"
#include "backends/cpu_fused/problem.h"

#include <string>
#include <string_view>
#include <vector>

namespace attnscope::cpu_fused {

// How bf16 products are computed. Exact widens every element to f32; dot products of bf16 pairs round the
// attention weights to bf16, as PyTorch does, and are used where the processor has them.
enum class Precision : uint8_t { kWiden, kNative };

struct IsaInfo {
  std::string_view name;
  bool supported;  // by this processor and operating system
};

// Compiled in, best first.
std::vector<IsaInfo> known_isas();

// The best supported one, or what the environment variable ATTNSCOPE_ISA names. Error kInvalidArgument for a
// name that is not known, kUnavailable for one that this processor lacks.
Result<std::string_view> selected_isa();

// How K and V are read: packed block by block, or in place (few rows).
enum class Access : uint8_t { kPanels, kStream };

// `isa` is a supported name of known_isas(); element is f32, f16 or bf16.
const KernelSet& kernel_set(std::string_view isa, Element element, Precision precision, Access access);

}  // namespace attnscope::cpu_fused
