#pragma once
// Plans for requests with something that the plain kernel leaves out: windows, lengths, packed sequences,
// sinks, softcap, ALiBi, dropout; and, for `efficient`, masks and biases.

#include "attention/backend.h"
#include "attention/refusal.h"

#include <memory>
#include <string>
#include <string_view>

namespace attnscope::flash_sm90 {

bool needs_featured(const Request& request);
// What a request that needs it may not have; the reasons that hold for every image are the backend's.
void refuse_featured(const Request& request, Refusals& all);
// For `multiprocessors` blocks at most, under this name (a literal) in events and traces. The request has no
// refusals; a mask has no obstacle (mask_plan.h), and then run() needs an output that is 16-byte aligned
// throughout.
[[nodiscard]] Result<std::shared_ptr<const BackendPlan>> plan_featured(const Request& request,
                                                                       int multiprocessors,
                                                                       std::string_view kernel);
// Can an image with a mask write it?
bool writes_directly(const Request& request, const TensorView& out);

}  // namespace attnscope::flash_sm90
