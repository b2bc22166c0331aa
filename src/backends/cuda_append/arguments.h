#pragma once
// A request as the appending kernel's parameters.

#include "attnscope/attention.h"
#include "backends/cuda_append/params.h"

#include <cstdint>

namespace attnscope::append {

// Of the new keys and values: read once, written once. 0 when the request appends nothing.
int64_t bytes_of(const Request& request);
// Addresses too. The request appends.
Params params_of(const Request& request);

}  // namespace attnscope::append
