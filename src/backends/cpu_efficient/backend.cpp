#include "backends/cpu_common/isa.h"
#include "backends/cpu_fused/fused_plan.h"

namespace attnscope {
namespace {

constexpr cpu_fused::Variant kVariant{"efficient", "efficient_attention", cpu_fused::Style::kSimple};

class EfficientBackend final : public Backend {
 public:
  std::string_view name() const override { return kVariant.name; }
  std::string_view description() const override {
    return "one fused kernel with small tiles, every product in f32: any mask, bias, stride or head size";
  }
  DeviceType device() const override { return DeviceType::kCpu; }
  std::string unavailable_reason() const override { return cpu::isa_unavailable_reason(); }
  std::vector<Refusal> refusals(const Request& request) const override {
    return cpu_fused::refusals(kVariant, request);
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    return cpu_fused::make_plan(kVariant, request);
  }
};

}  // namespace

const Backend& cpu_efficient_backend() {
  static const EfficientBackend backend;
  return backend;
}

}  // namespace attnscope
