#pragma once
// Sums and products of what a file states.

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace attnscope {

// Durations and bytes come from files that may state anything: a sum that leaves 64 bits stays at their end.
class Total {
 public:
  constexpr Total() = default;
  // Not explicit, so that `c ? total : 0` is ambiguous instead of an int.
  constexpr Total(int64_t value) : value_(value) {}
  constexpr operator int64_t() const { return value_; }
  constexpr Total& operator+=(int64_t more) {
    if (__builtin_add_overflow(value_, more, &value_))
      value_ = more < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
    return *this;
  }
  constexpr Total& operator-=(int64_t less) {
    if (__builtin_sub_overflow(value_, less, &value_))
      value_ = less < 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
    return *this;
  }
  friend constexpr Total operator+(Total a, Total b) { return a += b; }
  friend constexpr Total operator+(Total a, int64_t b) { return a += b; }

 private:
  int64_t value_ = 0;
};

// A product of sizes that a file states; the largest number where it leaves 64 bits.
template <class Sizes = std::initializer_list<int64_t>>
constexpr int64_t product(const Sizes& sizes) {
  int64_t all = 1;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(all, size, &all)) all = std::numeric_limits<int64_t>::max();
  return all;
}

// For fmt.
constexpr int64_t format_as(Total total) {
  return total;
}

}  // namespace attnscope
