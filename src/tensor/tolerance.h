#pragma once
// How far a result may be from the float64 oracle: derived from the dtype, the reduction lengths and the
// magnitudes of the request, not tuned per backend.

#include "attnscope/attention.h"

namespace attnscope {

struct Tolerance {
  double out = 0;
  double lse = 0;
};

// Half a unit in the last place of 1.
double unit_roundoff(DType dtype);
// scores_rounded: the scores themselves are stored in the dtype (naive, inplace). Host tensors; reads the
// data.
Tolerance tolerance_for(const Request& request, bool scores_rounded);

}  // namespace attnscope
