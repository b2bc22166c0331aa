#pragma once
// The step before an attention that reads a paged cache: new keys and values are written into it, by a kernel
// of its own that plan and trace show. Every CUDA backend that reads pages takes appends through this.

#include "attnscope/attention.h"
#include "cuda/image.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace attnscope::append {

inline constexpr std::string_view kKernel = "cache_append";

// The embedded image. Generated (images.cmake).
std::span<const std::byte> image();

class Step {
 public:
  // Does nothing for a request that appends nothing; loads the kernel (once per device and process, a visible
  // span) for the others.
  [[nodiscard]] static Result<Step> prepare(const Request& request);

  // Does a launch come before the attention's?
  bool needed() const { return image_ != nullptr; }
  // The request's device must be current. `stream` is a CUstream.
  [[nodiscard]] Status run(const Request& request, void* stream) const;
  // "kernel cache_append  copies 1 new keys and values of …": a line of BackendPlan::steps().
  const std::string& describe() const { return text_; }

 private:
  const cuda::Image* image_ = nullptr;
  std::string text_;
};

}  // namespace attnscope::append
