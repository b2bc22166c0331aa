#pragma once
// The backend that `flash` and `efficient` are: one fused kernel in two tilings.

#include "backends/cpu_common/isa.h"
#include "backends/cpu_fused/fused_plan.h"

namespace attnscope::cpu_fused {

class FusedBackend final : public Backend {
 public:
  FusedBackend(const Variant& variant, std::string_view description)
      : variant_(variant), description_(description) {}
  std::string_view name() const override { return variant_.name; }
  std::string_view description() const override { return description_; }
  DeviceType device() const override { return DeviceType::kCpu; }
  std::string unavailable_reason() const override { return cpu::isa_unavailable_reason(); }
  std::vector<Refusal> refusals(const Request& request) const override {
    return cpu_fused::refusals(variant_, request);
  }
  Result<std::shared_ptr<const BackendPlan>> plan(const Request& request) const override {
    return make_plan(variant_, request);
  }

 private:
  Variant variant_;
  std::string_view description_;  // static storage
};

}  // namespace attnscope::cpu_fused
