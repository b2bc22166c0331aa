// flash on every GPU since sm_80 that has no kernel of its own: which requests it takes.

#include "attention/backend.h"

#include "backends/cuda_mma/plan.h"
#include "cuda/device.h"

#include <fmt/format.h>

namespace attnscope {
namespace {

constexpr std::string_view kName = "flash_sm80";

class FlashSm80Backend final : public Backend {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "one fused kernel for every GPU since sm_80: cp.async, mma.sync, softmax between the products";
  }
  DeviceType device() const override { return DeviceType::kCuda; }
  std::string unavailable_reason() const override { return cuda::unavailable_reason(); }

  std::vector<Refusal> refusals(const Request& r) const override {
    Refusals all(kName);
    if (!dtype_is_half(r.q.dtype))
      all.add("dtype", fmt::format("takes bf16 and f16; this is {}", dtype_name(r.q.dtype)),
              "use efficient or math, or convert");
    mma::refuse_common(r, all);
    if (r.mask_kind != MaskKind::kNone)
      all.add("mask", "takes no bool mask or bias, only causal, window and lengths", "use efficient or math");
    const std::pair<const char*, const TensorView*> tensors[] = {{"q", &r.q}, {"k", &r.k}, {"v", &r.v}};
    for (const auto& [name, view] : tensors)
      if (const std::string why = mma::misalignment(*view); !why.empty())
        all.add("layout", fmt::format("{}: {}; 16-byte copies cannot load it", name, why),
                "use efficient, or make it contiguous with a head size that is a multiple of 8");
    return all.take();
  }

  Result<std::shared_ptr<const BackendPlan>> plan(const Request& r) const override {
    return mma::make_plan(r, "flash_forward_sm80", mma::images());
  }
};

}  // namespace

const Backend& cuda_flash_sm80_backend() {
  static const FlashSm80Backend backend;
  return backend;
}

}  // namespace attnscope
