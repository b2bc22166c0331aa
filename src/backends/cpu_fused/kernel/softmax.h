#pragma once
// From scores to weights, one row at a time: masks, maximum, exponential, dropout.

#include "backends/cpu_fused/kernel/frame.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

ATTNSCOPE_INLINE float finite_or_same(double x) {
  // A finite double must not become an infinite float: a finite minimum is not a mask.
  const float y = static_cast<float>(x);
  if (y == kInfinity && x <= 1.7976931348623157e308) return kMaxFinite;
  if (y == -kInfinity && x >= -1.7976931348623157e308) return -kMaxFinite;
  return y;
}
ATTNSCOPE_INLINE float to_bias(double x) {
  return finite_or_same(x);
}
template <typename T>
ATTNSCOPE_INLINE float to_bias(T x) {
  return to_float(x);
}

template <typename T>
ATTNSCOPE_INLINE void load_bias(const char* line, int64_t stride, int64_t n, float* dst) {
  if (stride == static_cast<int64_t>(sizeof(T))) {
    const T* src = reinterpret_cast<const T*>(line);
    for (int64_t j = 0; j < n; ++j) dst[j] = to_bias(src[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) dst[j] = to_bias(*reinterpret_cast<const T*>(line + j * stride));
  }
}

// Mask elements of keys lo … hi−1 of the block, for task row r.
inline const char* mask_line(const Frame& f, int64_t r, int64_t key) {
  const Strided& m = f.p.mask;
  return m.data + f.u.batch * m.stride[0] + f.head(r) * m.stride[1] +
         (f.u.q_begin + f.position(r)) * m.stride[2] + (f.u.k_begin + key) * m.stride[3];
}

inline void apply_bool(const char* line, int64_t stride, int64_t n, float* s) {
  const uint8_t* keep = reinterpret_cast<const uint8_t*>(line);
  if (stride == 1) {
    for (int64_t j = 0; j < n; ++j) s[j] = keep[j] ? s[j] : -kInfinity;
  } else {
    for (int64_t j = 0; j < n; ++j) s[j] = keep[j * stride] ? s[j] : -kInfinity;
  }
}

// Scores in natural units. A huge scale saturates here instead of making inf − inf.
inline void to_natural(const Frame& f, int64_t n, float* s) {
  constexpr float kLimit = 1.7e38f;
  const float c = f.p.multiplier, cap = f.p.softcap;
  for (int64_t j = 0; j < n; ++j) {
    const bool finite = s[j] <= kMaxFinite && s[j] >= -kMaxFinite;
    float x = s[j] * c;
    x = finite && x > kLimit ? kLimit : x;
    s[j] = finite && x < -kLimit ? -kLimit : x;
  }
  if (cap > 0)
    for (int64_t j = 0; j < n; ++j) s[j] = cap * tanh_scalar(s[j] / cap);
}

inline void add_bias(const float* bias, int64_t n, float* s) {
  for (int64_t j = 0; j < n; ++j) {
    const bool finite =
        bias[j] >= -kMaxFinite && s[j] >= -kMaxFinite && bias[j] <= kMaxFinite && s[j] <= kMaxFinite;
    float x = s[j] + bias[j];
    x = finite && x > kMaxFinite ? kMaxFinite : x;
    x = finite && x < -kMaxFinite ? -kMaxFinite : x;
    s[j] = bias[j] == -kInfinity ? -kInfinity : x;  // a mask: even of a NaN score
  }
}

inline void apply_mask(const Frame& f, int64_t r, int64_t key, int64_t n, float* s) {
  const int64_t stride = f.p.mask.stride[3];
  const char* line = mask_line(f, r, key);
  switch (f.p.mask_element) {
    case Element::kBool: return apply_bool(line, stride, n, s);
    case Element::kF64: load_bias<double>(line, stride, n, f.s.row); break;
    case Element::kF32: load_bias<float>(line, stride, n, f.s.row); break;
    case Element::kF16: load_bias<F16>(line, stride, n, f.s.row); break;
    case Element::kBF16: load_bias<BF16>(line, stride, n, f.s.row); break;
  }
  add_bias(f.s.row, n, s);
}

// The general row: of the tile's keys begin … end−1 (both on panels) it sees lo … hi−1. Everything else
// becomes a true −inf; then the maximum is taken anew.
inline void finish_scores(const Frame& f, int64_t r, int tile_row, int64_t key0, int64_t begin, int64_t end,
                          int64_t lo, int64_t hi) {
  float* s = f.s.scores + tile_row * kScoreStride;
  for (int64_t j = begin; j < lo; ++j) s[j] = -kInfinity;
  for (int64_t j = hi; j < end; ++j) s[j] = -kInfinity;
  if (f.natural) to_natural(f, hi - lo, s + lo);
  if (f.p.mask.data != nullptr) apply_mask(f, r, key0 + lo, hi - lo, s + lo);
  vf m = vset(-kInfinity);
  for (int64_t j = begin; j < end; j += kW) m = vmax(vload(s + j), m);
  vstore(f.s.tile_max + tile_row * kW, m);
}

// Philox-4x32-10 of src/attention/dropout_bits.h for the quads of keys first … first+n−1, a lane per quad.
// words[key − first/4·4] is the key's word.
inline void draw_words(const Problem& p, uint64_t row, int64_t first, int64_t n, uint32_t* words) {
  constexpr int kLanes = 16;
  const uint64_t quad0 = static_cast<uint64_t>(first) >> 2;
  const uint64_t quads = (static_cast<uint64_t>(first + n + 3) >> 2) - quad0;
  for (uint64_t q = 0; q < quads; q += kLanes) {
    uint32_t x0[kLanes], x1[kLanes], x2[kLanes], x3[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t quad = quad0 + q + static_cast<uint64_t>(i);
      x0[i] = static_cast<uint32_t>(quad);
      x1[i] = static_cast<uint32_t>(row);
      x2[i] = static_cast<uint32_t>(row >> 32) ^ static_cast<uint32_t>(quad >> 32) * 0x85EBCA6Bu;
      x3[i] = static_cast<uint32_t>(p.offset);
    }
    uint32_t key0 = static_cast<uint32_t>(p.seed);
    uint32_t key1 = static_cast<uint32_t>(p.seed >> 32) ^ static_cast<uint32_t>(p.offset >> 32) * 0x9E3779B9u;
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < kLanes; ++i) {
        const uint64_t a = 0xD2511F53ull * x0[i], b = 0xCD9E8D57ull * x2[i];
        x0[i] = static_cast<uint32_t>(b >> 32) ^ x1[i] ^ key0;
        x2[i] = static_cast<uint32_t>(a >> 32) ^ x3[i] ^ key1;
        x1[i] = static_cast<uint32_t>(b);
        x3[i] = static_cast<uint32_t>(a);
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    for (int i = 0; i < kLanes && q + static_cast<uint64_t>(i) < quads; ++i) {
      uint32_t* w = words + (q + static_cast<uint64_t>(i)) * 4;
      w[0] = x0[i];
      w[1] = x1[i];
      w[2] = x2[i];
      w[3] = x3[i];
    }
  }
}

// Zeroes the dropped weights lo … hi−1 of a row; the kept ones are scaled when the row is written.
inline void drop_weights(const Frame& f, int64_t r, int64_t key0, int64_t lo, int64_t hi, float* w) {
  const Problem& p = f.p;
  const uint64_t row =
      (static_cast<uint64_t>(f.u.batch) * static_cast<uint64_t>(p.heads) + static_cast<uint64_t>(f.head(r))) *
          static_cast<uint64_t>(p.q_len) +
      static_cast<uint64_t>(f.u.q_begin + f.position(r));
  const int64_t first = f.u.k_begin + key0 + lo;
  draw_words(p, row, first, hi - lo, f.s.words);
  const uint32_t* words = f.s.words + (first & 3);
  for (int64_t j = lo; j < hi; ++j)
    if (words[j - lo] < p.drop_threshold) w[j] = 0.0f;
}

#if defined(__AVX512BF16__)
ATTNSCOPE_INLINE void store_weights(uint16_t* w, vf a, vf b) {
  const __m512bh packed = _mm512_cvtne2ps_pbh(b, a);
  __builtin_memcpy(w, &packed, sizeof(packed));
}
#endif

#if defined(__AVX512F__)
// The next piece of both: a's upper halves in the low halves of the lanes, b's in the high ones. What is left
// stays in a and b.
ATTNSCOPE_INLINE __m512i cut_piece(vf* a, vf* b) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512i x = _mm512_castps_si512(*a), y = _mm512_castps_si512(*b);
  const __m512i piece_a = _mm512_and_si512(x, upper), piece_b = _mm512_and_si512(y, upper);
  *a = *a - _mm512_castsi512_ps(piece_a);
  *b = *b - _mm512_castsi512_ps(piece_b);
  return _mm512_or_si512(piece_b, _mm512_srli_epi32(x, 16));
}
#endif

// 2·kW weights to w in the form asked for; the pieces of a row are piece_stride apart.
template <WeightForm kForm>
ATTNSCOPE_INLINE void put_weights([[maybe_unused]] float* s, [[maybe_unused]] uint16_t* w,
                                  [[maybe_unused]] int64_t piece_stride, vf a, vf b) {
  if constexpr (kForm == kInPlace) {
    vstore(s, a);
    vstore(s + kW, b);
  } else if constexpr (kForm == kPairs) {
#if defined(__AVX512BF16__)
    store_weights(w, a, b);
#endif
  } else {
#if defined(__AVX512F__)
    for (int p = 0; p < kForm; ++p) _mm512_storeu_si512(w + p * piece_stride, cut_piece(&a, &b));
#endif
  }
}

// s[begin … end) → weights 2^((s − m)·c), in place or to w; their sum (before rounding) is added.
template <WeightForm kForm>
ATTNSCOPE_INLINE void exponentials(float* s, uint16_t* w, int64_t piece_stride, int64_t begin, int64_t end,
                                   float m, float c, float alpha, float* sums) {
  const vf max = vset(m), scale = vset(c);
  vf sum0 = vload(sums) * vset(alpha), sum1 = vset(0.0f);
  for (int64_t j = begin; j < end; j += kPanel) {
    const vf a = vexp2((vload(s + j) - max) * scale);
    const vf b = vexp2((vload(s + j + kW) - max) * scale);
    sum0 = sum0 + a;
    sum1 = sum1 + b;
    put_weights<kForm>(s + j, w + j, piece_stride, a, b);
  }
  vstore(sums, sum0 + sum1);
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
