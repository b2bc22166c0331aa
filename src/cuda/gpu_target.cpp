#include "cuda/gpu_target.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace attnscope::cuda {
namespace {

// CUDA programming guide, "Technical Specifications per Compute Capability". A block may have all but 1 KB of
// a multiprocessor's shared memory.
struct Known {
  int sm;
  int shared_kb;  // of a multiprocessor
};
constexpr Known kKnown[] = {{80, 164},  {86, 100},  {87, 164},  {89, 100},  {90, 228},
                            {100, 228}, {103, 228}, {110, 228}, {120, 100}, {121, 100}};
constexpr int kLeastSharedKb = 100;

// As the CUDA tools name it where a GPU has instructions of its own.
std::string name_of(int sm) {
  return fmt::format("sm_{}{}", sm, sm >= 90 ? "a" : "");
}

}  // namespace

std::string GpuTarget::arch() const {
  return fmt::format("sm_{}", sm);
}

std::string GpuTarget::code_arch() const {
  return major() == 8 ? "sm_80" : arch();
}

GpuTarget gpu_target(int sm) {
  const auto* known =
      std::find_if(std::begin(kKnown), std::end(kKnown), [sm](const Known& k) { return k.sm == sm; });
  const int64_t kb = known != std::end(kKnown) ? known->shared_kb : kLeastSharedKb;
  return {sm, (kb - 1) * 1024, kb * 1024};
}

Result<GpuTarget> gpu_target_named(std::string_view arch) {
  std::string_view digits = arch;
  if (digits.starts_with("sm_")) digits.remove_prefix(3);
  if (digits.ends_with('a')) digits.remove_suffix(1);
  int sm = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), sm);
  const bool number = error == std::errc() && end == digits.data() + digits.size();
  for (const Known& known : kKnown)
    if (number && known.sm == sm && arch.starts_with("sm_")) return gpu_target(sm);
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.push_back(name_of(known.sm));
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("no kernel is compiled at run time for {}", terminal_safe(arch, 40)),
              "known: " + join(names, ", "));
}

}  // namespace attnscope::cuda
