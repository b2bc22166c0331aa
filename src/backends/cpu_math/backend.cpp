// math: the reference. Accepts everything but sinks, ALiBi slopes, score programs and split keys.

#include "math_program.h"

#include "attention/memory.h"
#include "backends/cpu_common/isa.h"

#include <fmt/format.h>

namespace attnscope {
namespace {

class CpuMath final : public Backend {
 public:
  std::string_view name() const override { return "math"; }
  std::string_view description() const override {
    return "the reference: float32 throughout, mask rebuilt per call, safe softmax";
  }
  DeviceType device() const override { return DeviceType::kCpu; }
  std::string unavailable_reason() const override { return cpu::isa_unavailable_reason(); }

  std::vector<Refusal> refusals(const Request& request) const override {
    Refusals refusals(name());
    if (request.sinks.data != nullptr) refusals.add("sinks", "attention sinks are not implemented");
    if (request.alibi_slopes.data != nullptr)
      refusals.add("alibi", "ALiBi slopes are not taken", "add them as a bias");
    if (!request.score_program.empty()) refusals.add("score-program", "score programs are not implemented");
    if (request.limits.splits > 1)
      refusals.add("splits", fmt::format("cannot split the keys into {} parts", request.limits.splits),
                   "leave splits at 0");
    refuse_if_too_big(request, cpu::math_bytes(request), refusals);
    return refusals.take();
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    ATTNSCOPE_ASSIGN(auto program, cpu::math_program(request));
    return cpu::make_program_plan(std::move(program));
  }
};

}  // namespace

const Backend& cpu_math_backend() {
  static const CpuMath backend;
  return backend;
}

}  // namespace attnscope
