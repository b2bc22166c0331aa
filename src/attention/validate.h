#pragma once
// The parts of validation that need more than a Request.

#include "attnscope/attention.h"

namespace attnscope {

// Sizes, dtype, strides and presence of the outputs, and of every data pointer the run reads.
[[nodiscard]] Status validate_run(const Request& request, const Outputs& outputs);
// Contents of lengths, offsets and block tables (host tensors only): every index a backend derives from them
// is inside its tensor.
[[nodiscard]] Status validate_lengths(const Request& request);

}  // namespace attnscope
