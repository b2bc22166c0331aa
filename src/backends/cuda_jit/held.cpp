#include "backends/cuda_jit/held.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

namespace attnscope::cuda {
namespace {

std::string note_of(const JitKernel& kernel) {
  std::string note = kernel.from_cache ? fmt::format("exact instance from the cache ({})", kernel.compiler)
                                       : fmt::format("exact instance compiled by {} in {:.1f} s",
                                                     kernel.compiler, kernel.compile_s);
  if (!kernel.note.empty()) note += "; " + kernel.note;
  return note;
}

}  // namespace

std::shared_ptr<const HeldKernel> held_kernel(const KernelInstance& instance) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const HeldKernel>> all;
  const std::string key = instance.name + " " + instance.arch;
  const std::scoped_lock lock(mutex);
  if (const auto it = all.find(key); it != all.end()) return it->second;
  auto held = std::make_shared<HeldKernel>();
  held->name = instance.name;
  bool remembered = true;
  if (Result<JitKernel> kernel = jit_kernel(instance)) {
    held->note = note_of(*kernel);
    held->cubin = std::move(kernel->cubin);
  } else {
    held->note = "no exact instance: " + kernel.error().message;
    remembered =
        kernel.error().code != ErrorCode::kInvalidArgument && kernel.error().message != "ATTNSCOPE_JIT=off";
  }
  if (remembered) all.emplace(key, held);
  return held;
}

}  // namespace attnscope::cuda
