#include "verify/verify_case.h"

#include "tensor/convert.h"

#include <algorithm>

namespace attnscope::verify {
namespace {

double elements(const TensorSpec& t) {
  double n = t.sizes.empty() ? 0 : 1;
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (t.strides.empty() || t.strides[d] != 0 || t.sizes[d] == 0) n *= static_cast<double>(t.sizes[d]);
  return n;
}

double extent_bytes(const TensorSpec& t) {
  if (t.strides.empty()) return elements(t) * static_cast<double>(dtype_size(t.dtype));
  double last = static_cast<double>(t.offset) + 1;
  for (size_t d = 0; d < t.sizes.size(); ++d)
    last += static_cast<double>(std::max<int64_t>(t.sizes[d] - 1, 0)) * static_cast<double>(t.strides[d]);
  return last * static_cast<double>(dtype_size(t.dtype));
}

Result<Tensor> make(const TensorSpec& t, bool dense) {
  Tensor tensor;
  if (dense || t.strides.empty()) {
    ATTNSCOPE_ASSIGN(tensor, Tensor::empty(t.dtype, t.sizes));
  } else {
    ATTNSCOPE_ASSIGN(tensor, Tensor::strided(t.dtype, t.sizes, t.strides, t.offset));
  }
  const TensorView& v = tensor.view();
  const auto rank = static_cast<size_t>(v.rank), shift = 4 - rank;
  std::array<int64_t, 4> n{1, 1, 1, 1};
  for (size_t d = 0; d < rank; ++d) n[d + shift] = v.sizes[d];
  // A dimension of stride 0 is written once, with the values of its index 0.
  std::array<int64_t, 4> count = n;
  if (!t.strides.empty())
    for (size_t d = 0; d < rank; ++d)
      if (t.strides[d] == 0) count[d + shift] = std::min<int64_t>(n[d + shift], 1);
  const std::array<int64_t, 4> walk = dense ? n : count;
  const int64_t rows = walk[3] == 0 ? 0 : walk[0] * walk[1] * walk[2];  // there may be 2^40 rows of nothing
#pragma omp parallel for schedule(static) if (rows * walk[3] > 65536)
  for (int64_t row = 0; row < rows; ++row) {
    std::array<int64_t, 4> at{row / walk[2] / walk[1], row / walk[2] % walk[1], row % walk[2], 0};
    for (int64_t d = 0; d < walk[3]; ++d) {
      at[3] = d;
      std::array<int64_t, 4> source = at;  // the index whose value the element holds
      int64_t offset = 0;
      for (size_t i = 0; i < 4; ++i) {
        if (count[i] == 1 && n[i] > 1) source[i] = 0;
        if (i >= shift) offset += at[i] * v.strides[i - shift];
      }
      const int64_t linear = ((source[0] * n[1] + source[1]) * n[2] + source[2]) * n[3] + source[3];
      store_f64(v.data, v.dtype, offset, t.content(source, linear));
    }
  }
  return tensor;
}

Result<Tensor> index_tensor(DType dtype, const std::vector<int64_t>& values,
                            std::initializer_list<int64_t> sizes) {
  ATTNSCOPE_ASSIGN(Tensor tensor, Tensor::empty(dtype, sizes));
  for (size_t i = 0; i < values.size(); ++i)
    store_f64(tensor.data(), dtype, static_cast<int64_t>(i), static_cast<double>(values[i]));
  return tensor;
}

}  // namespace

double touched_elements(const Case& c) {
  const auto out = [&] {
    double n = 1;
    for (size_t d = 0; d < 3 && d < c.q.sizes.size(); ++d) n *= static_cast<double>(c.q.sizes[d]);
    return c.v.sizes.size() == 4 ? n * static_cast<double>(c.v.sizes[3] + 1) : n;  // and the LSE
  };
  return elements(c.q) + elements(c.k) + elements(c.v) + elements(c.mask) + out();
}

double storage_bytes(const Case& c) {
  return extent_bytes(c.q) + extent_bytes(c.k) + extent_bytes(c.v) + extent_bytes(c.mask);
}

Result<std::unique_ptr<CaseTensors>> materialise(const Case& c, bool dense) {
  auto t = std::make_unique<CaseTensors>();
  Request& r = t->request;
  ATTNSCOPE_ASSIGN(t->q, make(c.q, dense));
  ATTNSCOPE_ASSIGN(t->k, make(c.k, dense));
  ATTNSCOPE_ASSIGN(t->v, make(c.v, dense));
  r.q = t->q;
  r.k = t->k;
  r.v = t->v;
  r.mask_kind = c.mask_kind;
  if (c.mask_kind != MaskKind::kNone) {
    ATTNSCOPE_ASSIGN(t->mask, make(c.mask, dense));
    r.mask = t->mask;
  }
  r.causal = c.causal;
  r.window = c.window;
  r.scale = c.scale;
  r.softcap = c.softcap;
  r.dropout = c.dropout;
  const auto count = [](const std::vector<int64_t>& v) { return static_cast<int64_t>(v.size()); };
  if (!c.kv_lengths.empty()) {
    ATTNSCOPE_ASSIGN(t->kv_lengths, index_tensor(DType::kI32, c.kv_lengths, {count(c.kv_lengths)}));
    r.lengths.kv_lengths = t->kv_lengths;
  }
  if (!c.cu_q.empty()) {
    ATTNSCOPE_ASSIGN(t->cu_q, index_tensor(DType::kI32, c.cu_q, {count(c.cu_q)}));
    ATTNSCOPE_ASSIGN(t->cu_k, index_tensor(DType::kI32, c.cu_k, {count(c.cu_k)}));
    r.lengths.cu_q = t->cu_q;
    r.lengths.cu_k = t->cu_k;
  }
  if (c.page_size > 0) {
    const int64_t batch = c.q.sizes[0];
    ATTNSCOPE_ASSIGN(t->block_table, index_tensor(DType::kI32, c.pages,
                                                  {batch, count(c.pages) / std::max<int64_t>(batch, 1)}));
    r.paging.block_table = t->block_table;
    r.paging.page_size = c.page_size;
  }
  return t;
}

}  // namespace attnscope::verify
