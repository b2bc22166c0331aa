#pragma once
// The exact kernel instance at first use: from the user's disk cache, else compiled by NVRTC in a child
// process (it can crash on valid input) and kept. Compiling is the span "attnscope::jit_compile", reading the
// cache "attnscope::load_image".
//
// ATTNSCOPE_JIT: on (the default), off (refuses), cache (takes what is there, compiles nothing).

#include "attnscope/result.h"
#include "cuda/kernel_cache.h"
#include "cuda/nvrtc.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::cuda {

// One configuration of one kernel.
struct KernelInstance {
  std::string name;                       // "flash_sm90_e80_v80_k128_w2_c0_bf16"
  std::string entry;                      // the source with the __global__ function, a path of `sources`
  std::vector<std::string> defines;       // "ATTNSCOPE_E=80"
  std::string arch;                       // "sm_90a"
  std::span<const KernelSource> sources;  // everything the entry may include, and more
};

struct JitKernel {
  std::string cubin;
  std::string compiler;  // "NVRTC 13.0"
  bool from_cache = false;
  double compile_s = 0;    // 0 from the cache
  std::string cache_path;  // where it lies now; empty: it was not kept
  std::string
      note;  // what did not go well besides (a damaged entry, a folder that cannot be written); or empty
};

enum class JitMode { kOn, kOff, kCacheOnly };
// kInvalidArgument for a word that is none of the three.
[[nodiscard]] Result<JitMode> jit_mode();

// kUnavailable: switched off, no NVRTC, no entry in cache mode; kInternal: the compiler failed or crashed, or
// the result spills registers or lost its overlap (ptxas C75xx). Every message says what to do. Not
// remembered: callers keep the answer.
[[nodiscard]] Result<JitKernel> jit_kernel(const KernelInstance& instance);
// The same with everything given.
[[nodiscard]] Result<JitKernel> jit_kernel(const KernelInstance& instance, JitMode mode,
                                           const Result<Nvrtc>& nvrtc, const Result<KernelCache>& cache);

// `entry` and what it includes, directly or not, of `sources`; the entry first. kInternal names a source that
// is missing.
[[nodiscard]] Result<std::vector<KernelSource>> closure_of(std::string_view entry,
                                                           std::span<const KernelSource> sources);
// Of the sources of the closure, the defines, the architecture and the options: what the cache files an entry
// under.
[[nodiscard]] Result<std::string> source_hash(const KernelInstance& instance);

}  // namespace attnscope::cuda
