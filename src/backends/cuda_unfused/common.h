#pragma once
// Reasons that the unfused CUDA variants share, and their availability.

#include "attention/refusal.h"

#include <string>

namespace attnscope::cuda_unfused {

// Empty when a GPU of sm_80 or newer, its driver and cuBLASLt are there.
std::string unavailable_reason();
// dtype, device, index limits, and intermediates beyond the GPU's memory or the request's limit.
void refuse_common(const Request& request, double intermediate_bytes, Refusals& refusals);

}  // namespace attnscope::cuda_unfused
