#include "backends/cpu_fused/isa.h"

namespace attnscope::cpu_fused {

// One function per translation unit. widened: panels for f32, f16, bf16, then streaming for the same. The
// others name what they return, null for what they leave to the widened kernels.
namespace portable {
const KernelSet* widened();
}
#if defined(__x86_64__)
namespace avx2 {
const KernelSet* widened();
}
namespace avx512 {
const KernelSet* widened();
}
namespace avx512_bf16 {
const KernelSet* native(Element element, bool stream);
}
namespace amx_bf16 {
const KernelSet* native(Element element, bool stream);
}
namespace amx_in_software {
const KernelSet* native(Element element, bool stream);
}
#endif

namespace {

using cpu::Isa;

const KernelSet* widened([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return avx512::widened();
  if (isa == Isa::kAvx2) return avx2::widened();
#endif
  return portable::widened();
}

const KernelSet* native([[maybe_unused]] Isa isa, [[maybe_unused]] Element element,
                        [[maybe_unused]] bool stream) {
#if defined(__x86_64__)
  if (isa == Isa::kAmxBf16) return amx_bf16::native(element, stream);
  if (isa == Isa::kAmxInSoftware) return amx_in_software::native(element, stream);
  if (isa == Isa::kAvx512Bf16) return avx512_bf16::native(element, stream);
#endif
  return nullptr;
}

}  // namespace

const KernelSet& kernel_set(Isa isa, Element element, Precision precision, Access access) {
  const bool stream = access == Access::kStream;
  if (precision == Precision::kNative)
    if (const KernelSet* set = native(isa, element, stream)) return *set;
  const int index = element == Element::kF32 ? 0 : element == Element::kF16 ? 1 : 2;
  return widened(isa)[index + (stream ? 3 : 0)];
}

}  // namespace attnscope::cpu_fused
