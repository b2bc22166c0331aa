#pragma once
// Whether flow arrows have both ends, in about two bits per id.

#include "trace/column.h"

#include <cstdint>
#include <unordered_map>

namespace attnscope::formats::chrome {

class FlowPairs {
 public:
  // group: a small number per flow category.
  void add(uint32_t group, uint64_t id, bool start) {
    ++flows_;
    const uint64_t key = (id >> kPageBits) ^ uint64_t { group } << 58;
    if (key != last_key_ || bits_.empty()) {
      auto it = pages_.find(key);
      if (it == pages_.end()) {
        // Dense ids cost two bits each; sparse ones would cost a page each, so their number is bounded.
        if (pages_.size() >= 2048 + flows_ / 256) {
          unchecked_ = true;
          return;
        }
        it = pages_.emplace(key, bits_.size()).first;
        for (size_t w = 0; w < kPageWords; ++w) bits_.push_back(0);
      }
      last_key_ = key;
      last_page_ = it->second;
    }
    const uint64_t in_page = id & ((uint64_t{1} << kPageBits) - 1);
    bits_[last_page_ + in_page / 32] |= uint64_t{start ? 1u : 2u} << in_page % 32 * 2;
  }
  struct Counts {
    uint64_t without_end = 0, without_start = 0;
    bool unchecked = false;
  };
  Counts counts() const {
    Counts c;
    c.unchecked = unchecked_;
    for (const uint64_t word : bits_) {
      const uint64_t starts = word & 0x5555555555555555ull, ends = word >> 1 & 0x5555555555555555ull;
      c.without_end += static_cast<uint64_t>(__builtin_popcountll(starts & ~ends));
      c.without_start += static_cast<uint64_t>(__builtin_popcountll(ends & ~starts));
    }
    return c;
  }

 private:
  static constexpr unsigned kPageBits = 12;
  static constexpr size_t kPageWords = (size_t{1} << kPageBits) / 32;

  std::unordered_map<uint64_t, size_t> pages_;  // id page → first word in bits_
  trace::Column<uint64_t> bits_;
  uint64_t last_key_ = 0;
  size_t last_page_ = 0;
  uint64_t flows_ = 0;
  bool unchecked_ = false;
};

}  // namespace attnscope::formats::chrome
