#pragma once
// The vectors a kernel is written in: vf holds kW floats. Three implementations, one chosen per translation
// unit by its compiler flags; ATTNSCOPE_ISA_NS keeps their symbols apart, which is what makes it safe to link
// them into one program. No standard library templates here: a shared copy might be the AVX-512 one.

#include "backends/cpu_fused/problem.h"

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
// GCC 12 takes the "undefined" operand inside its own intrinsics for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#endif

#define ATTNSCOPE_INLINE [[gnu::always_inline]] inline
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATTNSCOPE_UNROLL  // every access carries checks there: unrolled, a file takes minutes to compile
#else
#define ATTNSCOPE_UNROLL _Pragma("GCC unroll 32")
#endif

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kMaxFinite = 3.402823466e+38f;

template <typename T>
ATTNSCOPE_INLINE T min_of(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
ATTNSCOPE_INLINE T max_of(T a, T b) {
  return a > b ? a : b;
}

#if defined(__AVX512F__)

inline constexpr int kW = 16;
inline constexpr int kRowTile = 12;  // 12 × 2 accumulators, 2 panel vectors, 1 broadcast of 32 registers
using vf = __m512;

ATTNSCOPE_INLINE vf vset(float x) {
  return _mm512_set1_ps(x);
}
ATTNSCOPE_INLINE vf vload(const float* p) {
  return _mm512_loadu_ps(p);
}
ATTNSCOPE_INLINE vf vload_n(const float* p, int n) {
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
ATTNSCOPE_INLINE void vstore(float* p, vf x) {
  _mm512_storeu_ps(p, x);
}
ATTNSCOPE_INLINE void vstore_n(float* p, vf x, int n) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), x);
}
ATTNSCOPE_INLINE vf vfma(vf a, vf b, vf c) {
  return _mm512_fmadd_ps(a, b, c);
}
// NaN in a: b. NaN in b: NaN.
ATTNSCOPE_INLINE vf vmax(vf a, vf b) {
  return _mm512_max_ps(a, b);
}
ATTNSCOPE_INLINE float hmax(vf x) {
  return _mm512_reduce_max_ps(x);
}
ATTNSCOPE_INLINE float hsum(vf x) {
  return _mm512_reduce_add_ps(x);
}
ATTNSCOPE_INLINE vf interleave_low(vf a, vf b) {
  return _mm512_permutex2var_ps(a, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23),
                                b);
}
ATTNSCOPE_INLINE vf interleave_high(vf a, vf b) {
  return _mm512_permutex2var_ps(
      a, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), b);
}

#elif defined(__AVX2__)

inline constexpr int kW = 8;
inline constexpr int kRowTile = 6;  // 6 × 2 accumulators, 2 panel vectors, 1 broadcast of 16 registers
using vf = __m256;

ATTNSCOPE_INLINE __m256i lane_mask(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
ATTNSCOPE_INLINE vf vset(float x) {
  return _mm256_set1_ps(x);
}
ATTNSCOPE_INLINE vf vload(const float* p) {
  return _mm256_loadu_ps(p);
}
ATTNSCOPE_INLINE vf vload_n(const float* p, int n) {
  return _mm256_maskload_ps(p, lane_mask(n));
}
ATTNSCOPE_INLINE void vstore(float* p, vf x) {
  _mm256_storeu_ps(p, x);
}
ATTNSCOPE_INLINE void vstore_n(float* p, vf x, int n) {
  _mm256_maskstore_ps(p, lane_mask(n), x);
}
ATTNSCOPE_INLINE vf vfma(vf a, vf b, vf c) {
  return _mm256_fmadd_ps(a, b, c);
}
ATTNSCOPE_INLINE vf vmax(vf a, vf b) {
  return _mm256_max_ps(a, b);
}
ATTNSCOPE_INLINE float hmax(vf x) {
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
ATTNSCOPE_INLINE float hsum(vf x) {
  __m128 h = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  h = _mm_add_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
ATTNSCOPE_INLINE vf interleave_low(vf a, vf b) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}
ATTNSCOPE_INLINE vf interleave_high(vf a, vf b) {
  return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}

#else  // any processor: the compiler's own vectors

inline constexpr int kW = 4;
inline constexpr int kRowTile = 4;
typedef float vf __attribute__((vector_size(16)));

ATTNSCOPE_INLINE vf vset(float x) {
  return vf{x, x, x, x};
}
ATTNSCOPE_INLINE vf vload(const float* p) {
  vf x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}
ATTNSCOPE_INLINE vf vload_n(const float* p, int n) {
  vf x{};
  for (int i = 0; i < n; ++i) x[i] = p[i];
  return x;
}
ATTNSCOPE_INLINE void vstore(float* p, vf x) {
  __builtin_memcpy(p, &x, sizeof(x));
}
ATTNSCOPE_INLINE void vstore_n(float* p, vf x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x[i];
}
ATTNSCOPE_INLINE vf vfma(vf a, vf b, vf c) {
  return a * b + c;
}
ATTNSCOPE_INLINE vf vmax(vf a, vf b) {
  return a > b ? a : b;
}
ATTNSCOPE_INLINE float hmax(vf x) {
  return max_of(max_of(x[0], x[1]), max_of(x[2], x[3]));
}
ATTNSCOPE_INLINE float hsum(vf x) {
  return (x[0] + x[2]) + (x[1] + x[3]);
}
ATTNSCOPE_INLINE vf interleave_low(vf a, vf b) {
  return vf{a[0], b[0], a[1], b[1]};
}
ATTNSCOPE_INLINE vf interleave_high(vf a, vf b) {
  return vf{a[2], b[2], a[3], b[3]};
}

#endif

static_assert(kRowTile <= kW, "queries are packed by turning kW × kW squares around");
inline constexpr int kPanel = 2 * kW;  // keys of a K panel, value columns of a V panel

// ---- exp2 ----------------------------------------------------------------------------------------------
// 2^x for x ≤ 0 (any x < 128): x = n + f, |f| ≤ ½, 2^f by a polynomial that is 1 at 0 and within 1e-7
// elsewhere. Below −126 the result is exactly 0, also for −inf; NaN stays NaN.
inline constexpr float kExp2Low = -126.0f;
inline constexpr float kExp2C1 = 0.6931469775965333f, kExp2C2 = 0.24022242083582712f,
                       kExp2C3 = 0.0555073374703823f, kExp2C4 = 0.009671512721872897f,
                       kExp2C5 = 0.0013264726057648096f;

ATTNSCOPE_INLINE vf exp2_fraction(vf f) {
  vf y = vfma(vset(kExp2C5), f, vset(kExp2C4));
  y = vfma(y, f, vset(kExp2C3));
  y = vfma(y, f, vset(kExp2C2));
  y = vfma(y, f, vset(kExp2C1));
  return vfma(y, f, vset(1.0f));
}

#if defined(__AVX512F__)
ATTNSCOPE_INLINE vf vexp2(vf x) {
  const vf n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __mmask16 live = _mm512_cmp_ps_mask(x, vset(kExp2Low), _CMP_NLT_UQ);  // true for NaN
  return _mm512_maskz_scalef_ps(live, exp2_fraction(x - n), n);
}
#elif defined(__AVX2__)
ATTNSCOPE_INLINE vf vexp2(vf x) {
  const vf live = _mm256_cmp_ps(x, vset(kExp2Low), _CMP_NLT_UQ);
  const vf n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const vf y = exp2_fraction(x - n);
  const __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);  // 0 for NaN
  return _mm256_and_ps(live, _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), e)));
}
#else
ATTNSCOPE_INLINE vf vexp2(vf x) {
  typedef int32_t vi __attribute__((vector_size(16)));
  const vf clamped = x < kExp2Low ? vset(kExp2Low) : x;
  vf y;
  const vf magic = vset(12582912.0f);  // 1.5·2^23: adding it rounds to an integer
  const vf shifted = clamped + magic;
  const vf f = clamped - (shifted - magic);
  vi bits, magic_bits, result;
  __builtin_memcpy(&bits, &shifted, sizeof(bits));
  __builtin_memcpy(&magic_bits, &magic, sizeof(bits));
  y = exp2_fraction(f);
  __builtin_memcpy(&result, &y, sizeof(bits));
  result += (bits - magic_bits) << 23;
  __builtin_memcpy(&y, &result, sizeof(bits));
  y = x != x ? x : y;
  return x < kExp2Low ? vset(0.0f) : y;
}
#endif

// tanh: an odd polynomial near 0, where 1 − e^{−2x} would cancel, the exponential elsewhere.
inline float tanh_scalar(float x) {
  const float a = x < 0 ? -x : x;
  if (!(a > 0.625f)) {  // NaN too
    const float u = x * x;
    float y = -0.006113190986067572f * u + 0.02101008101630601f;
    y = y * u + -0.053854069671150855f;
    y = y * u + 0.1333279454657716f;
    y = y * u + -0.3333332924953481f;
    return x + x * (u * y);
  }
  float lane[kW];
  vstore(lane, vexp2(vset(a * -2.8853900817779268f)));
  const float t = (1.0f - lane[0]) / (1.0f + lane[0]);
  return x < 0 ? -t : t;
}

// ---- storage types -------------------------------------------------------------------------------------
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

ATTNSCOPE_INLINE float bits_to_float(uint32_t b) {
  float f;
  __builtin_memcpy(&f, &b, 4);
  return f;
}
ATTNSCOPE_INLINE uint32_t float_to_bits(float f) {
  uint32_t b;
  __builtin_memcpy(&b, &f, 4);
  return b;
}

ATTNSCOPE_INLINE float to_float(float x) {
  return x;
}
ATTNSCOPE_INLINE float to_float(BF16 x) {
  return bits_to_float(static_cast<uint32_t>(x.bits) << 16);
}
ATTNSCOPE_INLINE float to_float(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  // The half's exponent is moved up by multiplication, which also normalises subnormals.
  const float magnitude = bits_to_float(rest) * 0x1p112f;
  const uint32_t special = rest >= 0x0f800000u ? (0x7f800000u | rest) : float_to_bits(magnitude);
  return bits_to_float(sign | special);
}

ATTNSCOPE_INLINE void from_float(float x, float* out) {
  *out = x;
}
ATTNSCOPE_INLINE void from_float(float x, BF16* out) {
  const uint32_t b = float_to_bits(x);
  const uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  out->bits = static_cast<uint16_t>(x != x ? (b >> 16) | 0x40u : rounded);
}
ATTNSCOPE_INLINE void from_float(float x, F16* out) {
  const uint32_t b = float_to_bits(x);
  const uint32_t sign = (b >> 16) & 0x8000u;
  const uint32_t a = b & 0x7fffffffu;
  uint32_t half;
  if (a > 0x7f800000u) {
    half = 0x7e00u | ((a >> 13) & 0x3ffu);
  } else if (a >= 0x477ff000u) {  // rounds to 2^16 or more
    half = 0x7c00u;
  } else if (a < 0x38800000u) {  // subnormal half: let an addition round it
    const float shifted = bits_to_float(a) + 0.5f;
    half = float_to_bits(shifted) - 0x3f000000u;
  } else {
    half = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  }
  out->bits = static_cast<uint16_t>(sign | half);
}

// load: kW elements widened; load_n: the first n ≤ kW, zeros after.
ATTNSCOPE_INLINE vf load(const float* p) {
  return vload(p);
}
ATTNSCOPE_INLINE vf load_n(const float* p, int n) {
  return vload_n(p, n);
}
ATTNSCOPE_INLINE void store(float* p, vf x) {
  vstore(p, x);
}

#if defined(__AVX512F__)
ATTNSCOPE_INLINE vf widen(__m256i x, const BF16*) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
ATTNSCOPE_INLINE vf widen(__m256i x, const F16*) {
  return _mm512_cvtph_ps(x);
}
template <typename T>
ATTNSCOPE_INLINE vf load(const T* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), p);
}
template <typename T>
ATTNSCOPE_INLINE vf load_n(const T* p, int n) {
  return widen(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1), p), p);
}
#elif defined(__AVX2__)
ATTNSCOPE_INLINE vf widen(__m128i x, const BF16*) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
ATTNSCOPE_INLINE vf widen(__m128i x, const F16*) {
  return _mm256_cvtph_ps(x);
}
template <typename T>
ATTNSCOPE_INLINE vf load(const T* p) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), p);
}
template <typename T>
ATTNSCOPE_INLINE vf load_n(const T* p, int n) {
  uint16_t lanes[8] = {};
  __builtin_memcpy(lanes, p, static_cast<size_t>(n) * 2);
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes)), p);
}
#else
template <typename T>
ATTNSCOPE_INLINE vf load(const T* p) {
  return vf{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}
template <typename T>
ATTNSCOPE_INLINE vf load_n(const T* p, int n) {
  vf x{};
  for (int i = 0; i < n; ++i) x[i] = to_float(p[i]);
  return x;
}
#endif

// Stores lanes 0 … n−1 of x as T, n ≤ kW.
ATTNSCOPE_INLINE void store_n(float* p, vf x, int n) {
  vstore_n(p, x, n);
}
template <typename T>
ATTNSCOPE_INLINE void store_n(T* p, vf x, int n) {
#if defined(__AVX512F__)
  if constexpr (__is_same(T, F16)) {
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1),
                             _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return;
  } else {
    const __m512i b = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(b, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(b, _mm512_set1_epi32(0x400000));
    const __m512i result = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), _mm512_cvtepi32_epi16(result));
    return;
  }
#endif
  float lanes[kW];
  vstore(lanes, x);
  for (int i = 0; i < n; ++i) from_float(lanes[i], p + i);
}

// Turns kW vectors around: x[i] lane j becomes x[j] lane i.
ATTNSCOPE_INLINE void transpose(vf x[kW]) {
  ATTNSCOPE_UNROLL
  for (int step = 1; step < kW; step *= 2) {
    vf y[kW];
    ATTNSCOPE_UNROLL
    for (int i = 0; i < kW / 2; ++i) {
      y[2 * i] = interleave_low(x[i], x[i + kW / 2]);
      y[2 * i + 1] = interleave_high(x[i], x[i + kW / 2]);
    }
    ATTNSCOPE_UNROLL
    for (int i = 0; i < kW; ++i) x[i] = y[i];
  }
}

// Lanes kStep apart of two vectors added up. Of each pair of runs of kStep lanes a's sums come first, then
// b's; after steps 1, 2, 4 … over neighbours a lane of what is left is the sum of all lanes of one vector.
template <int kStep>
ATTNSCOPE_INLINE vf add_across(vf a, vf b) {
#if defined(__AVX512F__)
  // Blends go to any port, two-source permutes only to those that multiply-adds need too.
  constexpr __mmask16 kUpper = kStep == 1 ? 0xaaaa : kStep == 2 ? 0xcccc : kStep == 4 ? 0xf0f0 : 0xff00;
  const vf kept = _mm512_mask_blend_ps(kUpper, a, b), other = _mm512_mask_blend_ps(kUpper, b, a);
  if constexpr (kStep == 1) return kept + _mm512_permute_ps(other, 0xb1);
  if constexpr (kStep == 2) return kept + _mm512_permute_ps(other, 0x4e);
  if constexpr (kStep == 4) return kept + _mm512_shuffle_f32x4(other, other, 0xb1);
  return kept + _mm512_shuffle_f32x4(other, other, 0x4e);
#elif defined(__AVX2__)
  constexpr int kUpper = kStep == 1 ? 0xaa : kStep == 2 ? 0xcc : 0xf0;
  const vf kept = _mm256_blend_ps(a, b, kUpper), other = _mm256_blend_ps(b, a, kUpper);
  if constexpr (kStep == 1) return kept + _mm256_permute_ps(other, 0xb1);
  if constexpr (kStep == 2) return kept + _mm256_permute_ps(other, 0x4e);
  return kept + _mm256_permute2f128_ps(other, other, 1);
#else
  if constexpr (kStep == 1) return vf{a[0] + a[1], b[0] + b[1], a[2] + a[3], b[2] + b[3]};
  return vf{a[0] + a[2], a[1] + a[3], b[0] + b[2], b[1] + b[3]};
#endif
}

// What add_across leaves of neighbours in x[0 … kW/kStep): lane i of the result is Σ of the i-th vector.
template <int kStep>
ATTNSCOPE_INLINE vf reduce_from(vf* x) {
  if constexpr (kStep == kW) {
    return x[0];
  } else {
    ATTNSCOPE_UNROLL
    for (int i = 0; i < kW / kStep / 2; ++i) x[i] = add_across<kStep>(x[2 * i], x[2 * i + 1]);
    return reduce_from<2 * kStep>(x);
  }
}

// Sums each of kW vectors: lane i of the result is Σ of x[i].
ATTNSCOPE_INLINE vf reduce_each(vf x[kW]) {
  return reduce_from<1>(x);
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
