#include "backends/cpu_common/row_kernels.h"

#include "backends/cpu_common/isa.h"

namespace attnscope::cpu {

namespace isa_portable {
extern const RowKernels<float> kFloat;
extern const RowKernels<double> kDouble;
}  // namespace isa_portable
#if defined(__x86_64__)
namespace isa_avx2 {
extern const RowKernels<float> kFloat;
extern const RowKernels<double> kDouble;
}  // namespace isa_avx2
namespace isa_avx512 {
extern const RowKernels<float> kFloat;
extern const RowKernels<double> kDouble;
}  // namespace isa_avx512
#endif

namespace {

// Asked for once: rows are many. A name that cannot be honoured makes the backends unavailable.
Isa level() {
  static const Isa found = [] {
    const auto chosen = selected_isa();
    return chosen ? chosen->isa : Isa::kPortable;
  }();
  return found;
}

}  // namespace

#if defined(__x86_64__)
template <>
const RowKernels<float>& row_kernels<float>() {
  const Isa isa = level();
  return isa >= Isa::kAvx512 ? isa_avx512::kFloat
         : isa == Isa::kAvx2 ? isa_avx2::kFloat
                             : isa_portable::kFloat;
}
template <>
const RowKernels<double>& row_kernels<double>() {
  const Isa isa = level();
  return isa >= Isa::kAvx512 ? isa_avx512::kDouble
         : isa == Isa::kAvx2 ? isa_avx2::kDouble
                             : isa_portable::kDouble;
}
#else
template <>
const RowKernels<float>& row_kernels<float>() {
  return isa_portable::kFloat;
}
template <>
const RowKernels<double>& row_kernels<double>() {
  return isa_portable::kDouble;
}
#endif

}  // namespace attnscope::cpu
