#pragma once
// A growing array of plain values whose growth neither copies nor touches memory twice.

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace attnscope::trace {

namespace detail {
// Resizes a block, keeping its first min(old, new) bytes. Large blocks are moved by remapping their pages
// where the system can. bytes == 0 frees. Throws std::bad_alloc.
void* resize_block(void* block, size_t old_bytes, size_t new_bytes);
}  // namespace detail

// Like std::vector for trivially copyable T, but peak memory while growing is the content itself: a
// std::vector holds old and new storage at once, which alone would break the reader's memory budget.
template <typename T>
class Column {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Column() = default;
  Column(Column&& other) noexcept { swap(other); }
  Column& operator=(Column&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Column() { detail::resize_block(data_, capacity_ * sizeof(T), 0); }

  void push_back(const T& value) {
    if (size_ == capacity_) [[unlikely]]
      grow(size_ + 1);
    data_[size_++] = value;
  }
  void append(const T* values, size_t n) {
    if (size_ + n > capacity_) grow(size_ + n);
    std::memcpy(static_cast<void*>(data_ + size_), values, n * sizeof(T));
    size_ += n;
  }
  // n copies of value, replacing what was there.
  void assign(size_t n, const T& value) {
    size_ = 0;
    if (n > capacity_) resize_capacity(n);
    for (size_t i = 0; i < n; ++i) data_[i] = value;
    size_ = n;
  }
  void shrink_to_fit() {
    if (capacity_ != size_) resize_capacity(size_);
  }
  void clear() {
    resize_capacity(0);
    size_ = 0;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& back() { return data_[size_ - 1]; }
  const T* data() const { return data_; }
  T* data() { return data_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  std::span<const T> span() const { return {data_, size_}; }
  size_t capacity_bytes() const { return capacity_ * sizeof(T); }

 private:
  void swap(Column& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  void grow(size_t need) {
    size_t want = capacity_ + capacity_ / 2 + 64 / sizeof(T) + 8;
    resize_capacity(want < need ? need : want);
  }
  void resize_capacity(size_t n) {
    data_ = static_cast<T*>(detail::resize_block(data_, capacity_ * sizeof(T), n * sizeof(T)));
    capacity_ = n;
  }

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace attnscope::trace
