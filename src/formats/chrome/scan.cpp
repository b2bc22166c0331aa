#include "formats/chrome/scan.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace attnscope::formats::chrome {

namespace {

// Where a walk through a container stands between two blocks.
struct ContainerState {
  uint32_t depth = 0;
  bool in_string = false, escaped = false;
};

unsigned popcount16(uint32_t x) {
  x = x - (x >> 1 & 0x5555);
  x = (x & 0x3333) + (x >> 2 & 0x3333);
  x = (x + (x >> 4)) & 0x0F0F;
  return (x + (x >> 8)) & 0x1F;
}

// One block byte by byte: it has backslashes. Returns the closing bracket's place, or −1.
int walk_bytes(const char* p, ContainerState& s) {
  for (int i = 0; i < kStride; ++i) {
    const char c = p[i];
    if (s.in_string) {
      if (s.escaped) {
        s.escaped = false;
      } else if (c == '\\') {
        s.escaped = true;
      } else if (c == '"') {
        s.in_string = false;
      }
    } else if (c == '"') {
      s.in_string = true;
    } else if (c == '[' || c == '{') {
      ++s.depth;
    } else if ((c == ']' || c == '}') && --s.depth == 0) {
      return i;
    }
  }
  return -1;
}

// One block without backslashes: which brackets lie outside strings follows from the quotes before them.
int walk_block(const StructMasks& m, ContainerState& s) {
  uint32_t inside = m.quote;
  inside ^= inside << 1;
  inside ^= inside << 2;
  inside ^= inside << 4;
  inside ^= inside << 8;
  if (s.in_string) inside = ~inside;
  s.in_string = inside >> 15 & 1;
  const uint32_t open = m.open & ~inside & 0xFFFF, close = m.close & ~inside & 0xFFFF;
  const unsigned closes = popcount16(close);
  if (closes < s.depth) {
    s.depth += popcount16(open) - closes;
    return -1;
  }
  for (uint32_t bits = open | close; bits; bits &= bits - 1) {
    const int at = std::countr_zero(bits);
    if (open >> at & 1) {
      ++s.depth;
    } else if (--s.depth == 0) {
      return at;
    }
  }
  return -1;
}

}  // namespace

const char* container_end(const char* p, const char* end, uint8_t& flags) {
  ContainerState s;
  for (; p < end; p += kStride) {
    const StructMasks m = struct_masks(p);
    const int at = m.backslash || s.escaped ? walk_bytes(p, s) : walk_block(m, s);
    if (s.depth > kMaxDepth) flags |= kTooDeepFlag;
    if (at >= 0) return p + at < end ? p + at + 1 : nullptr;
  }
  return nullptr;
}

namespace {

constexpr int64_t kMaxNs = std::numeric_limits<int64_t>::max();

// Digits with a decimal exponent, e.g. 1.5e12, as nanoseconds of microseconds.
bool scaled_to_ns(std::string_view text, int64_t& ns, uint8_t& flags) {
  size_t i = 0;
  const bool negative = text[0] == '-';
  if (negative) ++i;
  __int128 mantissa = 0;
  int exponent = 3;  // µs → ns
  bool point = false;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9') {
      if (mantissa < (__int128{1} << 120) / 10) {
        mantissa = mantissa * 10 + (c - '0');
        if (point) --exponent;
      } else if (!point) {
        ++exponent;
      }
    } else {
      break;
    }
  }
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') return false;
    int given = 0;
    const char* first = text.data() + i + 1;
    if (first < text.data() + text.size() && *first == '+') ++first;
    const auto [last, ec] = std::from_chars(first, text.data() + text.size(), given);
    if (last != text.data() + text.size() || (ec != std::errc() && ec != std::errc::result_out_of_range))
      return false;
    if (ec != std::errc()) given = *first == '-' ? -9999 : 9999;
    exponent += given;
  }
  for (; exponent > 0 && mantissa != 0 && mantissa <= kMaxNs; --exponent) mantissa *= 10;
  bool rounded = false;
  for (; exponent < 0 && mantissa != 0; ++exponent) {
    const int digit = static_cast<int>(mantissa % 10);
    rounded |= digit != 0;
    mantissa = mantissa / 10 + (exponent == -1 && digit >= 5 ? 1 : 0);
  }
  if (rounded) flags |= kSubNanoFlag;
  if (mantissa % 1000 != 0) flags |= kFractionFlag;
  if (mantissa > kMaxNs) {
    flags |= kRangeFlag;
    mantissa = kMaxNs;
  }
  ns = static_cast<int64_t>(negative ? -mantissa : mantissa);
  return true;
}

}  // namespace

namespace {

// Eight digits at p at once; false when one of them is none.
bool eight_digits(const char* p, uint64_t& value) {
  uint64_t chunk;
  std::memcpy(&chunk, p, 8);
  if constexpr (std::endian::native != std::endian::little) return false;
  const uint64_t digits = chunk - 0x3030303030303030ull;
  if (((chunk + 0x4646464646464646ull) | digits) & 0x8080808080808080ull) return false;
  const uint64_t pairs = digits * 10 + (digits >> 8);  // every other byte holds two digits
  const uint64_t low = (pairs & 0x000000FF000000FFull) * (100 + (uint64_t{1000000} << 32));
  const uint64_t high = (pairs >> 16 & 0x000000FF000000FFull) * (1 + (uint64_t{10000} << 32));
  value = (low + high) >> 32;
  return true;
}

// The run of digits at p, up to 19 of them exact; returns behind it.
const char* read_digits(const char* p, const char* end, uint64_t& value) {
  value = 0;
  uint64_t eight = 0;
  while (end - p >= 8 && eight_digits(p, eight)) {
    value = value * 100000000 + eight;
    p += 8;
  }
  while (p < end && static_cast<unsigned>(*p - '0') < 10)
    value = value * 10 + static_cast<unsigned>(*p++ - '0');
  return p;
}

}  // namespace

bool micros_to_ns(std::string_view text, int64_t& ns, uint8_t& flags) {
  const char* p = text.data();
  const char* const end = p + text.size();
  if (p == end) return false;
  const bool negative = *p == '-';
  if (negative) ++p;
  const char* const first = p;
  uint64_t value = 0;
  p = read_digits(p, end, value);
  if (p == first) return false;
  // 16 digits of microseconds may still fit 63 bits of nanoseconds.
  if (p - first > 16 || value > static_cast<uint64_t>(kMaxNs) / 1000 - 1)
    return scaled_to_ns(text, ns, flags);
  value *= 1000;
  if (p < end && *p == '.') {
    ++p;
    unsigned fraction = 0, scale = 100;
    for (; scale != 0 && p < end && static_cast<unsigned>(*p - '0') < 10; scale /= 10)
      fraction += static_cast<unsigned>(*p++ - '0') * scale;
    if (fraction != 0) flags |= kFractionFlag;
    value += fraction;
    if (p < end && static_cast<unsigned>(*p - '0') < 10) {
      value += *p >= '5';
      while (p < end && static_cast<unsigned>(*p - '0') < 10) {
        if (*p != '0') flags |= kSubNanoFlag;
        ++p;
      }
    }
  }
  if (p != end) return scaled_to_ns(text, ns, flags);
  ns = negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
  return true;
}

bool parse_unsigned(std::string_view text, uint64_t& value, uint8_t& flags) {
  const char* p = text.data();
  const char* const end = p + text.size();
  if (text.size() > 2 && p[0] == '0' && (p[1] | 0x20) == 'x') {
    const auto [last, ec] = std::from_chars(p + 2, end, value, 16);
    return ec == std::errc() && last == end;
  }
  const char* const first = p;
  uint64_t v = 0;
  if (text.size() <= 18) p = read_digits(p, end, v);
  while (p < end && static_cast<unsigned>(*p - '0') < 10) {
    const auto digit = static_cast<unsigned>(*p++ - '0');
    if (v > (UINT64_MAX - digit) / 10) {
      flags |= kHugeFlag;
      return false;
    }
    v = v * 10 + digit;
  }
  if (p == first || (p < end && *p != '.')) return false;
  value = v;
  return true;
}

bool parse_signed(std::string_view text, int64_t& value, uint8_t& flags) {
  const bool negative = !text.empty() && text.front() == '-';
  uint64_t magnitude = 0;
  if (!parse_unsigned(negative ? text.substr(1) : text, magnitude, flags)) return false;
  if (magnitude > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    flags |= kHugeFlag;
    return false;
  }
  value = negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
  return true;
}

bool parse_real(std::string_view text, double& value) {
  const auto [last, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  return ec == std::errc() && last == text.data() + text.size() && std::isfinite(value);
}

namespace {

// Length of the valid UTF-8 sequence at text[i], 0 when there is none.
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
  const auto tail = [&](size_t k) { return (byte(k) & 0xC0) == 0x80; };
  const unsigned b = byte(i);
  if (b < 0x80) return 1;
  if (b >= 0xC2 && b <= 0xDF) return tail(i + 1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    const unsigned next = byte(i + 1);
    const bool ok = tail(i + 1) && tail(i + 2) && !(b == 0xE0 && next < 0xA0) && !(b == 0xED && next > 0x9F);
    return ok ? 3 : 0;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    const unsigned next = byte(i + 1);
    const bool ok = tail(i + 1) && tail(i + 2) && tail(i + 3) && !(b == 0xF0 && next < 0x90) &&
                    !(b == 0xF4 && next > 0x8F);
    return ok ? 4 : 0;
  }
  return 0;
}

void append_utf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | code >> 18));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

// Four hex digits at text[i].
bool hex4(std::string_view text, size_t i, uint32_t& code) {
  if (i + 4 > text.size()) return false;
  const auto [last, ec] = std::from_chars(text.data() + i, text.data() + i + 4, code, 16);
  return ec == std::errc() && last == text.data() + i + 4;
}

// The escape at raw[i] == '\\'; returns how many bytes it takes, 0 when it is none.
size_t decode_escape(std::string_view raw, size_t i, std::string& out, bool& bad_utf8) {
  if (i + 1 >= raw.size()) return 0;
  switch (raw[i + 1]) {
    case '"': out.push_back('"'); return 2;
    case '\\': out.push_back('\\'); return 2;
    case '/': out.push_back('/'); return 2;
    case 'b': out.push_back('\b'); return 2;
    case 'f': out.push_back('\f'); return 2;
    case 'n': out.push_back('\n'); return 2;
    case 'r': out.push_back('\r'); return 2;
    case 't': out.push_back('\t'); return 2;
    case 'u': break;
    default: return 0;
  }
  uint32_t code = 0, low = 0;
  if (!hex4(raw, i + 2, code)) return 0;
  if (code < 0xD800 || code > 0xDFFF) return append_utf8(code, out), 6;
  if (code < 0xDC00 && raw.substr(i + 6, 2) == "\\u" && hex4(raw, i + 8, low) && low >= 0xDC00 &&
      low <= 0xDFFF) {
    append_utf8(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00), out);
    return 12;
  }
  bad_utf8 = true;
  append_utf8(0xFFFD, out);
  return 6;
}

}  // namespace

bool valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(text, i);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

namespace {

// literal: only \" and \\ are escapes.
void decode(std::string_view raw, bool literal, std::string& out, bool& bad_escape, bool& bad_utf8) {
  out.clear();
  for (size_t i = 0; i < raw.size();) {
    if (raw[i] == '\\') {
      const char next = i + 1 < raw.size() ? raw[i + 1] : '\0';
      const bool escape = !literal || next == '"' || next == '\\';
      const size_t used = escape ? decode_escape(raw, i, out, bad_utf8) : 0;
      if (used == 0) {
        bad_escape = true;
        out.push_back('\\');
      }
      i += used == 0 ? 1 : used;
      continue;
    }
    const size_t n = utf8_length(raw, i);
    if (n == 0) {
      bad_utf8 = true;
      append_utf8(0xFFFD, out);
      ++i;
    } else {
      out.append(raw.substr(i, n));
      i += n;
    }
  }
}

}  // namespace

void decode_string(std::string_view raw, std::string& out, bool& bad_escape, bool& bad_utf8) {
  bool bad = false;
  decode(raw, false, out, bad, bad_utf8);
  if (!bad) return;
  bad_escape = true;
  decode(raw, true, out, bad, bad_utf8);
}

}  // namespace attnscope::formats::chrome
