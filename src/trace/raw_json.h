#pragma once
// Walking raw JSON members that the reader kept as text ("Input Dims": [[8, 16]], …).

#include <cstddef>
#include <string_view>

namespace attnscope::trace {

// Length of the JSON value at the start of text; stops at its closing bracket, quote, or separator.
inline size_t raw_value_length(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') {
        in_string = false;
        if (depth == 0) return i + 1;
      }
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') {
      if (depth <= 1) return depth == 1 ? i + 1 : i;
      --depth;
    }
    if (c == ',' && depth == 0) return i;
  }
  return text.size();
}

// Calls f(key, raw value) for each `"key": value` of a comma-separated list without braces.
template <typename F>
void for_each_member(std::string_view members, F&& f) {
  const auto skip = [&](std::string_view set) {
    while (!members.empty() && set.find(members.front()) != std::string_view::npos) members.remove_prefix(1);
  };
  while (true) {
    skip(" \t\r\n,");
    if (members.empty() || members.front() != '"') return;
    const size_t end = members.find('"', 1);
    if (end == std::string_view::npos) return;
    const std::string_view key = members.substr(1, end - 1);
    members.remove_prefix(end + 1);
    skip(" \t\r\n:");
    const size_t n = raw_value_length(members);
    std::string_view value = members.substr(0, n);
    while (!value.empty() && static_cast<unsigned char>(value.back()) <= ' ') value.remove_suffix(1);
    f(key, value);
    members.remove_prefix(n);
  }
}

}  // namespace attnscope::trace
