#pragma once
// Batched matrix products for the unfused backends: C[b,h] = A[b,h] · B[b, h / (heads / b_heads)].
//
// f32 and bf16 go to oneDNN where its layouts allow (one unit stride per matrix, no stride 0); everything
// else (f16, f64, odd strides) to a blocked product of ours, which widens tiles while it packs them: no copy
// of a whole operand is ever made.

#include "attnscope/result.h"
#include "attnscope/tensor_view.h"

#include <cstddef>
#include <memory>
#include <string>

namespace attnscope::cpu {

// Strides in elements of a stack of matrices.
struct MatrixLayout {
  DType dtype = DType::kF32;
  int64_t batch = 0, head = 0, row = 0, col = 0;
  // Rows × columns as the last two dimensions of v, or the other way round.
  static MatrixLayout of(const TensorView& v) {
    return {v.dtype, v.stride(0), v.stride(1), v.stride(2), v.stride(3)};
  }
  static MatrixLayout transposed(const TensorView& v) {
    return {v.dtype, v.stride(0), v.stride(1), v.stride(3), v.stride(2)};
  }
};

struct MatmulShape {
  int64_t batch = 0, heads = 0, b_heads = 0;
  int64_t m = 0, n = 0, k = 0;
};

class Matmul {
 public:
  virtual ~Matmul() = default;
  // `threads` is the size of the team in make(); scratch has scratch_bytes(). May run from many threads at
  // once.
  [[nodiscard]] virtual Status run(const void* a, const void* b, void* c, std::byte* scratch) const = 0;
  virtual size_t scratch_bytes() const = 0;
  virtual std::string kernel_name() const = 0;  // "onednn_matmul_f32", "gemm_f16"

  [[nodiscard]] static Result<std::shared_ptr<const Matmul>> make(const MatmulShape& shape,
                                                                  const MatrixLayout& a,
                                                                  const MatrixLayout& b,
                                                                  const MatrixLayout& c, int threads);
};

// A product that writes the call's output, whose strides only run() knows: oneDNN for a dense one, else the
// blocked product made for that call (its scratch is the larger of the two).
class OutputMatmul {
 public:
  [[nodiscard]] static Result<std::shared_ptr<const OutputMatmul>> make(const MatmulShape& shape,
                                                                        const MatrixLayout& a,
                                                                        const MatrixLayout& b,
                                                                        const TensorView& dense_out,
                                                                        int threads);
  [[nodiscard]] Status run(const void* a, const void* b, const TensorView& out, std::byte* scratch) const;
  size_t scratch_bytes() const;
  std::string kernel_name() const { return dense_->kernel_name(); }  // for a dense output
  std::string kernel_name_for(const TensorView& out) const {
    return (is_dense(out) ? dense_ : any_)->kernel_name();
  }

 private:
  bool is_dense(const TensorView& out) const;

  MatmulShape shape_;
  MatrixLayout a_, b_;
  TensorView dense_out_;
  int threads_ = 1;
  std::shared_ptr<const Matmul> dense_, any_;
};

}  // namespace attnscope::cpu
