#include "backends/cuda_append/arguments.h"

#include "attention/geometry.h"

namespace attnscope::append {
namespace {

constexpr int kVector = 16;  // bytes

// Can every row be moved 16 bytes at a time?
bool has_vectors(const TensorView& v) {
  const auto per_vector = static_cast<int64_t>(kVector / dtype_size(v.dtype));
  if (v.size(3) % per_vector != 0 || (v.size(3) > 1 && v.stride(3) != 1)) return false;
  if (reinterpret_cast<uintptr_t>(v.data) % kVector != 0) return false;
  for (int d = 0; d < 3; ++d)
    if (v.size(d) > 1 && v.stride(d) % per_vector != 0) return false;
  return true;
}

Side side_of(const TensorView& rows, const TensorView& cache) {
  Side s{};
  const bool vectors = has_vectors(rows) && has_vectors(cache);
  const auto element = static_cast<int64_t>(dtype_size(cache.dtype));
  const int64_t per_piece = vectors ? kVector / element : 1;
  const auto strides = [&](const TensorView& v, tile::i64(&to)[4]) {
    for (int d = 0; d < 3; ++d) to[d] = v.size(d) > 1 ? v.stride(d) / per_piece : 0;
    to[3] = vectors || v.size(3) <= 1 ? 1 : v.stride(3);
  };
  s.rows = rows.data;
  strides(rows, s.row_strides);
  s.cache = cache.data;
  strides(cache, s.cache_strides);
  s.heads = static_cast<int>(cache.size(1));
  s.columns = static_cast<int>(cache.size(3) / per_piece);
  s.piece_bytes = static_cast<int>(per_piece * element);
  return s;
}

}  // namespace

int64_t bytes_of(const Request& r) {
  if (appended_keys(r) == 0) return 0;
  const TensorView &k = r.paging.append_k, &v = r.paging.append_v;
  return k.numel() * static_cast<int64_t>(dtype_size(k.dtype)) +
         v.numel() * static_cast<int64_t>(dtype_size(v.dtype));
}

Params params_of(const Request& r) {
  Params p{};
  p.k = side_of(r.paging.append_k, r.k);
  p.v = side_of(r.paging.append_v, r.v);
  const TensorView& lengths = r.lengths.kv_lengths;
  p.lengths = lengths.data;
  p.lengths_stride = lengths.size(0) > 1 ? lengths.stride(0) : 0;
  p.lengths_wide = lengths.dtype == DType::kI64 ? 1 : 0;
  const TensorView& table = r.paging.block_table;
  p.table = table.as<const int>();
  for (int d = 0; d < 2; ++d) p.table_strides[d] = table.size(d) > 1 ? table.stride(d) : 0;
  p.page_size = static_cast<int>(r.paging.page_size);
  p.keys = static_cast<int>(r.kv_len());
  p.appended = static_cast<int>(appended_keys(r));
  return p;
}

}  // namespace attnscope::append
