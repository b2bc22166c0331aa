#pragma once
// One scaled-dot-product-attention graph of cuDNN: what a request needs of it, its support check, its plan,
// its run. The only file that sees cuDNN's headers is cudnn_graph.cpp.

#include "attnscope/attention.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

namespace attnscope::cudnn {

// "9.19.0", or why cuDNN cannot be used (not found, too old).
[[nodiscard]] Result<std::string> version();

class Graph {
 public:
  // Describes the request to cuDNN and asks whether any of its engines takes it: kUnavailable with cuDNN's
  // own reason. No device memory; a few milliseconds.
  [[nodiscard]] static Result<std::unique_ptr<Graph>> check(const Request& request);
  ~Graph();
  // Compiles the plan that the heuristics put first: tens of milliseconds for a new shape. Once.
  [[nodiscard]] Status build();
  size_t workspace_bytes() const;
  // out and stats are dense [B, Hq, L, Ev] and f32 [B, Hq, L]; stats and bias null when the request has none.
  // From many threads at once: each thread has a handle of its own.
  [[nodiscard]] Status run(const Request& request, void* out, void* stats, void* workspace,
                           cudaStream_t stream) const;

 private:
  struct Impl;
  explicit Graph(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attnscope::cudnn
