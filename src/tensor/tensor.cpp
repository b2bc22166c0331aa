#include "tensor/tensor.h"

#include "tensor/convert.h"

#include <fmt/format.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdlib>

namespace attnscope {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

Result<int64_t> extent_elements(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                                int64_t offset) {
  if (sizes.empty() || sizes.size() > 4 || strides.size() != sizes.size())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a tensor takes 1 to 4 sizes and as many strides; got {} and {}", sizes.size(),
                            strides.size()));
  int64_t last = offset;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || strides[d] < 0)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor dimension {} has size {} and stride {}: both must be ≥ 0", d, sizes[d],
                              strides[d]));
    if (sizes[d] == 0) return offset;
    int64_t span = 0;
    if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &span) || __builtin_add_overflow(last, span, &last))
      return fail(ErrorCode::kInvalidArgument, "the tensor's extent does not fit 64 bits");
  }
  return last + 1;
}

}  // namespace

void HostBuffer::Free::operator()(void* p) const noexcept {
  std::free(p);
}

Result<HostBuffer> HostBuffer::allocate(size_t bytes) {
  HostBuffer buffer;
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
  if (bytes > (size_t{1} << 47))
    return fail(ErrorCode::kOutOfMemory, fmt::format("cannot allocate {} bytes", bytes));
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  buffer.data_.reset(std::aligned_alloc(alignment, rounded));
  if (!buffer.data_) return fail(ErrorCode::kOutOfMemory, fmt::format("cannot allocate {} bytes", bytes));
#if defined(__linux__)
  if (alignment == kHugePage) (void)madvise(buffer.data_.get(), rounded, MADV_HUGEPAGE);
#endif
  buffer.bytes_ = bytes;
  return buffer;
}

Result<Tensor> Tensor::strided(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                               int64_t offset) {
  ATTNSCOPE_ASSIGN(const int64_t elements, extent_elements(sizes, strides, offset));
  Tensor tensor;
  ATTNSCOPE_ASSIGN(tensor.buffer_, HostBuffer::allocate(static_cast<size_t>(elements) * dtype_size(dtype)));
  tensor.view_.dtype = dtype;
  tensor.view_.rank = static_cast<int>(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    tensor.view_.sizes[d] = sizes[d];
    tensor.view_.strides[d] = strides[d];
  }
  tensor.view_.data =
      static_cast<std::byte*>(tensor.buffer_.data()) + static_cast<size_t>(offset) * dtype_size(dtype);
  return tensor;
}

Result<Tensor> Tensor::empty(DType dtype, std::span<const int64_t> sizes) {
  int64_t strides[4] = {1, 1, 1, 1};
  int64_t stride = 1;
  const size_t rank = std::min<size_t>(sizes.size(), 4);
  for (size_t d = rank; d-- > 0;) {
    strides[d] = stride;
    if (__builtin_mul_overflow(stride, std::max<int64_t>(sizes[d], 1), &stride))
      return fail(ErrorCode::kInvalidArgument, "the tensor's extent does not fit 64 bits");
  }
  return strided(dtype, sizes, std::span<const int64_t>(strides, sizes.size() <= 4 ? rank : 0));
}

double read_element(const TensorView& v, int64_t a, int64_t b, int64_t c, int64_t d) {
  return load_f64(v.data, v.dtype, element_offset(v, a, b, c, d));
}

void write_element(const TensorView& v, double value, int64_t a, int64_t b, int64_t c, int64_t d) {
  store_f64(v.data, v.dtype, element_offset(v, a, b, c, d), value);
}

Status copy_elements(const TensorView& from, const TensorView& to) {
  if (from.rank != to.rank ||
      !std::equal(from.sizes.begin(), from.sizes.begin() + from.rank, to.sizes.begin()))
    return fail(ErrorCode::kInvalidArgument, "copy_elements needs equal sizes");
  std::array<int64_t, 4> n{1, 1, 1, 1};
  for (int d = 0; d < from.rank; ++d) n[static_cast<size_t>(d)] = from.size(d);
  for (int64_t a = 0; a < n[0]; ++a)
    for (int64_t b = 0; b < n[1]; ++b)
      for (int64_t c = 0; c < n[2]; ++c)
        for (int64_t d = 0; d < n[3]; ++d) write_element(to, read_element(from, a, b, c, d), a, b, c, d);
  return {};
}

}  // namespace attnscope
