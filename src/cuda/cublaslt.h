#pragma once
// Batched matrix products by cuBLASLt, opened at run time.

#include "attnscope/dtype.h"
#include "attnscope/result.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

namespace attnscope::cuda {

// Row-major C[M,N] = alpha · A[M,K] · B, with B [N,K] read transposed (b_transposed) or [K,N]; `batch` of
// them at the given strides (elements). Rows are `ld` elements apart.
struct GemmShape {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int64_t a_ld = 0, b_ld = 0, c_ld = 0;
  int64_t a_batch = 0, b_batch = 0, c_batch = 0;
  bool b_transposed = false;
  DType dtype = DType::kF32;  // of A, B and C; accumulation is f32
  bool plain_f32 = false;     // f32 on FMA units, never TF32 or emulated
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(batch);
  }
};

// A chosen algorithm for one shape on one device; immutable and usable from many threads and streams at once.
class Gemm {
 public:
  // Opens the library and asks its heuristics; `workspace_limit` bounds what the algorithm may ask for.
  // alignment: smallest alignment in bytes of A, B and C. kUnavailable: no cuBLASLt, or no algorithm.
  [[nodiscard]] static Result<Gemm> plan(const GemmShape& shape, int device, size_t alignment,
                                         size_t workspace_limit = size_t{32} << 20);
  [[nodiscard]] Status run(const void* a, const void* b, void* c, float alpha, void* workspace,
                           cudaStream_t stream) const;
  size_t workspace_bytes() const;
  const GemmShape& shape() const;
  Gemm() = default;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// "13.1.0", or why it cannot be used.
[[nodiscard]] Result<std::string> cublaslt_version();

}  // namespace attnscope::cuda
