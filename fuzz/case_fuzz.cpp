// Case files of `attnscope verify` come from other people: the parser answers with cases or names the line;
// what a case costs is known before it is built, and a small one becomes a request or is refused.
#include "json_mutator.h"
#include "verify/verify_case.h"

#include <cstdint>
#include <cstdlib>
#include <string_view>

using namespace attnscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto cases = verify::parse_cases({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!cases) {
    if (cases.error().message.empty()) std::abort();
    return 0;
  }
  for (const verify::Case& c : *cases) {
    if (!c.merge.empty() || !c.machinery.empty()) continue;
    const double cost = verify::touched_elements(c), bytes = verify::storage_bytes(c);
    if (!(cost >= 0) || !(bytes >= 0)) std::abort();
    if (cost > 1e5 || bytes > 1e6) continue;
    for (const bool dense : {false, true}) {
      const auto tensors = verify::materialise(c, dense);
      if (!tensors && tensors.error().message.empty()) std::abort();
      if (tensors) (void)validate((*tensors)->request);
    }
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  return fuzz::mutate_json(data, size, max_size, seed);
}
