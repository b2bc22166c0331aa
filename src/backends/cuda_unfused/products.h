#pragma once
// The two matrix products of attention as steps of a program, with the visible copies that strides may need.

#include "backends/cuda_unfused/program.h"

namespace attnscope::cuda_unfused {

bool shape_is_empty(const Request& request);  // no query rows at all

class Products {
 public:
  // dtype: of the operands and the result in device memory (f32 for math).
  Products(const Request& request, DType dtype, Program& program)
      : r_(request), dtype_(dtype), program_(program) {}

  // scores = alpha · q·kᵀ. q and k are the request's own views; where their strides do not form one batch of
  // matrices a step makes them dense first.
  [[nodiscard]] Status scores(const TensorView& q, const TensorView& k, size_t scores, float alpha);
  // The same from dense q and k in the workspace.
  [[nodiscard]] Status scores_dense(size_t q, size_t k, size_t scores);
  // out = weights·v into outputs.out: directly when it is dense, else through the workspace and a copy
  // kernel.
  [[nodiscard]] Status values(size_t weights, const TensorView& v, const char* note);
  // result (workspace, dense [B,Hq,L,Ev]) = weights·v with dense v in the workspace.
  [[nodiscard]] Status values_dense(size_t weights, size_t v, size_t result);

 private:
  struct Operand {
    bool in_workspace = false;
    size_t offset = 0;
    Collapsed layout;
  };
  // The view as it lies, or a dense copy of it made by a step.
  Operand operand(const TensorView& view, int64_t groups, const char* what, int which);
  [[nodiscard]] Status add_scores(const Operand& q, const Operand& k, size_t scores, float alpha);
  [[nodiscard]] Result<cuda::Gemm> values_gemm(const Collapsed& v, size_t alignment);
  size_t alignment_of(const TensorView& view, const Collapsed& layout) const;

  const Request& r_;
  DType dtype_;
  Program& program_;
};

}  // namespace attnscope::cuda_unfused
