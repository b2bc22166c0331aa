#include "backends/cpu_common/row_kernels.h"

#include <cstdlib>
#include <string_view>

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

// 0 portable, 1 avx2, 2 avx512: what the machine has, lowered by the environment.
int isa_level() {
#if defined(__x86_64__)
  int level = 0;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    level = 1;
  if (level == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    level = 2;
  if (const char* asked = std::getenv("ATTNSCOPE_CPU_ISA")) {
    const std::string_view isa(asked);
    if (isa == "portable") level = 0;
    if (isa == "avx2" && level > 1) level = 1;
  }
  return level;
#else
  return 0;
#endif
}

int level() {
  static const int found = isa_level();
  return found;
}

}  // namespace

#if defined(__x86_64__)
template <>
const RowKernels<float>& row_kernels<float>() {
  return level() == 2 ? isa_avx512::kFloat : level() == 1 ? isa_avx2::kFloat : isa_portable::kFloat;
}
template <>
const RowKernels<double>& row_kernels<double>() {
  return level() == 2 ? isa_avx512::kDouble : level() == 1 ? isa_avx2::kDouble : isa_portable::kDouble;
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
