#include "base/text.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace attnscope {
namespace {

// Three significant digits without trailing zeros that carry nothing: 45.1, 751, 2.56.
std::string three_digits(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude >= 99.95) return fmt::format("{:.0f}", value);
  if (magnitude >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

struct Decoded {
  uint32_t code = 0;
  size_t length = 0;  // 0: invalid byte
};

// One code point of UTF-8; rejects overlong forms, surrogates and values above U+10FFFF.
Decoded decode_utf8(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t b0 = byte(0);
  if (b0 < 0x80) return {b0, 1};
  const size_t length = (b0 & 0xE0) == 0xC0 ? 2 : (b0 & 0xF0) == 0xE0 ? 3 : (b0 & 0xF8) == 0xF0 ? 4 : 0;
  if (length == 0 || s.size() < length) return {};
  uint32_t code = b0 & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  constexpr std::array<uint32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
  if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, length};
}

bool is_invisible_or_bidirectional(uint32_t c) {
  return (c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) ||
         c == 0x061C || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE007F) ||
         c == 0x2028 || c == 0x2029 || c == 0x00AD;
}

int columns(uint32_t c) {
  if ((c >= 0x0300 && c <= 0x036F) || (c >= 0x20D0 && c <= 0x20FF)) return 0;
  const bool wide = (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
                    (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
                    (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
                    (c >= 0xFFE0 && c <= 0xFFE6) || (c >= 0x1F300 && c <= 0x1F64F) ||
                    (c >= 0x1F900 && c <= 0x1F9FF) || (c >= 0x20000 && c <= 0x3FFFD);
  return wide ? 2 : 1;
}

}  // namespace

std::string format_time_us(double us) {
  if (!std::isfinite(us)) return "unknown";
  const double magnitude = std::fabs(us);
  if (magnitude >= 999'500.0) return three_digits(us / 1e6) + " s";
  if (magnitude >= 9'995.0) return three_digits(us / 1e3) + " ms";
  if (magnitude >= 999.5) return fmt::format("{:.2f} ms", us / 1e3);
  if (magnitude >= 0.9995 || us == 0) return three_digits(us) + " µs";
  return three_digits(us * 1e3) + " ns";
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 6> kUnits{"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  while (std::fabs(bytes) >= 999.5 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return fmt::format("{} {}",
                     std::fabs(bytes) >= 9.95 ? fmt::format("{:.0f}", bytes) : fmt::format("{:.1f}", bytes),
                     kUnits[unit]);
}

std::string group_digits(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t first = digits.front() == '-' ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string format_percent(double percent) {
  std::string text = fmt::format("{:.2f}", percent);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text + " %";
}

std::string terminal_safe(std::string_view text, size_t max_chars) {
  std::string out;
  size_t chars = 0;
  while (!text.empty()) {
    if (chars++ >= max_chars) return out + "…";
    const Decoded d = decode_utf8(text);
    if (d.length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text.front()));
      text.remove_prefix(1);
      continue;
    }
    if (d.code < 0x20 || (d.code >= 0x7F && d.code < 0xA0)) {
      out += fmt::format("\\x{:02x}", d.code);
    } else if (is_invisible_or_bidirectional(d.code)) {
      out += fmt::format("\\u{{{:04x}}}", d.code);
    } else {
      out.append(text.substr(0, d.length));
    }
    text.remove_prefix(d.length);
  }
  return out;
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Decoded d = decode_utf8(text);
    width += d.length == 0 ? 1 : static_cast<size_t>(columns(d.code));
    text.remove_prefix(d.length == 0 ? 1 : d.length);
  }
  return width;
}

std::string pad(std::string_view text, size_t width, bool right) {
  const size_t have = display_width(text);
  const std::string spaces(width > have ? width - have : 0, ' ');
  return right ? spaces + std::string(text) : std::string(text) + spaces;
}

std::string closest(std::string_view word, std::span<const std::string> known) {
  std::string best;
  size_t best_distance = 4;
  for (const std::string& candidate : known) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t replaced = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
      }
    }
    if (row.back() < best_distance && row.back() < candidate.size()) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts.begin(), parts.end(), separator));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (;;) {
    const size_t end = text.find(separator, begin);
    out.push_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return out;
    begin = end + 1;
  }
}

std::string one_line(const Error& error) {
  std::string text = error.message;
  if (!error.remedy.empty()) text += "; " + error.remedy;
  return terminal_safe(text, 2000);
}

}  // namespace attnscope
