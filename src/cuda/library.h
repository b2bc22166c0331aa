#pragma once
// NVIDIA's libraries are found at run time, so that one binary runs with and without them.

#include "attnscope/result.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::cuda {

// A library that stays loaded for the life of the process.
class DynamicLibrary {
 public:
  // Tries, in order: a copy already in the process under one of `names`; the path in environment variable
  // `override_variable` (a file, or a folder that holds one of the names); the loader's own search; then
  // search_folders(). kUnavailable lists what was tried.
  [[nodiscard]] static Result<DynamicLibrary> open(std::span<const char* const> names,
                                                   const char* override_variable);

  // The symbol's address or null.
  void* find(const char* symbol) const;
  const std::string& path() const { return path_; }
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
};

// Where NVIDIA's libraries may lie besides the loader's path: CUDA_HOME, /usr/local/cuda*, and the
// nvidia/*/lib folders of Python wheels (PyTorch's) under PYTHONPATH, VIRTUAL_ENV and the interpreters of
// this machine. Existing folders only, best guess first.
std::vector<std::string> search_folders();

}  // namespace attnscope::cuda
