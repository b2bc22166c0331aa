#include "profiler/cupti_source.h"

#include "attnscope/profiler.h"
#include "cuda/device.h"
#include "cuda/status.h"
#include "profiler/cupti_collector.h"
#include "profiler/cupti_convert.h"

#include <cuda.h>

namespace attnscope::profiler {
namespace {

// Waits for every device this process has used; devices it has not are left alone (making a context there
// would cost seconds and memory).
Status wait_for_devices() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  ATTNSCOPE_TRY(cuda::check(
      cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &entry, 7000, cudaEnableDefault, &found),
      "cuDevicePrimaryCtxGetState"));
  const auto state_of = reinterpret_cast<CUresult (*)(CUdevice, unsigned int*, int*)>(entry);
  for (int device = 0; device < cuda::device_count(); ++device) {
    unsigned int flags = 0;
    int active = 0;
    if (!state_of || state_of(device, &flags, &active) != CUDA_SUCCESS || !active) continue;
    cuda::DeviceGuard guard(device);
    ATTNSCOPE_TRY(cuda::check(cudaDeviceSynchronize(), "waiting for the GPU to finish recorded work"));
  }
  return {};
}

class CuptiSource final : public ActivitySource {
 public:
  explicit CuptiSource(CuptiApi& api) : collector_(api, {}) {}
  Status start() override { return collector_.start(); }
  Status stop(Recording& recording) override {
    const Status waited = wait_for_devices();
    const ActivityRecords records = collector_.stop();
    std::vector<const cuda::DeviceInfo*> devices;
    for (int index = 0; index < cuda::device_count(); ++index)
      if (auto info = cuda::device_info(index)) devices.push_back(*info);
    add_activity(records, collector_.names(), devices, recording);
    for (std::string& note : collector_.notes()) recording.activity_loss.notes.push_back(std::move(note));
    return waited;
  }

 private:
  CuptiCollector collector_;
};

Result<std::unique_ptr<ActivitySource>> make_source() {
  if (std::string reason = cuda::unavailable_reason(); !reason.empty())
    return fail(ErrorCode::kUnavailable, "GPU activity cannot be recorded: " + reason,
                "record Activity::kCpu only");
  ATTNSCOPE_ASSIGN(CuptiApi * api, load_cupti());
  return std::make_unique<CuptiSource>(*api);
}

}  // namespace

void enable_cuda_activity() {
  set_cuda_activity_source(make_source);
}

}  // namespace attnscope::profiler
