#pragma once
// The instruction set that the CPU backends compute with: the best that the processor has, or a lesser one
// that the environment variable ATTNSCOPE_CPU_ISA names (portable, avx2, avx512, avx512_bf16, amx_bf16, or
// amx_in_software: the kernels for AMX on any processor with AVX512_BF16, slowly, for tests).
// flash and efficient read it whenever a plan is made, the other backends once.

#include "attnscope/result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::cpu {

// Each has all that those before it have.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmxInSoftware, kAmxBf16 };

struct IsaInfo {
  Isa isa;
  std::string_view name;
  bool supported;      // by this processor and operating system
  bool asked = false;  // of selected_isa(): the environment named it
};

// Compiled in, best first.
const std::vector<IsaInfo>& known_isas();

// kInvalidArgument for a name that is not known, kUnavailable for one that this processor lacks.
Result<IsaInfo> selected_isa();

// Empty, or why ATTNSCOPE_CPU_ISA cannot be honoured.
std::string isa_unavailable_reason();

}  // namespace attnscope::cpu
