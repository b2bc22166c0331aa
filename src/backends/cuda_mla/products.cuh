#pragma once
// The one product that wgmma.cuh lacks: A (K-major) and B (MN-major) both in shared memory, 256 columns.

#include "cuda/kernels_tile/wgmma.cuh"

namespace attnscope::mla {

using namespace attnscope::tile;

// d (64 × 256) += A (64 × 16) · B (16 × 256). The hazards are those of wgmma.cuh.
#define ATTNSCOPE_SHARED_VALUES(name)                                                    \
  asm volatile(                                                                          \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                      \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." name "." name " {" ATTNSCOPE_REGS16 \
      "}, %128, %129, p, 1, 1, 0, 1;\n}\n"                                               \
      : ATTNSCOPE_OUT16                                                                  \
      : "l"(a), "l"(b), "r"(1))
template <Type16 T>
ATTNSCOPE_D void shared_values(float (&d)[128], u64 a, u64 b) {
  if constexpr (T == Type16::kBf16)
    ATTNSCOPE_SHARED_VALUES("bf16");
  else
    ATTNSCOPE_SHARED_VALUES("f16");
}

}  // namespace attnscope::mla
