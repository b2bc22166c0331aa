#pragma once
// The formula, one kernel per operation, scores stored in the tensors' dtype: matmul, mul, (add),
// masked_fill, softmax, matmul. `naive` and `inplace` differ only in how they mask.

#include "attention/refusal.h"
#include "backends/cpu_common/program.h"

namespace attnscope::cpu {

enum class Masking : uint8_t {
  kOutOfPlace,  // the scores are copied, then masked: a copy nobody wrote
  kInPlace,     // the scores are overwritten
};

// The reasons both variants share.
void refuse_beyond_formula(const Request& request, Refusals& refusals);
[[nodiscard]] Result<Program> formula_program(const Request& request, Masking masking);

}  // namespace attnscope::cpu
