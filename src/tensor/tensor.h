#pragma once
// Host memory that owns itself, seen through a TensorView.

#include "attnscope/result.h"
#include "attnscope/tensor_view.h"

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>

namespace attnscope {

// 64-byte aligned host memory, freed on destruction. Large blocks ask for huge pages: first use of fresh
// memory is otherwise dominated by page faults.
class HostBuffer {
 public:
  HostBuffer() = default;
  // kOutOfMemory when the system has not got it. Zero bytes give a non-null pointer.
  [[nodiscard]] static Result<HostBuffer> allocate(size_t bytes);
  void* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const noexcept;
  };
  std::unique_ptr<void, Free> data_;
  size_t bytes_ = 0;
};

// A view together with its storage. Movable, not copyable.
class Tensor {
 public:
  Tensor() = default;
  // Dense row-major, uninitialised; 1 to 4 sizes, each ≥ 0.
  [[nodiscard]] static Result<Tensor> empty(DType dtype, std::span<const int64_t> sizes);
  [[nodiscard]] static Result<Tensor> empty(DType dtype, std::initializer_list<int64_t> sizes) {
    return empty(dtype, std::span<const int64_t>(sizes.begin(), sizes.size()));
  }
  // Any strides (elements) and a start `offset` elements into the storage, which is made just large enough.
  [[nodiscard]] static Result<Tensor> strided(DType dtype, std::span<const int64_t> sizes,
                                              std::span<const int64_t> strides, int64_t offset = 0);
  [[nodiscard]] static Result<Tensor> strided(DType dtype, std::initializer_list<int64_t> sizes,
                                              std::initializer_list<int64_t> strides, int64_t offset = 0) {
    return strided(dtype, std::span<const int64_t>(sizes.begin(), sizes.size()),
                   std::span<const int64_t>(strides.begin(), strides.size()), offset);
  }
  const TensorView& view() const { return view_; }
  operator const TensorView&() const { return view_; }  // NOLINT(google-explicit-constructor)
  void* data() const { return view_.data; }
  template <typename T>
  T* as() const {
    return view_.as<T>();
  }
  DType dtype() const { return view_.dtype; }
  int64_t numel() const { return view_.numel(); }
  // The storage, guard space included.
  std::span<std::byte> storage() const { return {static_cast<std::byte*>(buffer_.data()), buffer_.bytes()}; }

 private:
  HostBuffer buffer_;
  TensorView view_;
};

// Offset in elements of index (a, b, c, d); indices beyond the rank are ignored.
constexpr int64_t element_offset(const TensorView& v, int64_t a, int64_t b = 0, int64_t c = 0,
                                 int64_t d = 0) {
  const int64_t index[4] = {a, b, c, d};
  int64_t offset = 0;
  for (int i = 0; i < v.rank; ++i) offset += index[i] * v.stride(i);
  return offset;
}
double read_element(const TensorView& v, int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0);
void write_element(const TensorView& v, double value, int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0);
// Same sizes; converts element by element (exact or RNE). For set-up and tests, not for hot paths.
[[nodiscard]] Status copy_elements(const TensorView& from, const TensorView& to);

}  // namespace attnscope
