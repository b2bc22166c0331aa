// efficient: one fused kernel for what flash refuses: bool masks and biases with any broadcast, any head size
// up to 256, any stride and alignment.

#include "attention/backend.h"

#include "backends/cuda_efficient/images.h"
#include "backends/cuda_flash_sm90/featured/mask_plan.h"
#include "backends/cuda_flash_sm90/featured/plan.h"
#include "backends/cuda_mma/plan.h"
#include "cuda/device.h"

#include <fmt/format.h>

namespace attnscope {
namespace {

constexpr std::string_view kName = "efficient";

Result<std::shared_ptr<const BackendPlan>> plan_everywhere(const Request& r) {
  return mma::make_plan(r, "efficient_forward", efficient::images(r.q.dtype));
}

// Masks on Hopper by its own kernel. Only run() sees the output: one that the kernel cannot write goes the
// way of every other GPU.
class HopperPlan final : public BackendPlan {
 public:
  explicit HopperPlan(std::shared_ptr<const BackendPlan> plan) : plan_(std::move(plan)) {}
  Status run(const Request& r, const Outputs& outputs, const RunOptions& options) const override {
    if (flash_sm90::writes_directly(r, outputs.out)) return plan_->run(r, outputs, options);
    ATTNSCOPE_ASSIGN(const std::shared_ptr<const BackendPlan> plan, plan_everywhere(r));
    return plan->run(r, outputs, options);
  }
  size_t workspace_bytes() const override { return plan_->workspace_bytes(); }
  CostModel cost() const override { return plan_->cost(); }
  std::vector<std::string> steps() const override { return plan_->steps(); }

 private:
  std::shared_ptr<const BackendPlan> plan_;
};

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
    ATTNSCOPE_ASSIGN(const cuda::DeviceInfo* info, cuda::device_info(r.q.device.index));
    if (efficient::takes_f32_sm90(r, info->sm()))
      return mma::make_plan(r, "efficient_forward_f32_sm90", efficient::f32_sm90_images());
    if (info->sm() != 90 || r.mask_kind == MaskKind::kNone || !flash_sm90::mask_obstacle(r).empty())
      return plan_everywhere(r);
    ATTNSCOPE_ASSIGN(std::shared_ptr<const BackendPlan> plan,
                     flash_sm90::plan_featured(r, info->sm_count, "efficient_forward_sm90"));
    return std::make_shared<HopperPlan>(std::move(plan));
  }
};

}  // namespace

const Backend& cuda_efficient_backend() {
  static const EfficientBackend backend;
  return backend;
}

}  // namespace attnscope
