#pragma once
// NVIDIA's run-time compiler, opened when it is first needed and never linked. Makes cubins without a GPU.

#include "attnscope/result.h"
#include "cuda/library.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::cuda {

// A source by the path that #include names it with.
struct KernelSource {
  std::string_view path;
  std::string_view text;
};

class Nvrtc {
 public:
  // A copy in the process, $ATTNSCOPE_NVRTC (a file or its folder), the loader's path, toolkits, Python
  // wheels. kUnavailable: none of these, or too old.
  [[nodiscard]] static Result<Nvrtc> open();

  // "NVRTC 13.0"
  std::string name() const;
  const std::string& path() const { return library_.path(); }

  // The cubin of `entry`, which includes only what `headers` holds. kInternal with the first lines of the
  // compiler's log. `log` gets all of it, ptxas' part too.
  [[nodiscard]] Result<std::string> compile(const KernelSource& entry, std::span<const KernelSource> headers,
                                            std::span<const std::string> options, std::string& log) const;

 private:
  // The few functions that are used, as nvrtc.h declares them; a program is an opaque pointer, 0 is success.
  struct Api {
    int (*version)(int*, int*) = nullptr;
    int (*create_program)(void**, const char*, const char*, int, const char* const*,
                          const char* const*) = nullptr;
    int (*destroy_program)(void**) = nullptr;
    int (*compile_program)(void*, int, const char* const*) = nullptr;
    int (*get_cubin_size)(void*, size_t*) = nullptr;
    int (*get_cubin)(void*, char*) = nullptr;
    int (*get_log_size)(void*, size_t*) = nullptr;
    int (*get_log)(void*, char*) = nullptr;
    const char* (*error_string)(int) = nullptr;
  };
  [[nodiscard]] Status find_functions();
  std::string log_of(void* program) const;

  DynamicLibrary library_;
  Api api_;
  int major_ = 0, minor_ = 0;
};

}  // namespace attnscope::cuda
