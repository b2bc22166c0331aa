#pragma once
// Interned strings: every distinct name is stored once and named by a small integer.

#include "trace/column.h"

#include <cstdint>
#include <string_view>

namespace attnscope::trace {

using StringId = uint32_t;
inline constexpr StringId kEmptyString = 0;

// Append-only pool. Id 0 is the empty string. Views stay valid while the pool lives and is not appended to;
// in a finished Trace they live as long as it does.
class StringPool {
 public:
  StringPool();
  StringId intern(std::string_view text);
  // The id of text, or kEmptyString when it was never interned.
  StringId find(std::string_view text) const;
  std::string_view view(StringId id) const {
    const Entry& e = entries_[id];
    return {bytes_.data() + e.offset, e.length};
  }
  size_t size() const { return entries_.size(); }
  // Gives back spare capacity; the pool can still be appended to.
  void shrink_to_fit();
  size_t capacity_bytes() const {
    return bytes_.capacity_bytes() + entries_.capacity_bytes() + slots_.capacity_bytes();
  }

 private:
  struct Entry {
    uint64_t offset;
    uint32_t length;
    uint32_t hash;
  };
  void rehash(size_t slots);

  Column<char> bytes_;
  Column<Entry> entries_;
  Column<uint32_t> slots_;  // open addressing, 0 = free (the empty string is never looked up here)
};

}  // namespace attnscope::trace
