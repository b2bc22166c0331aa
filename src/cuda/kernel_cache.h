#pragma once
// Compiled kernels on disk, shared by every process of the user. An entry is one file
// SOURCE-COMPILER.kernel: a few lines of text, a blank one, the cubin. Writers replace whole files; a reader
// believes only what carries the right key and checksum. Least recently used entries go when the folder grows
// past its bound.

#include "attnscope/result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnscope::cuda {

struct CachedKernel {
  std::string name;      // of the instance
  std::string compiler;  // "NVRTC 13.0"
  std::string cubin;
};

class KernelCache {
 public:
  static constexpr int64_t kMostBytes = int64_t{256} << 20;

  // `folder` need not exist until something is stored.
  explicit KernelCache(std::string folder, int64_t most_bytes = kMostBytes)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}
  // The user's: cache_folder_path("kernels").
  [[nodiscard]] static Result<KernelCache> of_user();

  // The entry of this source hash (64 hexadecimal digits) made by `compiler`, or by any when that is empty:
  // the newest. nullopt when there is none to be believed; `problem` then says why when there was one
  // (damaged, cut short, a folder that others can write to). A hit becomes the most recently used.
  std::optional<CachedKernel> find(const std::string& source_hash, const std::string& compiler,
                                   std::string* problem = nullptr) const;
  // kIo when the folder cannot be made, trusted or written to.
  [[nodiscard]] Status store(const std::string& source_hash, const CachedKernel& kernel) const;
  std::string path_of(const std::string& source_hash, const std::string& compiler) const;
  const std::string& folder() const { return folder_; }

 private:
  void drop_oldest() const;

  std::string folder_;
  int64_t most_bytes_;
};

}  // namespace attnscope::cuda
