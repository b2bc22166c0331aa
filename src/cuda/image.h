#pragma once
// A kernel compiled to a cubin for one configuration: loaded once, its resources checked, launched through
// one door. The cubin's entry has a symbol beside it that says how much dynamic shared memory it needs.

#include "attnscope/result.h"
#include "cuda/driver_api.h"

#include <cstddef>
#include <span>

namespace attnscope::cuda {

struct KernelResources {
  int registers = 0;      // a thread
  int local_bytes = 0;    // a thread: spills or stack
  int shared_bytes = 0;   // a block, dynamic
  int max_threads = 0;    // a block
  int blocks_per_sm = 0;  // that fit at `threads`, by registers and shared memory
};

// How blocks are put on the device (sm_90 and later).
struct LaunchOptions {
  int cluster = 1;  // blocks that share a cluster, at most 8
  // It may start before the kernel ahead of it in the stream has ended, for whose results it waits itself.
  bool overlaps_previous = false;
};

class Image {
 public:
  // Loads `cubin` (which stays the caller's, unchanged) and prepares `kernel` for blocks of `threads` on
  // `device`. `shared_symbol` names an int in it: the dynamic shared memory of a block. kUnavailable: no
  // driver, or the GPU cannot run it; kInternal: the driver failed.
  [[nodiscard]] static Result<Image> load(std::span<const std::byte> cubin, const char* kernel,
                                          const char* shared_symbol, int threads, int device);

  // Launches `blocks` blocks; `params` is the kernel's only argument. The image's device must be current.
  [[nodiscard]] Status launch(int blocks, const void* params, CUstream stream,
                              const LaunchOptions& options = {}) const;
  const KernelResources& resources() const { return resources_; }

 private:
  const DriverApi* api_ = nullptr;
  CUlibrary library_ = nullptr;  // stays loaded for the life of the process
  CUkernel kernel_ = nullptr;
  unsigned threads_ = 0;
  KernelResources resources_;
};

}  // namespace attnscope::cuda
