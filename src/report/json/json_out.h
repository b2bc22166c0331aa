#pragma once
// Helpers of the JSON renderers. For .cpp files of src/report/json and src/cli only: it is a heavy header.

#include "base/total.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attnscope {

inline void to_json(nlohmann::ordered_json& json, const Total& total) {
  json = static_cast<int64_t>(total);
}

}  // namespace attnscope

namespace attnscope::report {

using Json = nlohmann::ordered_json;

inline double microseconds(int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

// A figure that is not known is null, and <key>_reason says why; never 0.
template <typename T>
void put(Json& object, const char* key, const std::optional<T>& value, std::string_view reason) {
  if (value) {
    object[key] = *value;
  } else {
    object[key] = nullptr;
    object[std::string(key) + "_reason"] = reason;
  }
}
inline void put_time(Json& object, const char* key, int64_t ns, std::string_view reason) {
  put(object, key, ns >= 0 ? std::optional(microseconds(ns)) : std::nullopt, reason);
}
inline void put_text(Json& object, const char* key, std::string_view text, std::string_view reason) {
  put(object, key, text.empty() ? std::nullopt : std::optional(std::string(text)), reason);
}
// Counts and sizes where −1 says "not recorded".
inline void put_count(Json& object, const char* key, int64_t value, std::string_view reason) {
  put(object, key, value >= 0 ? std::optional(value) : std::nullopt, reason);
}

// Strict JSON with a final newline; invalid UTF-8 in names becomes U+FFFD.
inline std::string dump(const Json& document) {
  return document.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace attnscope::report
