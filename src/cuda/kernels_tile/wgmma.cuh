#pragma once
// wgmma: one warpgroup multiplies a 64×16 by a 16×N tile of 16-bit elements into 64×N float accumulators in
// registers. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
//
// Hazards, for every call: wgmma_fence() first, after any ordinary write of the accumulator or operand
// registers; wgmma_commit() after the last of a group; no access to those registers, and no overwriting of
// the shared tiles, until wgmma_wait<n>() has let the group finish.

#include "cuda/kernels_tile/maps.h"

namespace attnscope::tile {

ATTNSCOPE_D void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
ATTNSCOPE_D void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Lets all but the youngest `kPending` committed groups finish.
template <int kPending>
ATTNSCOPE_D void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving uses of these registers across this point.
template <int N>
ATTNSCOPE_D void pin_registers(float (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N>
ATTNSCOPE_D void pin_registers(u32 (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

// Accumulators d (+)= A·B. `shared_a`: A (64×16, K-major) and B (N×16, K-major) by descriptor, as in Q·Kᵀ.
// `register_a`: A in four words, B (16×N, MN-major) by descriptor, as in P·V. accumulate = 0 overwrites d.
template <int N, Type16 T>
struct Wgmma;

// Operand lists, eight registers at a time.
#define ATTNSCOPE_D8(i)                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define ATTNSCOPE_R0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define ATTNSCOPE_R1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define ATTNSCOPE_R2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define ATTNSCOPE_R3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define ATTNSCOPE_R4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define ATTNSCOPE_R5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTNSCOPE_R6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define ATTNSCOPE_R7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define ATTNSCOPE_R8 "%64,%65,%66,%67,%68,%69,%70,%71"
#define ATTNSCOPE_R9 "%72,%73,%74,%75,%76,%77,%78,%79"
#define ATTNSCOPE_R10 "%80,%81,%82,%83,%84,%85,%86,%87"
#define ATTNSCOPE_R11 "%88,%89,%90,%91,%92,%93,%94,%95"
#define ATTNSCOPE_R12 "%96,%97,%98,%99,%100,%101,%102,%103"
#define ATTNSCOPE_R13 "%104,%105,%106,%107,%108,%109,%110,%111"
#define ATTNSCOPE_R14 "%112,%113,%114,%115,%116,%117,%118,%119"
#define ATTNSCOPE_R15 "%120,%121,%122,%123,%124,%125,%126,%127"

#define ATTNSCOPE_REGS4 ATTNSCOPE_R0 "," ATTNSCOPE_R1 "," ATTNSCOPE_R2 "," ATTNSCOPE_R3
#define ATTNSCOPE_REGS5 ATTNSCOPE_REGS4 "," ATTNSCOPE_R4
#define ATTNSCOPE_REGS6 ATTNSCOPE_REGS5 "," ATTNSCOPE_R5
#define ATTNSCOPE_REGS7 ATTNSCOPE_REGS6 "," ATTNSCOPE_R6
#define ATTNSCOPE_REGS8 ATTNSCOPE_REGS7 "," ATTNSCOPE_R7
#define ATTNSCOPE_REGS9 ATTNSCOPE_REGS8 "," ATTNSCOPE_R8
#define ATTNSCOPE_REGS10 ATTNSCOPE_REGS9 "," ATTNSCOPE_R9
#define ATTNSCOPE_REGS11 ATTNSCOPE_REGS10 "," ATTNSCOPE_R10
#define ATTNSCOPE_REGS12 ATTNSCOPE_REGS11 "," ATTNSCOPE_R11
#define ATTNSCOPE_REGS16 \
  ATTNSCOPE_REGS12 "," ATTNSCOPE_R12 "," ATTNSCOPE_R13 "," ATTNSCOPE_R14 "," ATTNSCOPE_R15

#define ATTNSCOPE_OUT4 ATTNSCOPE_D8(0), ATTNSCOPE_D8(8), ATTNSCOPE_D8(16), ATTNSCOPE_D8(24)
#define ATTNSCOPE_OUT5 ATTNSCOPE_OUT4, ATTNSCOPE_D8(32)
#define ATTNSCOPE_OUT6 ATTNSCOPE_OUT5, ATTNSCOPE_D8(40)
#define ATTNSCOPE_OUT7 ATTNSCOPE_OUT6, ATTNSCOPE_D8(48)
#define ATTNSCOPE_OUT8 ATTNSCOPE_OUT7, ATTNSCOPE_D8(56)
#define ATTNSCOPE_OUT9 ATTNSCOPE_OUT8, ATTNSCOPE_D8(64)
#define ATTNSCOPE_OUT10 ATTNSCOPE_OUT9, ATTNSCOPE_D8(72)
#define ATTNSCOPE_OUT11 ATTNSCOPE_OUT10, ATTNSCOPE_D8(80)
#define ATTNSCOPE_OUT12 ATTNSCOPE_OUT11, ATTNSCOPE_D8(88)
#define ATTNSCOPE_OUT16 \
  ATTNSCOPE_OUT12, ATTNSCOPE_D8(96), ATTNSCOPE_D8(104), ATTNSCOPE_D8(112), ATTNSCOPE_D8(120)

// N columns, N / 2 accumulators; o0…o5 number the operands after them.
#define ATTNSCOPE_WGMMA(n, type, name, regs, out, o0, o1, o2, o3, o4, o5)                              \
  template <>                                                                                          \
  struct Wgmma<n, Type16::type> {                                                                      \
    ATTNSCOPE_D static void shared_a(float (&d)[n / 2], u64 a, u64 b, int accumulate) {                \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " o2                                              \
                   ", 0;\n"                                                                            \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" regs "}, " o0  \
                   ", " o1 ", p, 1, 1, 0, 0;\n}\n"                                                     \
                   : out                                                                               \
                   : "l"(a), "l"(b), "r"(accumulate));                                                 \
    }                                                                                                  \
    ATTNSCOPE_D static void register_a(float (&d)[n / 2], u32 a0, u32 a1, u32 a2, u32 a3, u64 b,       \
                                       int accumulate) {                                               \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " o5                                              \
                   ", 0;\n"                                                                            \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name " {" regs "}, {" o0 \
                   "," o1 "," o2 "," o3 "}, " o4 ", p, 1, 1, 1;\n}\n"                                  \
                   : out                                                                               \
                   : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));                     \
    }                                                                                                  \
  };

#define ATTNSCOPE_UNWRAP(...) __VA_ARGS__
#define ATTNSCOPE_WGMMA_BOTH(n, regs, out, ...)                              \
  ATTNSCOPE_WGMMA(n, kBf16, "bf16", regs, ATTNSCOPE_UNWRAP out, __VA_ARGS__) \
  ATTNSCOPE_WGMMA(n, kF16, "f16", regs, ATTNSCOPE_UNWRAP out, __VA_ARGS__)

ATTNSCOPE_WGMMA_BOTH(64, ATTNSCOPE_REGS4, (ATTNSCOPE_OUT4), "%32", "%33", "%34", "%35", "%36", "%37")
ATTNSCOPE_WGMMA_BOTH(80, ATTNSCOPE_REGS5, (ATTNSCOPE_OUT5), "%40", "%41", "%42", "%43", "%44", "%45")
ATTNSCOPE_WGMMA_BOTH(96, ATTNSCOPE_REGS6, (ATTNSCOPE_OUT6), "%48", "%49", "%50", "%51", "%52", "%53")
ATTNSCOPE_WGMMA_BOTH(112, ATTNSCOPE_REGS7, (ATTNSCOPE_OUT7), "%56", "%57", "%58", "%59", "%60", "%61")
ATTNSCOPE_WGMMA_BOTH(128, ATTNSCOPE_REGS8, (ATTNSCOPE_OUT8), "%64", "%65", "%66", "%67", "%68", "%69")
ATTNSCOPE_WGMMA_BOTH(144, ATTNSCOPE_REGS9, (ATTNSCOPE_OUT9), "%72", "%73", "%74", "%75", "%76", "%77")
ATTNSCOPE_WGMMA_BOTH(160, ATTNSCOPE_REGS10, (ATTNSCOPE_OUT10), "%80", "%81", "%82", "%83", "%84", "%85")
ATTNSCOPE_WGMMA_BOTH(176, ATTNSCOPE_REGS11, (ATTNSCOPE_OUT11), "%88", "%89", "%90", "%91", "%92", "%93")
ATTNSCOPE_WGMMA_BOTH(192, ATTNSCOPE_REGS12, (ATTNSCOPE_OUT12), "%96", "%97", "%98", "%99", "%100", "%101")
ATTNSCOPE_WGMMA_BOTH(256, ATTNSCOPE_REGS16, (ATTNSCOPE_OUT16), "%128", "%129", "%130", "%131", "%132", "%133")
ATTNSCOPE_WGMMA_BOTH(72, ATTNSCOPE_REGS4 ",%32,%33,%34,%35",
                     (ATTNSCOPE_OUT4, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])), "%36", "%37",
                     "%38", "%39", "%40", "%41")

}  // namespace attnscope::tile
