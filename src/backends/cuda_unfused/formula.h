#pragma once
// The formula on the GPU, one kernel per operation, scores stored in the tensors' dtype: matmul, mul, (add),
// masked_fill, softmax, matmul. `naive` and `inplace` differ only in how they mask.

#include "attention/refusal.h"
#include "backends/cuda_unfused/program.h"

namespace attnscope::cuda_unfused {

enum class Masking : uint8_t {
  kOutOfPlace,  // the scores are copied device to device, then masked: a copy nobody wrote
  kInPlace,     // the scores are overwritten
};

void refuse_beyond_formula(const Request& request, Refusals& refusals);
[[nodiscard]] Result<Program> formula_program(const Request& request, Masking masking);

}  // namespace attnscope::cuda_unfused
