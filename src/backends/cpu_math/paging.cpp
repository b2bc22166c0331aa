#include "paging.h"

#include "attention/geometry.h"
#include "backends/cpu_common/row_kernels.h"
#include "backends/cpu_common/threads.h"
#include "tensor/tensor.h"

#include <algorithm>
#include <cstring>

namespace attnscope::cpu {
namespace {

std::byte* at(const TensorView& v, int64_t a, int64_t b, int64_t c) {
  return static_cast<std::byte*>(v.data) +
         element_offset(v, a, b, c) * static_cast<int64_t>(dtype_size(v.dtype));
}

// Address of key j of batch b, head h in the cache.
std::byte* slot(const Request& r, const TensorView& cache, int64_t b, int64_t h, int64_t j) {
  const int32_t page =
      r.paging.block_table.as<int32_t>()[element_offset(r.paging.block_table, b, j / r.paging.page_size)];
  return at(cache, page, h, j % r.paging.page_size);
}

}  // namespace

void append_step(const Request& r, const TensorView& rows, const TensorView& cache, int threads) {
  const int64_t heads = rows.size(1), count = rows.size(2), width = rows.size(3);
  const auto size = static_cast<int64_t>(dtype_size(cache.dtype));
  parallel_for(threads, rows.size(0) * heads, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t i = 0; i < count; ++i) {
        const int64_t b = n / heads, h = n % heads;
        std::byte* to = slot(r, cache, b, h, stored_keys(r, b) + i);
        const std::byte* from = at(rows, b, h, i);
        for (int64_t e = 0; e < width; ++e)
          std::memcpy(to + e * cache.stride(3) * size, from + e * rows.stride(3) * size,
                      static_cast<size_t>(size));
      }
  });
}

template <typename T>
void gather_step(const Request& r, const TensorView& cache, const TensorView& dense, int threads) {
  const RowKernels<T>& k = row_kernels<T>();
  const int64_t heads = dense.size(1), keys = dense.size(2), width = dense.size(3);
  parallel_for(threads, dense.size(0) * heads, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t b = n / heads, h = n % heads;
      const int64_t length = std::min(keys, stored_keys(r, b) + appended_keys(r));
      T* to = dense.as<T>() + n * keys * width;
      for (int64_t j = 0; j < length; ++j)
        k.load(slot(r, cache, b, h, j), cache.dtype, cache.stride(3), width, to + j * width);
      std::fill(to + length * width, to + keys * width, T{0});
    }
  });
}

template void gather_step<float>(const Request&, const TensorView&, const TensorView&, int);
template void gather_step<double>(const Request&, const TensorView&, const TensorView&, int);

}  // namespace attnscope::cpu
