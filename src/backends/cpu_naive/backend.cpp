// naive: attention as it is written on a blackboard, every step its own kernel, masking out of place.

#include "backends/cpu_common/formula.h"
#include "backends/cpu_common/isa.h"

namespace attnscope {
namespace {

class CpuNaive final : public Backend {
 public:
  std::string_view name() const override { return "naive"; }
  std::string_view description() const override {
    return "the formula, every step its own kernel, masked out of place";
  }
  DeviceType device() const override { return DeviceType::kCpu; }
  std::string unavailable_reason() const override { return cpu::isa_unavailable_reason(); }
  bool automatic() const override { return false; }

  std::vector<Refusal> refusals(const Request& request) const override {
    Refusals refusals(name());
    cpu::refuse_beyond_formula(request, refusals);
    return refusals.take();
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    ATTNSCOPE_ASSIGN(auto program, cpu::formula_program(request, cpu::Masking::kOutOfPlace));
    return cpu::make_program_plan(std::move(program));
  }
};

}  // namespace

const Backend& cpu_naive_backend() {
  static const CpuNaive backend;
  return backend;
}

}  // namespace attnscope
