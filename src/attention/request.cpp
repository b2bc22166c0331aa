#include "attnscope/attention.h"

#include <cmath>

namespace attnscope {

double Request::effective_scale() const {
  if (scale) return *scale;
  const int64_t e = head_dim();
  return e > 0 ? 1.0 / std::sqrt(static_cast<double>(e)) : 1.0;  // no elements: every score is 0
}

}  // namespace attnscope
