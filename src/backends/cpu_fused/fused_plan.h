#pragma once
// The plan that `flash` and `efficient` share: same kernels, different tiling.

#include "attention/backend.h"
#include "attention/refusal.h"
#include "backends/cpu_fused/schedule.h"

namespace attnscope::cpu_fused {

struct Variant {
  std::string_view name;    // also the kernel event's name
  std::string_view kernel;  // static storage
  Style style;
};

std::vector<Refusal> refusals(const Variant& variant, const Request& request);
[[nodiscard]] Result<std::shared_ptr<const BackendPlan>> make_plan(const Variant& variant,
                                                                   const Request& request);

}  // namespace attnscope::cpu_fused
