#pragma once
// Images ready to launch.

#include "cuda/image.h"

#include <cstddef>
#include <span>

namespace attnscope::flash_sm90 {

// Loads an image once per device and process; the loading is a visible span. `name` and `cubin` stay the
// caller's for the life of the process, and the name's address tells images apart.
[[nodiscard]] Result<const cuda::Image*> loaded(const char* name, std::span<const std::byte> cubin,
                                                int threads, int device, const char* entry = "flash_forward",
                                                const char* shared_symbol = "flash_shared_bytes");

}  // namespace attnscope::flash_sm90
