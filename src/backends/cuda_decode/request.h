#pragma once
// What decode and mla ask of a request alike: few rows over a cache that is read once.

#include "attention/refusal.h"
#include "attnscope/attention.h"

#include <cstdint>
#include <string_view>

namespace attnscope::decode {

// Features that neither kernel has. elsewhere: the remedy, the backends that have them.
void refuse_features(const Request& request, std::string_view elsewhere, Refusals& refusals);
// Nothing to do, or more keys or rows than the kernels' ints count.
void refuse_extent(const Request& request, Refusals& refusals);

// Of out and, when it is wanted, the LSE.
int64_t output_bytes(const Request& request);
// A cache holds more than a call reads: at most the keys that the block table can name, with q and the
// outputs.
double paged_bytes(const Request& request);

}  // namespace attnscope::decode
