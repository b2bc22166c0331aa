#pragma once
// The host side of every kernel that takes Params: what none of them takes, which image a request needs, the
// plan that launches it.

#include "attention/backend.h"
#include "attention/refusal.h"
#include "backends/cuda_mma/images.h"

#include <memory>
#include <span>
#include <string_view>

namespace attnscope::mma {

// Reasons that hold for all of them: head sizes above 256, splits, an old GPU, sizes past 32 bits, …
void refuse_common(const Request& request, Refusals& refusals);

// Why 16-byte copies cannot load the tensor; empty when they can.
std::string misalignment(const TensorView& view);

// One kernel, of the smallest of `images` that holds the request's head sizes and has what it needs. `kernel`
// is its name in events and traces (a literal).
[[nodiscard]] Result<std::shared_ptr<const BackendPlan>> make_plan(const Request& request,
                                                                   std::string_view kernel,
                                                                   std::span<const EmbeddedImage> images);

}  // namespace attnscope::mma
