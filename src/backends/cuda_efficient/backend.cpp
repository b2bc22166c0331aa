// efficient: one fused kernel for what flash refuses: bool masks and biases with any broadcast, any head size
// up to 256, any stride and alignment.

#include "attention/backend.h"

#include "backends/cuda_efficient/images.h"
#include "backends/cuda_mma/plan.h"
#include "cuda/device.h"

#include <fmt/format.h>

namespace attnscope {
namespace {

constexpr std::string_view kName = "efficient";

class EfficientBackend final : public Backend {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "one fused kernel that takes any mask, bias, stride and head size up to 256";
  }
  DeviceType device() const override { return DeviceType::kCuda; }
  std::string unavailable_reason() const override { return cuda::unavailable_reason(); }

  std::vector<Refusal> refusals(const Request& r) const override {
    Refusals all(kName);
    if (efficient::images(r.q.dtype).empty())
      all.add("dtype", fmt::format("has no kernel for {}", dtype_name(r.q.dtype)), "use math, or convert");
    mma::refuse_common(r, all);
    return all.take();
  }

  Result<std::shared_ptr<const BackendPlan>> plan(const Request& r) const override {
    return mma::make_plan(r, "efficient_forward", efficient::images(r.q.dtype));
  }
};

}  // namespace

const Backend& cuda_efficient_backend() {
  static const EfficientBackend backend;
  return backend;
}

}  // namespace attnscope
