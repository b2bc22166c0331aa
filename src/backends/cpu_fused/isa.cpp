#include "backends/cpu_fused/isa.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace attnscope::cpu_fused {

// One function per translation unit; index 0 f32, 1 f16, 2 bf16, then the same for streaming.
namespace portable {
const KernelSet* kernels();
}
#if defined(__x86_64__)
namespace avx2 {
const KernelSet* kernels();
}
namespace avx512 {
const KernelSet* kernels();
}
namespace avx512_bf16 {
const KernelSet* bf16_kernels();
}
namespace amx_bf16 {
const KernelSet* bf16_kernels();
}
#endif

namespace {

struct Isa {
  std::string_view name;
  const KernelSet* (*widen)();
  const KernelSet* (*native_bf16)();  // null: none
  bool (*supported)();
  bool (*automatic)();  // taken without being asked for?
};

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512bf16");
}
// The tile registers must be asked for, once per process: Linux saves them only then.
bool amx_permitted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
bool has_amx_bf16() {
  unsigned a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  return has_avx512_bf16() && (d & kAmxBf16) && (d & kAmxTile) && amx_permitted();
}
#endif

bool always() {
  return true;
}
#if defined(__x86_64__)
// Intel's vdpbf16ps is no faster than two f32 multiply-adds: 78 GFLOP/s a core beside 110 on a Xeon with AMX.
bool dots_pay_off() {
  return !__builtin_cpu_is("intel");
}
#endif

constexpr Isa kIsas[] = {
#if defined(__x86_64__)
    {"amx_bf16", avx512::kernels, amx_bf16::bf16_kernels, has_amx_bf16, always},
    {"avx512_bf16", avx512::kernels, avx512_bf16::bf16_kernels, has_avx512_bf16, dots_pay_off},
    {"avx512", avx512::kernels, nullptr, has_avx512, always},
    {"avx2", avx2::kernels, nullptr, has_avx2, always},
#endif
    {"portable", portable::kernels, nullptr, always, always},
};

bool supported(const Isa& isa) {
  // Asked once: a permission request and cpuid are not free.
  static const std::vector<bool> answers = [] {
    std::vector<bool> a;
    for (const Isa& i : kIsas) a.push_back(i.supported());
    return a;
  }();
  return answers[static_cast<size_t>(&isa - kIsas)];
}

}  // namespace

std::vector<IsaInfo> known_isas() {
  std::vector<IsaInfo> all;
  for (const Isa& isa : kIsas) all.push_back({isa.name, supported(isa)});
  return all;
}

Result<std::string_view> selected_isa() {
  const char* wanted = std::getenv("ATTNSCOPE_ISA");
  std::string known;
  for (const Isa& isa : kIsas) {
    if (wanted == nullptr || *wanted == '\0') {
      if (supported(isa) && isa.automatic()) return isa.name;
      continue;
    }
    if (isa.name == wanted) {
      if (supported(isa)) return isa.name;
      return fail(ErrorCode::kUnavailable,
                  "ATTNSCOPE_ISA=" + std::string(wanted) + ": this processor lacks it",
                  "unset ATTNSCOPE_ISA to use the best one present");
    }
    known += (known.empty() ? "" : ", ") + std::string(isa.name);
  }
  return fail(ErrorCode::kInvalidArgument,
              "ATTNSCOPE_ISA=" + std::string(wanted) + " is not an instruction set known here",
              "use one of: " + known);
}

const KernelSet& kernel_set(std::string_view name, Element element, Precision precision, Access access) {
  const Isa* isa = &kIsas[std::size(kIsas) - 1];
  for (const Isa& i : kIsas)
    if (i.name == name && supported(i)) isa = &i;
  const int index = element == Element::kF32 ? 0 : element == Element::kF16 ? 1 : 2;
  const int stream = access == Access::kStream ? 1 : 0;
  if (element == Element::kBF16 && precision == Precision::kNative && isa->native_bf16)
    return isa->native_bf16()[stream];
  return isa->widen()[3 * stream + index];
}

}  // namespace attnscope::cpu_fused
