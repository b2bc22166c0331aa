#pragma once
// The eight AMX tile registers, 16 lines of 64 bytes each, and 32 × 32 products over them: accumulators 0–3
// (rows 0–15 and 16–31 × columns 0–15 and 16–31), A in 4 and 5, B in 6 and 7. Tall: 32 rows, else 16.
//
// With ATTNSCOPE_TILES_IN_SOFTWARE the instructions become plain C++ with the processor's arithmetic, so that
// the kernels built on tiles are tested on machines without them.

#include "backends/cpu_fused/kernel/simd.h"

#if defined(ATTNSCOPE_TILES_IN_SOFTWARE)
#include "backends/cpu_fused/kernel/tiles_software.h"
#endif

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t line_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t lines[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64, "the layout that ldtilecfg reads");

inline constexpr int kAmxRows = 32;
inline constexpr int64_t kPanelBytes = 4 * kPanel;  // of a line: 32 pairs of bf16
inline constexpr int64_t kDepthStep = 32;           // elements a tile of A holds per row

ATTNSCOPE_INLINE void clear_accumulators() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
template <bool kTall>
ATTNSCOPE_INLINE void load_a(const uint16_t* a, int64_t stride) {
  _tile_loadd(4, a, stride);
  if constexpr (kTall) _tile_loadd(5, reinterpret_cast<const char*>(a) + 16 * stride, stride);
}
ATTNSCOPE_INLINE void load_b(const uint16_t* b) {
  _tile_loadd(6, b, kPanelBytes);
  _tile_loadd(7, b + 32, kPanelBytes);
}
template <bool kTall>
ATTNSCOPE_INLINE void multiply() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kTall) {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}
template <bool kTall>
ATTNSCOPE_INLINE void load_accumulators(const float* c, int64_t stride) {
  _tile_loadd(0, c, stride * 4);
  _tile_loadd(1, c + 16, stride * 4);
  if constexpr (kTall) {
    _tile_loadd(2, c + 16 * stride, stride * 4);
    _tile_loadd(3, c + 16 * stride + 16, stride * 4);
  }
}
template <bool kTall>
ATTNSCOPE_INLINE void store_accumulators(float* c, int64_t stride) {
  _tile_stored(0, c, stride * 4);
  _tile_stored(1, c + 16, stride * 4);
  if constexpr (kTall) {
    _tile_stored(2, c + 16 * stride, stride * 4);
    _tile_stored(3, c + 16 * stride + 16, stride * 4);
  }
}

// The tile registers belong to the thread: set up for a task, given up after it.
struct TileScope {
  TileScope() {
    const TileConfig config;
    _tile_loadconfig(&config);
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
