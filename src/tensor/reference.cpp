#include "tensor/reference.h"

#include "tensor/convert.h"
#include "tensor/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace attnscope {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

int64_t read_int(const TensorView& v, int64_t i) {
  return v.dtype == DType::kI64 ? v.as<int64_t>()[i * v.stride(0)]
                                : static_cast<int64_t>(v.as<int32_t>()[i * v.stride(0)]);
}

// Philox-4x32-10, written again from its definition.
uint32_t random_word(uint64_t seed, uint64_t offset, uint64_t row, uint64_t key) {
  const uint64_t group = key / 4;
  uint32_t c[4] = {static_cast<uint32_t>(group), static_cast<uint32_t>(row),
                   static_cast<uint32_t>(row >> 32) ^ (static_cast<uint32_t>(group >> 32) * 0x85EBCA6Bu),
                   static_cast<uint32_t>(offset)};
  uint32_t k[2] = {static_cast<uint32_t>(seed),
                   static_cast<uint32_t>(seed >> 32) ^ (static_cast<uint32_t>(offset >> 32) * 0x9E3779B9u)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{c[0]} * 0xD2511F53u;
    const uint64_t b = uint64_t{c[2]} * 0xCD9E8D57u;
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    std::memcpy(c, next, sizeof c);
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c[key % 4];
}

}  // namespace

Reference::Reference(const Request& request)
    : request_(request),
      kv_len_(request.paging.active() ? request.paging.block_table.size(1) * request.paging.page_size
                                      : request.k.size(2)) {
  const int64_t batches = request.paging.active() ? request.paging.block_table.size(0) : request.k.size(0);
  k_ = Panels(static_cast<size_t>(batches * request.k.size(1)));
  v_ = Panels(static_cast<size_t>(batches * request.v.size(1)));
}

const double* Reference::widened(Panels& panels, const TensorView& cache, const TensorView& appended,
                                 int64_t b, int64_t h) const {
  Panel& panel = panels[static_cast<size_t>(b * cache.size(1) + h)];
  std::call_once(panel.made, [&] { widen(cache, appended, b, h, panel.values); });
  return panel.values.data();
}

void Reference::widen(const TensorView& cache, const TensorView& appended, int64_t b, int64_t h,
                      std::vector<double>& into) const {
  const Paging& paging = request_.paging;
  const int64_t width = cache.size(3);
  into.assign(static_cast<size_t>(kv_len_ * width), 0.0);
  const int64_t stored = paging.active() ? read_int(request_.lengths.kv_lengths, b) : kv_len_;
  const int64_t total = appended.data != nullptr && paging.active() ? stored + appended.size(2) : stored;
  for (int64_t j = 0; j < std::min(total, kv_len_); ++j) {
    double* row = into.data() + j * width;
    for (int64_t e = 0; e < width; ++e) {
      if (j >= stored) {
        row[e] = read_element(appended, b, h, j - stored, e);
      } else if (paging.active()) {
        const int32_t page =
            paging.block_table.as<int32_t>()[element_offset(paging.block_table, b, j / paging.page_size)];
        row[e] = read_element(cache, page, h, j % paging.page_size, e);
      } else {
        row[e] = read_element(cache, b, h, j, e);
      }
    }
  }
}

Reference::Range Reference::range_of(int64_t b, int64_t i) const {
  const Lengths& lengths = request_.lengths;
  if (!lengths.packed()) {
    int64_t keys = kv_len_;
    if (lengths.has_kv_lengths()) {
      keys = read_int(lengths.kv_lengths, b);
      if (request_.paging.active() && request_.paging.append_k.data != nullptr)
        keys += request_.paging.append_k.size(2);
    }
    return {0, request_.q.size(2), 0, keys};
  }
  for (int64_t n = 0; n + 1 < lengths.cu_q.size(0); ++n)
    if (i >= read_int(lengths.cu_q, n) && i < read_int(lengths.cu_q, n + 1))
      return {read_int(lengths.cu_q, n), read_int(lengths.cu_q, n + 1), read_int(lengths.cu_k, n),
              read_int(lengths.cu_k, n + 1)};
  return {i, i, 0, 0};
}

double Reference::mask_value(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const TensorView& m = request_.mask;
  const int64_t index[4] = {b, h, i, j};
  int64_t offset = 0;
  for (int d = 0; d < m.rank; ++d)
    if (m.size(d) != 1) offset += index[4 - m.rank + d] * m.stride(d);
  return load_f64(m.data, m.dtype, offset);
}

bool Reference::sees(int64_t b, int64_t h, int64_t i, int64_t j) const {
  const Range r = range_of(b, i);
  if (j < r.k_begin || j >= r.k_end) return false;
  const int64_t query = i - r.q_begin, key = j - r.k_begin;
  int64_t diagonal = query;
  if (request_.causal == CausalMode::kLowerRight) diagonal += (r.k_end - r.k_begin) - (r.q_end - r.q_begin);
  if (request_.causal != CausalMode::kNone && key > diagonal) return false;
  if (request_.window.left >= 0 && diagonal - key > request_.window.left) return false;
  if (request_.window.right >= 0 && key - diagonal > request_.window.right) return false;
  if (request_.mask_kind == MaskKind::kBool) return mask_value(b, h, i, j) != 0.0;
  if (request_.mask_kind == MaskKind::kBias) return mask_value(b, h, i, j) != -kInf;
  return true;
}

void Reference::row(int64_t b, int64_t h, int64_t i, ReferenceRow& result) const {
  const Request& r = request_;
  const int64_t e_dim = r.q.size(3), ev_dim = r.v.size(3);
  const int64_t k_head = h / (r.q.size(1) / r.k.size(1)), v_head = h / (r.q.size(1) / r.v.size(1));
  const double* k = widened(k_, r.k, r.paging.append_k, b, k_head);
  const double* v = widened(v_, r.v, r.paging.append_v, b, v_head);
  const double scale = r.scale ? *r.scale : (e_dim > 0 ? 1.0 / std::sqrt(static_cast<double>(e_dim)) : 1.0);
  std::vector<double> q(static_cast<size_t>(e_dim));
  for (int64_t e = 0; e < e_dim; ++e) q[static_cast<size_t>(e)] = read_element(r.q, b, h, i, e);

  result.out.assign(static_cast<size_t>(ev_dim), 0.0);
  result.lse = -kInf;
  std::vector<int64_t> keys;
  std::vector<double> scores;
  double sink = -kInf, max = -kInf;
  bool nan = false;
  const Range range = range_of(b, i);
  double slope = 0;
  if (r.alibi_slopes.data != nullptr)
    slope = r.alibi_slopes.rank == 2 ? read_element(r.alibi_slopes, b, h) : read_element(r.alibi_slopes, h);
  int64_t diagonal = i - range.q_begin + range.k_begin;
  if (r.causal == CausalMode::kLowerRight)
    diagonal += (range.k_end - range.k_begin) - (range.q_end - range.q_begin);
  for (int64_t j = range.k_begin; j < range.k_end; ++j) {
    if (!sees(b, h, i, j)) continue;
    double s = 0.0;
    for (int64_t e = 0; e < e_dim; ++e) s += q[static_cast<size_t>(e)] * k[j * e_dim + e];
    s *= scale;
    if (r.softcap > 0) s = r.softcap * std::tanh(s / r.softcap);
    if (r.mask_kind == MaskKind::kBias) s += mask_value(b, h, i, j);
    if (r.alibi_slopes.data != nullptr) s -= slope * static_cast<double>(std::abs(diagonal - j));
    nan = nan || std::isnan(s);
    max = std::max(max, s);
    keys.push_back(j);
    scores.push_back(s);
  }
  if (r.sinks.data != nullptr && !keys.empty()) {
    sink = read_element(r.sinks, h);
    max = std::max(max, sink);
  }
  if (!nan && max == -kInf) return;  // nothing is kept: output 0, lse −inf
  double sum = sink == -kInf ? 0.0 : std::exp(sink - max);
  for (const double s : scores) sum += std::exp(s - max);
  if (nan || std::isnan(sum)) {  // a score of +infinity as well: ∞ − ∞
    result.lse = std::nan("");
    std::fill(result.out.begin(), result.out.end(), std::nan(""));
    return;
  }
  result.lse = max + std::log(sum);

  const double p = r.dropout.p;
  if (p >= 1.0) return;
  const double t = p * 4294967296.0;
  const uint32_t threshold = t >= 4294967295.0 ? 4294967295u : static_cast<uint32_t>(t);
  uint64_t seed = r.dropout.seed, offset = r.dropout.offset;
  if (r.dropout.seed_on_device != nullptr) {
    seed = r.dropout.seed_on_device[0];
    offset = r.dropout.seed_on_device[1];
  }
  const uint64_t row_id =
      (static_cast<uint64_t>(b) * static_cast<uint64_t>(r.q.size(1)) + static_cast<uint64_t>(h)) *
          static_cast<uint64_t>(r.q.size(2)) +
      static_cast<uint64_t>(i);
  for (size_t n = 0; n < keys.size(); ++n) {
    const bool dropped =
        p > 0 && random_word(seed, offset, row_id, static_cast<uint64_t>(keys[n])) < threshold;
    // A dropped weight is a factor 0, not a mask: 0 · NaN is NaN.
    const double weight = dropped ? 0.0 : std::exp(scores[n] - max) / sum / (1.0 - p);
    for (int64_t e = 0; e < ev_dim; ++e)
      result.out[static_cast<size_t>(e)] += weight * v[keys[n] * ev_dim + e];
  }
}

ReferenceResult reference_attention(const Request& request) {
  const Reference reference(request);
  const int64_t heads = request.q.size(1), len = request.q.size(2), ev = request.v.size(3);
  const int64_t rows = request.q.size(0) * heads * len;
  ReferenceResult result;
  result.out.resize(static_cast<size_t>(rows * ev));
  result.lse.resize(static_cast<size_t>(rows));
#if !defined(__SANITIZE_THREAD__)  // it does not see how GCC's OpenMP runtime synchronises
#pragma omp parallel if (rows * request.kv_len() * (request.q.size(3) + ev) > 2000000)
#endif
  {
    ReferenceRow row;
#pragma omp for schedule(dynamic, 8)
    for (int64_t n = 0; n < rows; ++n) {
      reference.row(n / len / heads, n / len % heads, n % len, row);
      std::copy(row.out.begin(), row.out.end(), result.out.begin() + n * ev);
      result.lse[static_cast<size_t>(n)] = row.lse;
    }
  }
  return result;
}

}  // namespace attnscope
