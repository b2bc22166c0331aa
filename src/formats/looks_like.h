#pragma once
// What a file that is no trace looks like, so that a refusal can say it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnscope::formats {

// The outline of a JSON document: its first top-level members, or the start of its first entry.
struct JsonShape {
  bool is_array = false;
  bool has_events = false;                                   // a member traceEvents that is a list
  std::string first_entry;                                   // arrays
  std::vector<std::pair<std::string, std::string>> members;  // key and the start of its value; the first 64

  void add_member(const std::string& key, std::string_view value) {
    if (members.size() < 64) members.emplace_back(key.substr(0, 80), std::string(value.substr(0, 80)));
  }
  bool has_member(std::string_view key) const {
    for (const auto& m : members)
      if (m.first == key) return true;
    return false;
  }
};

// One clause: "it looks like a PyTorch execution trace (Chakra): …".
std::string describe_json(const JsonShape& shape);
// The same for bytes that are no JSON at all.
std::string describe_bytes(std::string_view start);

}  // namespace attnscope::formats
