#pragma once
// Everything of a request that a plan may depend on, as bytes to compare: device, dtypes, sizes, strides,
// alignment and flags of every tensor, and the scalars. Never the data.

#include "attnscope/attention.h"

#include <string>

namespace attnscope {

std::string request_key(const Request& request);

}  // namespace attnscope
