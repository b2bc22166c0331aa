#pragma once
// The part of a cost model that does not depend on the backend.

#include "attnscope/attention.h"

namespace attnscope {

// Score elements that the causal mode and the window keep of one head with so many rows and keys.
double kept_of(const Request& request, int64_t rows, int64_t keys);
// Score elements that the causal mode and the window keep, over all batches and heads. Uses no data: with
// lengths or packed sequences every key counts that the shapes allow.
double kept_scores(const Request& request);
// flops = 2·kept·(E + Ev); min_bytes = q, k, v and the mask read once (a broadcast dimension counts once, of
// a paged cache what the block table can name), out and lse written once.
CostModel base_cost(const Request& request);

}  // namespace attnscope
