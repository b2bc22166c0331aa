#include "attention/geometry.h"

#include <algorithm>

namespace attnscope {

int64_t read_index(const TensorView& v, int64_t i) {
  return v.dtype == DType::kI64 ? v.as<int64_t>()[i * v.stride(0)] : v.as<int32_t>()[i * v.stride(0)];
}

int64_t stored_keys(const Request& request, int64_t b) {
  return request.lengths.has_kv_lengths() ? read_index(request.lengths.kv_lengths, b) : request.kv_len();
}

int64_t appended_keys(const Request& request) {
  return request.paging.append_k.data != nullptr ? request.paging.append_k.size(2) : 0;
}

MaskAccess::MaskAccess(const TensorView& mask) : data(mask.data), dtype(mask.dtype) {
  int64_t* strides[4] = {&stride_b, &stride_h, &stride_i, &stride_j};
  for (int d = 0; d < mask.rank; ++d)
    if (mask.size(d) != 1) *strides[4 - mask.rank + d] = mask.stride(d);
}

Geometry::Geometry(const Request& request)
    : causal_(request.causal), window_(request.window), packed_(request.lengths.packed()) {
  if (packed_) {
    const TensorView& cu_q = request.lengths.cu_q;
    const TensorView& cu_k = request.lengths.cu_k;
    for (int64_t n = 0; n + 1 < cu_q.size(0); ++n)
      sequences_.push_back(
          {read_index(cu_q, n), read_index(cu_q, n + 1), read_index(cu_k, n), read_index(cu_k, n + 1)});
  } else {
    for (int64_t b = 0; b < request.batch(); ++b)
      sequences_.push_back({0, request.q_len(), 0, stored_keys(request, b) + appended_keys(request)});
  }
  per_batch_ = !packed_ && request.lengths.has_kv_lengths();
  full_ = !packed_ && !per_batch_ && causal_ == CausalMode::kNone && !window_.active();
}

KeyRange Geometry::visible_in(const Sequence& s, int64_t i) const {
  const int64_t keys = s.k_end - s.k_begin;
  int64_t diagonal = i - s.q_begin;
  if (causal_ == CausalMode::kLowerRight) diagonal += keys - (s.q_end - s.q_begin);
  int64_t begin = 0, end = keys;
  // A window side may be as large as int64 allows: compare differences instead of adding to the diagonal.
  if (window_.left >= 0 && diagonal > window_.left) begin = diagonal - window_.left;
  if (window_.right >= 0 && window_.right < keys - 1 - diagonal) end = diagonal + window_.right + 1;
  if (causal_ != CausalMode::kNone) end = std::min(end, diagonal + 1);
  end = std::max(end, begin);
  return {s.k_begin + std::min(begin, keys), s.k_begin + std::clamp<int64_t>(end, 0, keys)};
}

Sequence Geometry::sequence_of(int64_t b, int64_t i) const {
  // A mask that is the same for every batch entry is built for batch 0 as well, even when there is none.
  if (!packed_) return sequences_.empty() ? Sequence{} : sequences_[static_cast<size_t>(b)];
  // First sequence that ends past row i: empty ones before it are skipped.
  const auto it = std::upper_bound(sequences_.begin(), sequences_.end(), i,
                                   [](int64_t row, const Sequence& s) { return row < s.q_end; });
  if (it == sequences_.end()) return {i, i, 0, 0};
  return *it;
}

}  // namespace attnscope
