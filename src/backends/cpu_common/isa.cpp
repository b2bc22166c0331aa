#include "backends/cpu_common/isa.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace attnscope::cpu {
namespace {

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
// Intel's vdpbf16ps is no faster than two f32 multiply-adds (78 GFLOP/s a core beside 110 on a Xeon with
// AMX): there it is taken only when asked for.
bool dots_pay_off() {
  return !__builtin_cpu_is("intel");
}
#endif

std::vector<IsaInfo> look() {
  std::vector<IsaInfo> all;
#if defined(__x86_64__)
  __builtin_cpu_init();
  all.push_back({Isa::kAmxBf16, "amx_bf16", has_amx_bf16()});
  all.push_back({Isa::kAvx512Bf16, "avx512_bf16", has_avx512_bf16()});
  all.push_back({Isa::kAvx512, "avx512", has_avx512()});
  all.push_back({Isa::kAvx2, "avx2", has_avx2()});
#endif
  all.push_back({Isa::kPortable, "portable", true});
#if defined(__x86_64__)
  all.push_back({Isa::kAmxInSoftware, "amx_in_software", has_avx512_bf16()});
#endif
  return all;
}

bool automatic([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  return isa != Isa::kAmxInSoftware && (isa != Isa::kAvx512Bf16 || dots_pay_off());
#else
  return true;
#endif
}

}  // namespace

const std::vector<IsaInfo>& known_isas() {
  static const std::vector<IsaInfo> all = look();  // a permission request and cpuid are not free
  return all;
}

Result<IsaInfo> selected_isa() {
  const char* wanted = std::getenv("ATTNSCOPE_CPU_ISA");
  std::string known;
  for (const IsaInfo& info : known_isas()) {
    if (wanted == nullptr || *wanted == '\0') {
      if (info.supported && automatic(info.isa)) return info;
      continue;
    }
    if (info.name == wanted) {
      if (info.supported) return IsaInfo{info.isa, info.name, true, true};
      return fail(ErrorCode::kUnavailable,
                  "ATTNSCOPE_CPU_ISA=" + std::string(wanted) + ": this processor lacks it",
                  "unset ATTNSCOPE_CPU_ISA to use the best one present");
    }
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  return fail(ErrorCode::kInvalidArgument,
              "ATTNSCOPE_CPU_ISA=" + std::string(wanted) + " is not an instruction set known here",
              "use one of: " + known);
}

std::string isa_unavailable_reason() {
  const auto isa = selected_isa();
  return isa ? std::string() : isa.error().message + "; " + isa.error().remedy;
}

}  // namespace attnscope::cpu
