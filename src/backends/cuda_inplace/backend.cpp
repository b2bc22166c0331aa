// inplace: the formula with the scores masked where they are: five kernels, no copy, and no gradients.

#include "backends/cuda_unfused/common.h"
#include "backends/cuda_unfused/formula.h"

namespace attnscope {
namespace {

class CudaInplace final : public Backend {
 public:
  std::string_view name() const override { return "inplace"; }
  std::string_view description() const override {
    return "the formula, every step its own kernel, masked in place";
  }
  DeviceType device() const override { return DeviceType::kCuda; }
  bool automatic() const override { return false; }
  std::string unavailable_reason() const override { return cuda_unfused::unavailable_reason(); }

  std::vector<Refusal> refusals(const Request& request) const override {
    Refusals refusals(name());
    if (request.wants.gradients)
      refusals.add("overwrites-saved-value",
                   "masking in place overwrites the scaled scores, the result of mul that backward has saved",
                   "use naive, which masks a copy, or ask for no gradients");
    cuda_unfused::refuse_beyond_formula(request, refusals);
    return refusals.take();
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    ATTNSCOPE_ASSIGN(auto program, cuda_unfused::formula_program(request, cuda_unfused::Masking::kInPlace));
    return cuda_unfused::make_plan(std::move(program));
  }
};

}  // namespace

const Backend& cuda_inplace_backend() {
  static const CudaInplace backend;
  return backend;
}

}  // namespace attnscope
