// inplace: the formula with in-place masking. One copy less than naive, at the price of what backward would
// read.

#include "backends/cpu_common/formula.h"
#include "backends/cpu_common/isa.h"

namespace attnscope {
namespace {

class CpuInplace final : public Backend {
 public:
  std::string_view name() const override { return "inplace"; }
  std::string_view description() const override {
    return "the formula with in-place masking: inference only";
  }
  DeviceType device() const override { return DeviceType::kCpu; }
  std::string unavailable_reason() const override { return cpu::isa_unavailable_reason(); }
  bool automatic() const override { return false; }

  std::vector<Refusal> refusals(const Request& request) const override {
    Refusals refusals(name());
    if (request.wants.gradients)
      refusals.add("overwrites-saved-value",
                   "masking in place overwrites the scaled scores, the result of mul that backward has saved",
                   "use naive, which masks a copy, or ask for no gradients");
    cpu::refuse_beyond_formula(request, refusals);
    return refusals.take();
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    ATTNSCOPE_ASSIGN(auto program, cpu::formula_program(request, cpu::Masking::kInPlace));
    return cpu::make_program_plan(std::move(program));
  }
};

}  // namespace

const Backend& cpu_inplace_backend() {
  static const CpuInplace backend;
  return backend;
}

}  // namespace attnscope
