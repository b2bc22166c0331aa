#pragma once
// The reference decomposition as a program, step for step what PyTorch's math path is known to run.

#include "backends/cpu_common/program.h"

namespace attnscope::cpu {

[[nodiscard]] Result<Program> math_program(const Request& request);
// Intermediates beyond the matrix products' scratch, in bytes.
double math_bytes(const Request& request);

}  // namespace attnscope::cpu
