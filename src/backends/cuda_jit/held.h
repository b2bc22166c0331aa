#pragma once
// Instances that this process has: compiled or read from the cache once, kept for its life.

#include "cuda/jit.h"

#include <memory>
#include <string>

namespace attnscope::cuda {

struct HeldKernel {
  std::string name;   // of the instance; its address tells held instances apart
  std::string cubin;  // empty: it could not be had
  std::string note;   // "exact instance compiled by NVRTC 13.0 in 0.9 s"; or why there is none
  bool there() const { return !cubin.empty(); }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(cubin)); }
};

// What failed is remembered as well, except that compiling was switched off: it may be switched on again.
// What is there() stays for the life of the process, wherever the pointer goes.
std::shared_ptr<const HeldKernel> held_kernel(const KernelInstance& instance);

}  // namespace attnscope::cuda
