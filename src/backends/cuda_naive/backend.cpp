// naive: attention as it is written on a blackboard, every step its own kernel, masking out of place: five
// kernels and a copy of the scores that nobody wrote.

#include "backends/cuda_unfused/common.h"
#include "backends/cuda_unfused/formula.h"

namespace attnscope {
namespace {

class CudaNaive final : public Backend {
 public:
  std::string_view name() const override { return "naive"; }
  std::string_view description() const override {
    return "the formula, every step its own kernel, masked out of place";
  }
  DeviceType device() const override { return DeviceType::kCuda; }
  bool automatic() const override { return false; }
  std::string unavailable_reason() const override { return cuda_unfused::unavailable_reason(); }

  std::vector<Refusal> refusals(const Request& request) const override {
    Refusals refusals(name());
    cuda_unfused::refuse_beyond_formula(request, refusals);
    return refusals.take();
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    ATTNSCOPE_ASSIGN(auto program,
                     cuda_unfused::formula_program(request, cuda_unfused::Masking::kOutOfPlace));
    return cuda_unfused::make_plan(std::move(program));
  }
};

}  // namespace

const Backend& cuda_naive_backend() {
  static const CudaNaive backend;
  return backend;
}

}  // namespace attnscope
