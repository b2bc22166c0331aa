#pragma once
// Does a request fit? Asked before anything is allocated.

#include "attention/refusal.h"

#include <cstdint>

namespace attnscope {

// Host memory this process may still use: the smaller of what the system has available and what its control
// group leaves. 0 when it cannot be found out.
int64_t available_host_bytes();
// What the request may use for intermediates on the host: its limit when set, else 90 % of what is available.
int64_t host_memory_budget(const Request& request);
// Adds the refusal "too-big-for-memory" with both sizes when `bytes` of intermediates are beyond the budget.
void refuse_if_too_big(const Request& request, double bytes, Refusals& refusals);

}  // namespace attnscope
