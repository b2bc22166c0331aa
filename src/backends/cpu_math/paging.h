#pragma once
// The two steps of a paged cache in the unfused reference.

#include "attnscope/attention.h"

namespace attnscope::cpu {

// rows [B, H, N, D] written to slots kv_lengths[b] … of the cache [pages, H, page_size, D].
void append_step(const Request& request, const TensorView& rows, const TensorView& cache, int threads);
// dense [B, H, S, D] = the stored and appended keys of each batch entry, 0 past its length.
template <typename T>
void gather_step(const Request& request, const TensorView& cache, const TensorView& dense, int threads);

}  // namespace attnscope::cpu
