// Included by one translation unit per instruction set, which defines ATTNSCOPE_ISA (a namespace), its name
// and ATTNSCOPE_VECTOR_BYTES. Everything is internal to the unit: an inline function shared with other units
// could be replaced by the linker with a copy that uses instructions this machine lacks.

#include "attention/dropout_bits.h"
#include "backends/cpu_common/row_kernels.h"

#include <limits>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace attnscope::cpu::ATTNSCOPE_ISA {
namespace {

constexpr int kBytes = ATTNSCOPE_VECTOR_BYTES;

// GCC's vector extension: plain arithmetic on `width` lanes.
template <typename T>
struct Lanes;
template <>
struct Lanes<float> {
  using Int = int32_t;
  static constexpr int width = kBytes / 4;
  typedef float V __attribute__((vector_size(kBytes)));
  typedef int32_t I __attribute__((vector_size(kBytes)));
  typedef uint8_t B __attribute__((vector_size(kBytes / 4)));  // one byte per lane
};
template <>
struct Lanes<double> {
  using Int = int64_t;
  static constexpr int width = kBytes / 8;
  typedef double V __attribute__((vector_size(kBytes)));
  typedef int64_t I __attribute__((vector_size(kBytes)));
  typedef uint8_t B __attribute__((vector_size(kBytes / 8)));
};

template <typename V, typename T>
inline V load_v(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <typename V, typename T>
inline void store_v(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}
template <typename To, typename From>
inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// One vector at a time over n elements; the tail goes through a padded copy.
template <typename T, typename Fn>
inline void map(const T* src, int64_t n, T* dst, T pad, Fn fn) {
  using V = typename Lanes<T>::V;
  constexpr int w = Lanes<T>::width;
  int64_t i = 0;
  for (; i + w <= n; i += w) store_v(dst + i, fn(load_v<V>(src + i), i));
  if (i < n) {
    T tail[w];
    for (int j = 0; j < w; ++j) tail[j] = i + j < n ? src[i + j] : pad;
    store_v(tail, fn(load_v<V>(tail), i));
    for (int j = 0; i + j < n; ++j) dst[i + j] = tail[j];
  }
}

// exp(x) for x ≤ 0 (any x up to 88 or 709): 2^n · p(r), |r| ≤ ln2/2. Cody–Waite reduction; the polynomial is
// the truncated series in Horner form, its error below half a unit in the last place of the reduced range.
inline Lanes<float>::V exp_v(Lanes<float>::V x) {
  using V = Lanes<float>::V;
  using I = Lanes<float>::I;
  const V zero = {};
  const auto tiny = x < zero - 87.0f;
  x = tiny ? zero - 87.0f : x;
  const V magic = zero + 12582912.0f;  // 1.5·2^23: adding it leaves round(x) in the low bits
  const V t = x * 1.44269504088896341f + magic;
  const V n = t - magic;
  V r = x - n * 0.693359375f;
  r = r - n * -2.12194440e-4f;
  V p = zero + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const V two_n = bits<V>((bits<I>(t) << 23) + 0x3f800000);
  const V y = p * two_n;
  return tiny ? zero : y;
}
inline Lanes<double>::V exp_v(Lanes<double>::V x) {
  using V = Lanes<double>::V;
  using I = Lanes<double>::I;
  const V zero = {};
  const auto tiny = x < zero - 708.0;
  x = tiny ? zero - 708.0 : x;
  const V magic = zero + 6755399441055744.0;
  const V t = x * 1.4426950408889634074 + magic;
  const V n = t - magic;
  V r = x - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  V p = zero + 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r * r + r + 1.0;
  const V two_n = bits<V>((bits<I>(t) << 52) + 0x3ff0000000000000ll);
  const V y = p * two_n;
  return tiny ? zero : y;
}

// --- loads and stores
// -------------------------------------------------------------------------------------------

inline float widen_bf16(uint16_t h) {
  return bits<float>(static_cast<uint32_t>(h) << 16);
}
inline uint16_t narrow_bf16(float f) {
  const uint32_t x = bits<uint32_t>(f);
  if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((x >> 16) | 0x40u);
  return static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
}
inline float widen_f16(uint16_t h) {
#if defined(__F16C__)
  return _cvtsh_ss(h);
#else
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return bits<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return bits<float>(sign | ((magnitude << 13) + 0x38000000u));
  return bits<float>(sign | bits<uint32_t>(static_cast<float>(magnitude) * 5.9604644775390625e-8f));
#endif
}
inline uint16_t narrow_f16(float f) {
#if defined(__F16C__)
  return static_cast<uint16_t>(_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  const uint32_t x = bits<uint32_t>(f), magnitude = x & 0x7fffffffu;
  const uint16_t sign = static_cast<uint16_t>((x >> 16) & 0x8000u);
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude >= 0x38800000u)
    return static_cast<uint16_t>(sign |
                                 ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13));
  return static_cast<uint16_t>(sign | (bits<uint32_t>(bits<float>(magnitude) + 0.5f) - 0x3f000000u));
#endif
}

inline int64_t load_dense(const uint16_t* src, DType dtype, int64_t n, float* dst) {
  constexpr int w = Lanes<float>::width;
  typedef uint16_t H __attribute__((vector_size(kBytes / 2)));
  typedef uint32_t U __attribute__((vector_size(kBytes)));
  int64_t i = 0;
  if (dtype == DType::kBF16) {
    for (; i + w <= n; i += w) store_v(dst + i, __builtin_convertvector(load_v<H>(src + i), U) << 16);
  } else {
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(load_v<__m256i>(src + i)));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(load_v<__m128i>(src + i)));
#endif
  }
  return i;
}

inline int64_t store_dense(const float* src, DType dtype, int64_t n, uint16_t* dst) {
  constexpr int w = Lanes<float>::width;
  typedef uint16_t H __attribute__((vector_size(kBytes / 2)));
  typedef uint32_t U __attribute__((vector_size(kBytes)));
  int64_t i = 0;
  if (dtype == DType::kBF16) {
    for (; i + w <= n; i += w) {
      const U x = load_v<U>(src + i);
      const U nan = (x >> 16) | 0x40u;
      const U rounded = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
      const U y = (x & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
      store_v(dst + i, __builtin_convertvector(y, H));
    }
  } else {
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16)
      store_v(dst + i,
              _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    for (; i + 8 <= n; i += 8)
      store_v(dst + i,
              _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
  }
  return i;
}

// A finite double stays finite: a finite minimum in a bias is not a mask.
template <typename T>
inline T narrow_f64(double x) {
  if constexpr (sizeof(T) == 4) {
    constexpr double most = static_cast<double>(std::numeric_limits<float>::max());
    const bool finite = x - x == 0.0;
    if (finite && x > most) return std::numeric_limits<float>::max();
    if (finite && x < -most) return -std::numeric_limits<float>::max();
  }
  return static_cast<T>(x);
}

template <typename T>
void load(const void* src, DType dtype, int64_t stride, int64_t n, T* dst) {
  int64_t i = 0;
  switch (dtype) {
    case DType::kF64:
      for (; i < n; ++i) dst[i] = narrow_f64<T>(static_cast<const double*>(src)[i * stride]);
      return;
    case DType::kF32:
      if constexpr (sizeof(T) == 4) {
        if (stride == 1) {
          __builtin_memcpy(dst, src, static_cast<size_t>(n) * 4);
          return;
        }
      }
      for (; i < n; ++i) dst[i] = static_cast<T>(static_cast<const float*>(src)[i * stride]);
      return;
    case DType::kBF16:
    case DType::kF16: {
      const auto* h = static_cast<const uint16_t*>(src);
      if constexpr (sizeof(T) == 4) {
        if (stride == 1) i = load_dense(h, dtype, n, dst);
      }
      for (; i < n; ++i)
        dst[i] = static_cast<T>(dtype == DType::kBF16 ? widen_bf16(h[i * stride]) : widen_f16(h[i * stride]));
      return;
    }
    case DType::kBool:
      for (; i < n; ++i) dst[i] = static_cast<const uint8_t*>(src)[i * stride] != 0 ? T{1} : T{0};
      return;
    case DType::kI32:
    case DType::kI64: return;  // no caller has integers
  }
}

template <typename T>
void store(const T* src, int64_t n, void* dst, DType dtype, int64_t stride) {
  int64_t i = 0;
  switch (dtype) {
    case DType::kF64:
      for (; i < n; ++i) static_cast<double*>(dst)[i * stride] = static_cast<double>(src[i]);
      return;
    case DType::kF32:
      if constexpr (sizeof(T) == 4) {
        if (stride == 1) {
          __builtin_memcpy(dst, src, static_cast<size_t>(n) * 4);
          return;
        }
      }
      for (; i < n; ++i) static_cast<float*>(dst)[i * stride] = static_cast<float>(src[i]);
      return;
    case DType::kBF16:
    case DType::kF16: {
      auto* h = static_cast<uint16_t*>(dst);
      if constexpr (sizeof(T) == 4) {
        if (stride == 1) i = store_dense(src, dtype, n, h);
      }
      for (; i < n; ++i) {
        const float f = static_cast<float>(src[i]);
        h[i * stride] = dtype == DType::kBF16 ? narrow_bf16(f) : narrow_f16(f);
      }
      return;
    }
    case DType::kBool:
      for (; i < n; ++i) static_cast<uint8_t*>(dst)[i * stride] = src[i] != T{0} ? 1 : 0;
      return;
    case DType::kI32:
    case DType::kI64: return;
  }
}

// --- maps and reductions
// ------------------------------------------------------------------------------------------

template <typename T>
void scale(const T* src, T factor, int64_t n, T* dst) {
  map(src, n, dst, T{0}, [factor](auto v, int64_t) { return v * factor; });
}

template <typename T>
void add_select(const T* bias, int64_t n, T* x) {
  using V = typename Lanes<T>::V;
  constexpr int w = Lanes<T>::width;
  const T neg_inf = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (; i + w <= n; i += w) {
    const V b = load_v<V>(bias + i);
    store_v(x + i, b == V{} + neg_inf ? b : load_v<V>(x + i) + b);
  }
  for (; i < n; ++i) x[i] = bias[i] == neg_inf ? neg_inf : x[i] + bias[i];
}

template <typename T>
void keep_or_neg_inf(const uint8_t* keep, int64_t n, T* x) {
  using V = typename Lanes<T>::V;
  using I = typename Lanes<T>::I;
  constexpr int w = Lanes<T>::width;
  using B = typename Lanes<T>::B;
  const T neg_inf = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (; i + w <= n; i += w) {
    const I k = __builtin_convertvector(load_v<B>(keep + i), I);
    store_v(x + i, k != I{} ? load_v<V>(x + i) : V{} + neg_inf);
  }
  for (; i < n; ++i)
    if (keep[i] == 0) x[i] = neg_inf;
}

template <typename T>
void softcap(T cap, int64_t n, T* x) {
  const T inverse = T{1} / cap;
  map(x, n, x, T{0}, [cap, inverse](auto v, int64_t) {
    // tanh(|z|) = (1 − e)/(1 + e) with e = exp(−2|z|); near 0 its odd series, where that would cancel.
    using V = decltype(v);
    const V zero = {};
    const V z = v * inverse;
    const V a = z < zero ? -z : z;
    const V e = exp_v(a * T{-2});
    const V far = (T{1} - e) / (T{1} + e);
    const V a2 = a * a;
    V near = zero - T(1382.0 / 155925.0);
    near = near * a2 + T(62.0 / 2835.0);
    near = near * a2 - T(17.0 / 315.0);
    near = near * a2 + T(2.0 / 15.0);
    near = near * a2 - T(1.0 / 3.0);
    near = near * a2 * a + a;
    const V edge = zero + (sizeof(T) == 4 ? T(0.1) : T(0.004));
    const V t = a < edge ? near : far;
    return (z < zero ? -t : t) * cap;
  });
}

template <typename T>
T max(const T* x, int64_t n) {
  using V = typename Lanes<T>::V;
  constexpr int w = Lanes<T>::width;
  T best = -std::numeric_limits<T>::infinity();
  V m0 = V{} + best, m1 = m0;
  int64_t i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    const V a = load_v<V>(x + i), b = load_v<V>(x + i + w);
    m0 = a > m0 ? a : m0;
    m1 = b > m1 ? b : m1;
  }
  m0 = m1 > m0 ? m1 : m0;
  for (int j = 0; j < w; ++j) best = m0[j] > best ? m0[j] : best;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

template <typename T>
double exp_sum(const T* src, T shift, int64_t n, T* dst) {
  using V = typename Lanes<T>::V;
  constexpr int w = Lanes<T>::width;
  constexpr int64_t kBlock = 1024;  // summed in T, then in double: error does not grow with n
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = n - begin < kBlock ? n - begin : kBlock;
    V sum = {};
    int64_t valid = count;
    map(src + begin, count, dst + begin, -std::numeric_limits<T>::infinity(), [&](V v, int64_t) {
      const V e = exp_v(v - shift);
      if (valid >= w) {
        sum += e;
      } else {  // padding of a tail may be NaN (shift −inf): only the real lanes count
        for (int j = 0; j < w; ++j)
          if (j < valid) sum[j] += e[j];
      }
      valid -= w;
      return e;
    });
    for (int j = 0; j < w; ++j) total += static_cast<double>(sum[j]);
  }
  return total;
}

template <typename T>
bool all_finite(const T* x, int64_t n) {
  using V = typename Lanes<T>::V;
  constexpr int w = Lanes<T>::width;
  V acc = {};  // x − x is 0, or NaN when x is not finite
  int64_t i = 0;
  for (; i + w <= n; i += w) {
    const V v = load_v<V>(x + i);
    acc += v - v;
  }
  T rest = 0;
  for (; i < n; ++i) rest += x[i] - x[i];
  for (int j = 0; j < w; ++j) rest += acc[j];
  return rest == T{0};
}

template <typename T>
void is_neg_inf(const T* x, int64_t n, uint8_t* dst) {
  using V = typename Lanes<T>::V;
  constexpr int w = Lanes<T>::width;
  using B = typename Lanes<T>::B;
  const T neg_inf = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  for (; i + w <= n; i += w)
    store_v(dst + i, __builtin_convertvector((load_v<V>(x + i) == V{} + neg_inf) & 1, B));
  for (; i < n; ++i) dst[i] = x[i] == neg_inf ? 1 : 0;
}

template <typename T>
void dropout(uint64_t seed, uint64_t offset, uint64_t row, uint32_t threshold, T keep_scale, int64_t n,
             T* x) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const Philox4 words = dropout_words(seed, offset, row, static_cast<uint64_t>(i));
    for (int j = 0; j < 4; ++j) x[i + j] *= words.x[j] >= threshold ? keep_scale : T{0};
  }
  if (i == n) return;
  const Philox4 words = dropout_words(seed, offset, row, static_cast<uint64_t>(i));
  for (int j = 0; i + j < n; ++j) x[i + j] *= words.x[j] >= threshold ? keep_scale : T{0};
}

// --- matrix product
// -----------------------------------------------------------------------------------------------

#if defined(__AVX512F__)
constexpr int kTileRows = 12;  // 24 accumulators, 2 of B, 1 broadcast of 32 registers
#else
constexpr int kTileRows = 6;  // 12 accumulators, 2 of B, 1 broadcast of 16 registers
#endif

template <typename T>
void tile(int64_t k, const T* a, int64_t lda, const T* b, T* c, int64_t ldc) {
  using V = typename Lanes<T>::V;
  constexpr int w = Lanes<T>::width;
  V acc[kTileRows][2];
#pragma GCC unroll 12
  for (int r = 0; r < kTileRows; ++r) {
    acc[r][0] = load_v<V>(c + r * ldc);
    acc[r][1] = load_v<V>(c + r * ldc + w);
  }
  for (int64_t p = 0; p < k; ++p) {
    const V b0 = load_v<V>(b + p * 2 * w), b1 = load_v<V>(b + p * 2 * w + w);
#pragma GCC unroll 12
    for (int r = 0; r < kTileRows; ++r) {
      const V s = V{} + a[r * lda + p];
      acc[r][0] += s * b0;
      acc[r][1] += s * b1;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kTileRows; ++r) {
    store_v(c + r * ldc, acc[r][0]);
    store_v(c + r * ldc + w, acc[r][1]);
  }
}

template <typename T>
void transpose(const T* src, int64_t src_stride, int64_t cols, int64_t k, T* dst) {
  constexpr int64_t width = 2 * Lanes<T>::width;
  for (int64_t j = 0; j < width; ++j)
    for (int64_t p = 0; p < k; ++p) dst[p * width + j] = j < cols ? src[j * src_stride + p] : T{0};
}

template <typename T>
constexpr RowKernels<T> make_table() {
  return {ATTNSCOPE_ISA_NAME,
          load<T>,
          store<T>,
          scale<T>,
          add_select<T>,
          keep_or_neg_inf<T>,
          softcap<T>,
          max<T>,
          exp_sum<T>,
          all_finite<T>,
          is_neg_inf<T>,
          dropout<T>,
          kTileRows,
          2 * Lanes<T>::width,
          tile<T>,
          transpose<T>};
}

}  // namespace

extern const RowKernels<float> kFloat;
extern const RowKernels<double> kDouble;
const RowKernels<float> kFloat = make_table<float>();
const RowKernels<double> kDouble = make_table<double>();

}  // namespace attnscope::cpu::ATTNSCOPE_ISA
