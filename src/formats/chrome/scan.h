#pragma once
// The scanner's smallest steps. All of them work inside [p, end), may read kPadding bytes past end, and
// return nullptr when the bytes end before the thing does.

#include "formats/chrome/simd.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attnscope::formats::chrome {

inline constexpr size_t kPadding = 64;
inline constexpr size_t kMaxDepth = 256;

enum TokenFlag : uint8_t {
  kEscaped = 1,  // a string with backslashes
  kControl = 2,  // a string with raw control bytes
  kHigh = 4,     // a string with bytes above 0x7F
  kTooDeepFlag = 8,
};
enum class TokenType : uint8_t { kNone, kString, kNumber, kContainer, kWord };

// One JSON value where it stands. For strings the text between the quotes.
struct Token {
  const char* begin = nullptr;
  uint32_t length = 0;
  TokenType type = TokenType::kNone;
  uint8_t flags = 0;
  std::string_view text() const { return {begin, length}; }
  explicit operator bool() const { return type != TokenType::kNone; }
};

// The first byte above white space; end when there is none. Bytes past end are zero, hence white space.
inline const char* skip_space(const char* p, const char* end) {
  while (p < end) {
    if (const uint32_t ink = ink_mask(p)) {
      p += std::countr_zero(ink);
      return p < end ? p : end;
    }
    p += kStride;
  }
  return end;
}

// From behind the opening quote to the closing one.
inline const char* string_end(const char* p, const char* end, uint8_t& flags) {
  while (p < end) {
    const StringMasks m = string_masks(p);
    const uint32_t before = m.stop ? (m.stop & (0u - m.stop)) - 1 : 0xFFFF;
    if (m.control & before) flags |= kControl;
    if (m.high & before) flags |= kHigh;
    if (!m.stop) {
      p += kStride;
      continue;
    }
    p += std::countr_zero(m.stop);
    if (p >= end) return nullptr;
    if (*p == '"') return p;
    flags |= kEscaped;
    p += 2;
  }
  return nullptr;
}

// From the opening bracket to behind the closing one. Iterative: depth costs no stack.
const char* container_end(const char* p, const char* end, uint8_t& flags);

// From a number, word or N/A to the separator behind it.
inline const char* scalar_end(const char* p, const char* end) {
  while (p < end) {
    if (const uint32_t stop = scalar_stop_mask(p)) {
      p += std::countr_zero(stop);
      return p < end ? p : nullptr;
    }
    p += kStride;
  }
  return nullptr;
}

// The value at p; behind receives the first byte after it. False when the bytes end inside it.
inline bool read_value(const char* p, const char* end, Token& token, const char*& behind) {
  token.flags = 0;
  if (p >= end) return false;
  if (*p == '"') {
    const char* close = string_end(p + 1, end, token.flags);
    if (!close) return false;
    token.begin = p + 1;
    token.length = static_cast<uint32_t>(close - p - 1);
    token.type = TokenType::kString;
    behind = close + 1;
    return true;
  }
  const bool container = *p == '{' || *p == '[';
  const char* stop = container ? container_end(p, end, token.flags) : scalar_end(p, end);
  if (!stop) return false;
  token.begin = p;
  token.length = static_cast<uint32_t>(stop - p);
  const bool digit = (*p >= '0' && *p <= '9') || (*p == '-' && p[1] >= '0' && p[1] <= '9');
  token.type = container ? TokenType::kContainer : digit ? TokenType::kNumber : TokenType::kWord;
  behind = stop;
  return true;
}

// What is odd about a number that was read.
enum NumberFlag : uint8_t {
  kHugeFlag = 1,
  kNonFiniteFlag = 2,
  kFractionFlag = 4,
  kSubNanoFlag = 8,
  kRangeFlag = 16
};

// Microseconds in decimal to nanoseconds, exactly: no double in between. False when text is no number.
bool micros_to_ns(std::string_view text, int64_t& ns, uint8_t& flags);
// Whole number (a fraction is cut off); beyond 64 bits sets kHugeFlag. Accepts 0x…
bool parse_unsigned(std::string_view text, uint64_t& value, uint8_t& flags);
bool parse_signed(std::string_view text, int64_t& value, uint8_t& flags);
bool parse_real(std::string_view text, double& value);

// String text to UTF-8 without escapes: \uXXXX with surrogate pairs; a string with an unknown escape keeps
// its backslashes (Windows paths, where \test is no tab) and sets bad_escape; invalid UTF-8 becomes U+FFFD
// and sets bad_utf8.
void decode_string(std::string_view raw, std::string& out, bool& bad_escape, bool& bad_utf8);
bool valid_utf8(std::string_view text);

}  // namespace attnscope::formats::chrome
