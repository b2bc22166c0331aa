#pragma once
// Formatting of figures and escaping of names that come from outside.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// 45.1 µs, 1.27 ms: a time in the unit that needs no leading or trailing zeros; three significant digits.
std::string format_time_us(double us);
// 67 MB, 1.9 GB (decimal units).
std::string format_bytes(double bytes);
// 268,435,456
std::string group_digits(int64_t value);
// 12.5 %, no trailing zeros
std::string format_percent(double percent);

// Names from traces are hostile: control characters, bidirectional overrides and invalid UTF-8 become
// visible \xNN / \u{NNNN} escapes; longer than max_chars is cut with "…". Result is valid UTF-8.
std::string terminal_safe(std::string_view text, size_t max_chars = 200);
// Number of terminal columns of valid UTF-8 (East Asian wide = 2, combining = 0).
size_t display_width(std::string_view text);
// text padded with spaces to width columns (right-aligned when asked); never cuts.
std::string pad(std::string_view text, size_t width, bool right = false);

// Levenshtein-based "did you mean": the closest of known within distance 3, else empty.
std::string closest(std::string_view word, std::span<const std::string> known);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace attnscope
