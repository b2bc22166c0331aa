#pragma once
// The tile instructions in software, for tests. Products follow the processor: pairs of bf16 are multiplied
// with one rounding each, even and odd ones summed apart over the tile, then both added to the accumulator;
// subnormal inputs count as zero and subnormal results become zero.

#include "backends/cpu_fused/kernel/simd.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

inline thread_local uint32_t software_tiles[8][16][16];

inline void software_tile_zero(int t) {
  std::memset(software_tiles[t], 0, sizeof(software_tiles[t]));
}
inline void software_tile_load(int t, const void* base, int64_t stride) {
  for (int i = 0; i < 16; ++i)
    std::memcpy(software_tiles[t][i], static_cast<const char*>(base) + i * stride, 64);
}
inline void software_tile_store(int t, void* base, int64_t stride) {
  for (int i = 0; i < 16; ++i) std::memcpy(static_cast<char*>(base) + i * stride, software_tiles[t][i], 64);
}
ATTNSCOPE_INLINE vf flush(vf x) {
  const __mmask16 subnormal = _mm512_fpclass_ps_mask(x, 0x20);
  return _mm512_mask_and_ps(x, subnormal, x, vset(-0.0f));
}
ATTNSCOPE_INLINE vf even_half(__m512i pairs) {
  return flush(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)));
}
ATTNSCOPE_INLINE vf odd_half(__m512i pairs) {
  return flush(
      _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u)))));
}
inline void software_tile_products(int c, int a, int b) {
  for (int m = 0; m < 16; ++m) {
    vf even = vset(0.0f), odd = vset(0.0f);
    for (int k = 0; k < 16; ++k) {
      const __m512i x = _mm512_set1_epi32(static_cast<int>(software_tiles[a][m][k]));
      const __m512i y = _mm512_loadu_si512(software_tiles[b][k]);
      even = flush(vfma(even_half(x), even_half(y), even));
      odd = flush(vfma(odd_half(x), odd_half(y), odd));
    }
    const vf before = _mm512_castsi512_ps(_mm512_loadu_si512(software_tiles[c][m]));
    _mm512_storeu_ps(software_tiles[c][m], flush(before + flush(even + odd)));
  }
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS

#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_loadconfig
#undef _tile_release
// The names are those of the intrinsics that they stand in for.
// NOLINTBEGIN(readability-identifier-naming)
#define _tile_zero(t) software_tile_zero(t)
#define _tile_loadd(t, base, stride) software_tile_load(t, base, stride)
#define _tile_stored(t, base, stride) software_tile_store(t, base, stride)
#define _tile_dpbf16ps(c, a, b) software_tile_products(c, a, b)
#define _tile_loadconfig(config) static_cast<void>(config)
#define _tile_release() static_cast<void>(0)
// NOLINTEND(readability-identifier-naming)
