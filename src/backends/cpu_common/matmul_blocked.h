#pragma once
// The product of ours; see matmul.h.

#include "backends/cpu_common/matmul.h"

namespace attnscope::cpu {

std::shared_ptr<const Matmul> make_blocked_matmul(const MatmulShape& shape, const MatrixLayout& a,
                                                  const MatrixLayout& b, const MatrixLayout& c, int threads);

}  // namespace attnscope::cpu
