#pragma once
// CUDA status codes as Status, with what was tried and what can be done about it.

#include "attnscope/result.h"

#include <cuda_runtime_api.h>

#include <string_view>

namespace attnscope::cuda {

// Success, or an error that names the call: "cudaMallocAsync of 4.3 GB: out of memory".
// Out of memory → kOutOfMemory; no driver, no device, driver too old, wrong architecture → kUnavailable;
// anything else → kInternal. Clears the runtime's sticky "last error" so that a later launch check does not
// report this one again.
[[nodiscard]] Status check(cudaError_t status, std::string_view what,
                           std::source_location where = std::source_location::current());

// The status of the launch just made on this thread.
[[nodiscard]] Status check_launch(std::string_view kernel,
                                  std::source_location where = std::source_location::current());

}  // namespace attnscope::cuda
