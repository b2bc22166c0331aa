#pragma once
// Sixteen bytes at a time: where the bytes that matter to a JSON scanner are. Reads 16 bytes at p, so the
// caller keeps that much readable behind its data.

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace attnscope::formats::chrome {

inline constexpr int kStride = 16;

struct StringMasks {
  uint32_t stop;     // quotes and backslashes
  uint32_t control;  // bytes below 0x20
  uint32_t high;     // bytes above 0x7F
};
struct StructMasks {
  uint32_t quote, open, close, backslash;  // quotes, [ or {, ] or }
};

#if defined(__SSE2__)
inline uint32_t mask_of(__m128i equal) {
  return static_cast<uint32_t>(_mm_movemask_epi8(equal));
}

inline StringMasks string_masks(const char* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i stop =
      _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
  const __m128i control = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x1F)), x);
  return {mask_of(stop), mask_of(control), mask_of(x)};
}
inline StructMasks struct_masks(const char* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  // [ and { differ in bit 5 only, as do ] and }.
  const __m128i folded = _mm_or_si128(x, _mm_set1_epi8(0x20));
  return {mask_of(_mm_cmpeq_epi8(x, _mm_set1_epi8('"'))), mask_of(_mm_cmpeq_epi8(folded, _mm_set1_epi8('{'))),
          mask_of(_mm_cmpeq_epi8(folded, _mm_set1_epi8('}'))),
          mask_of(_mm_cmpeq_epi8(x, _mm_set1_epi8('\\')))};
}
// Bytes that end a number or a bare word: separators, brackets, quotes, white space.
inline uint32_t scalar_stop_mask(const char* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m128i space = _mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x20)), x);
  const __m128i comma =
      _mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8(',')), _mm_cmpeq_epi8(x, _mm_set1_epi8('"')));
  const __m128i close = _mm_cmpeq_epi8(_mm_or_si128(x, _mm_set1_epi8(0x20)), _mm_set1_epi8('}'));
  return mask_of(_mm_or_si128(_mm_or_si128(space, comma), close));
}
// Bytes above white space.
inline uint32_t ink_mask(const char* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return ~mask_of(_mm_cmpeq_epi8(_mm_min_epu8(x, _mm_set1_epi8(0x20)), x)) & 0xFFFF;
}
// Whether the first n ≤ 16 bytes agree; both sides have 16 readable bytes.
inline bool same_bytes(const char* a, const char* b, size_t n) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  const uint32_t wanted = (1u << n) - 1;
  return (mask_of(_mm_cmpeq_epi8(x, y)) & wanted) == wanted;
}
#else
inline uint32_t scalar_stop_mask(const char* p) {
  uint32_t m = 0;
  for (int i = 0; i < kStride; ++i) {
    const auto c = static_cast<unsigned char>(p[i]);
    m |= static_cast<uint32_t>(c <= ' ' || c == ',' || c == '"' || c == ']' || c == '}') << i;
  }
  return m;
}
inline uint32_t ink_mask(const char* p) {
  uint32_t m = 0;
  for (int i = 0; i < kStride; ++i) m |= static_cast<uint32_t>(static_cast<unsigned char>(p[i]) > ' ') << i;
  return m;
}
inline bool same_bytes(const char* a, const char* b, size_t n) {
  return std::memcmp(a, b, n) == 0;
}
inline StringMasks string_masks(const char* p) {
  StringMasks m{0, 0, 0};
  for (int i = 0; i < kStride; ++i) {
    const auto c = static_cast<unsigned char>(p[i]);
    m.stop |= static_cast<uint32_t>(c == '"' || c == '\\') << i;
    m.control |= static_cast<uint32_t>(c < 0x20) << i;
    m.high |= static_cast<uint32_t>(c >> 7) << i;
  }
  return m;
}
inline StructMasks struct_masks(const char* p) {
  StructMasks m{0, 0, 0, 0};
  for (int i = 0; i < kStride; ++i) {
    const char c = p[i];
    m.quote |= static_cast<uint32_t>(c == '"') << i;
    m.open |= static_cast<uint32_t>(c == '[' || c == '{') << i;
    m.close |= static_cast<uint32_t>(c == ']' || c == '}') << i;
    m.backslash |= static_cast<uint32_t>(c == '\\') << i;
  }
  return m;
}
#endif

}  // namespace attnscope::formats::chrome
