// One configuration of the featured kernel, chosen by macros, as one image with one entry: flash_forward.
#include "backends/cuda_flash_sm90/featured/kernel.cuh"

#ifndef ATTNSCOPE_STORE
#define ATTNSCOPE_STORE kDirect
#endif
#ifndef ATTNSCOPE_TRANSFORM
#define ATTNSCOPE_TRANSFORM 0
#endif
#ifndef ATTNSCOPE_MASK
#define ATTNSCOPE_MASK kNone
#endif
#ifndef ATTNSCOPE_MASK_STAGES
#define ATTNSCOPE_MASK_STAGES 2
#endif
#ifndef ATTNSCOPE_Q_STAGES
#define ATTNSCOPE_Q_STAGES (ATTNSCOPE_E <= 192 ? 2 : 1)
#endif

namespace attnscope::flash_sm90 {
struct Chosen
    : FeaturedConfig<
          Config<Type16::ATTNSCOPE_TYPE, ATTNSCOPE_E, ATTNSCOPE_EV, ATTNSCOPE_COLUMNS, ATTNSCOPE_CONSUMERS,
                 false, Order::ATTNSCOPE_ORDER, Store::ATTNSCOPE_STORE, ATTNSCOPE_Q_STAGES>> {
  static constexpr bool kTransform = ATTNSCOPE_TRANSFORM;  // softcap, ALiBi, dropout
  static constexpr Masking kMask = Masking::ATTNSCOPE_MASK;
  static constexpr int kMaskStages = ATTNSCOPE_MASK_STAGES;
};
}  // namespace attnscope::flash_sm90

extern "C" __device__ const int flash_shared_bytes =
    sizeof(attnscope::flash_sm90::FeaturedStorage<attnscope::flash_sm90::Chosen>);

extern "C" __global__ void __launch_bounds__(attnscope::flash_sm90::Chosen::kThreads, 1)
    flash_forward(const __grid_constant__ attnscope::flash_sm90::ParamsOf<attnscope::flash_sm90::Chosen> p) {
  extern __shared__ __align__(1024) unsigned char dynamic_shared[];
  attnscope::flash_sm90::flash_featured<attnscope::flash_sm90::Chosen>(p, dynamic_shared);
}
