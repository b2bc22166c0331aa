#include "support/attention_case.h"

#include "tensor/convert.h"
#include "tensor/fill.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace attnscope::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int64_t kGuard = 64;  // elements before and after

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

std::array<int64_t, 4> strides_for(std::array<int64_t, 4> n, Layout layout, bool may_expand) {
  const auto [b, h, s, d] = n;
  (void)b;
  switch (layout) {
    case Layout::kDense:
    case Layout::kOddOffset: return {h * s * d, s * d, d, 1};
    case Layout::kSeqMajor: return {s * h * d, d, h * d, 1};
    case Layout::kLastStride2: return {2 * h * s * d, 2 * s * d, 2 * d, 2};
    case Layout::kInterleaved: return {2 * h * s * d, 2 * s * d, 2 * d, 1};
    case Layout::kHeadStride0: return {s * d * (may_expand ? 1 : h), may_expand ? 0 : s * d, d, 1};
    case Layout::kBatchStride0: return {may_expand ? 0 : h * s * d, s * d, d, 1};
  }
  return {};
}

Tensor index_tensor(const std::vector<int64_t>& values, bool wide) {
  Tensor t = must(Tensor::empty(wide ? DType::kI64 : DType::kI32, {static_cast<int64_t>(values.size())}));
  for (size_t i = 0; i < values.size(); ++i)
    write_element(t, static_cast<double>(values[i]), static_cast<int64_t>(i));
  return t;
}

std::vector<std::byte> bytes_of(const Tensor& t) {
  return {t.storage().begin(), t.storage().end()};
}

}  // namespace

std::string CaseSpec::name() const {
  static const char* const causals[] = {"", " causal", " lower-right"};
  static const char* const masks[] = {
      "",          " bool[B,H,L,S]", " bool[B,1,1,S]",  " bool[1,1,L,S]", " bool[L,S]", " bias[H,L,S]",
      " bias-f32", " bias-inf",      " bias-transposed"};
  static const char* const layouts[] = {
      "", " seq-major", " odd-offset", " last-stride-2", " interleaved", " head-stride-0", " batch-stride-0"};
  std::string text = fmt::format("{} B{} H{}/{}/{} L{} S{} E{} Ev{}{}{}{}", dtype_name(dtype), B, Hq, Hk, Hv,
                                 L, S, E, Ev, causals[static_cast<int>(causal)],
                                 masks[static_cast<int>(mask)], layouts[static_cast<int>(layout)]);
  if (window.active()) text += fmt::format(" window({},{})", window.left, window.right);
  if (scale) text += fmt::format(" scale {:g}", *scale);
  if (softcap > 0) text += fmt::format(" softcap {:g}", softcap);
  if (dropout > 0) text += fmt::format(" dropout {:g}", dropout);
  if (kv_lengths) text += " kv-lengths";
  if (packed) text += " packed";
  if (paged) text += fmt::format(" pages of {}", page_size);
  if (append) text += fmt::format(" append {}", appended);
  if (poison_masked) text += " poisoned";
  return text + fmt::format(" seed {}", seed);
}

Tensor make_tensor(DType dtype, std::array<int64_t, 4> sizes, Layout layout, bool may_expand) {
  const auto strides = strides_for(sizes, layout, may_expand);
  return must(Tensor::strided(dtype, sizes, strides, layout == Layout::kOddOffset ? 1 : 0));
}

GuardedOutput::GuardedOutput(DType dtype, const std::vector<int64_t>& sizes, Layout layout) {
  std::array<int64_t, 4> n{1, 1, 1, 1};
  std::copy(sizes.begin(), sizes.end(), n.begin());
  if (sizes.size() == 3) n = {sizes[0], sizes[1], sizes[2], 1};
  const auto strides = strides_for(n, layout, false);
  int64_t extent = 1;
  for (size_t d = 0; d < 4; ++d) extent += n[d] > 0 ? (n[d] - 1) * strides[d] : 0;
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  const int64_t first = kGuard + (layout == Layout::kOddOffset ? 1 : 0);
  buffer_ = must(HostBuffer::allocate(static_cast<size_t>((first + extent + kGuard) * size)));
  view_.dtype = dtype;
  view_.rank = static_cast<int>(sizes.size());
  view_.sizes = n;
  view_.strides = strides;
  view_.data = static_cast<std::byte*>(buffer_.data()) + first * size;
  owned_.assign(buffer_.bytes(), 0);
  for (int64_t a = 0; a < n[0]; ++a)
    for (int64_t b = 0; b < n[1]; ++b)
      for (int64_t c = 0; c < n[2]; ++c)
        for (int64_t d = 0; d < n[3]; ++d) {
          const int64_t at = (first + element_offset(view_, a, b, c, d)) * size;
          std::fill_n(owned_.begin() + at, size, uint8_t{1});
        }
  poison();
}

void GuardedOutput::poison() {
  // All bits set: NaN in every float type.
  std::memset(buffer_.data(), 0xff, buffer_.bytes());
}

std::string GuardedOutput::damage() const {
  const auto* bytes = static_cast<const uint8_t*>(buffer_.data());
  for (size_t i = 0; i < owned_.size(); ++i)
    if (owned_[i] == 0 && bytes[i] != 0xff)
      return fmt::format("byte {} of {}, outside the output, was written", i, owned_.size());
  return {};
}

AttentionCase::AttentionCase(const CaseSpec& spec) : spec_(spec) {
  request_.causal = spec.causal;
  request_.window = spec.window;
  request_.scale = spec.scale;
  request_.softcap = spec.softcap;
  request_.dropout = {spec.dropout, 0x1234567890abcdefull + spec.seed, 7};
  request_.wants.lse = spec.lse;
  make_inputs();
  make_lengths();
  make_mask();
  const Layout layout = spec.layout == Layout::kHeadStride0 || spec.layout == Layout::kBatchStride0
                            ? Layout::kDense
                            : spec.layout;
  out_ = GuardedOutput(spec.dtype, {spec.B, spec.Hq, spec.L, spec.Ev}, layout);
  lse_ = GuardedOutput(DType::kF32, {spec.B, spec.Hq, spec.L}, Layout::kDense);
}

void AttentionCase::make_inputs() {
  const CaseSpec& s = spec_;
  q_ = make_tensor(s.dtype, {s.B, s.Hq, s.L, s.E}, s.layout, false);
  fill_normal(q_, s.seed * 10 + 1);
  std::array<int64_t, 4> k_sizes{s.B, s.Hk, s.S, s.E}, v_sizes{s.B, s.Hv, s.S, s.Ev};
  if (s.paged) {
    const int64_t pages = s.B * ((s.S + s.page_size - 1) / s.page_size) + 3;
    k_sizes = {pages, s.Hk, s.page_size, s.E};
    v_sizes = {pages, s.Hv, s.page_size, s.Ev};
  }
  k_ = make_tensor(s.dtype, k_sizes, s.layout, true);
  v_ = make_tensor(s.dtype, v_sizes, s.layout, true);
  fill_normal(k_, s.seed * 10 + 2);
  fill_normal(v_, s.seed * 10 + 3);
  request_.q = q_;
  request_.k = k_;
  request_.v = v_;
}

void AttentionCase::make_lengths() {
  const CaseSpec& s = spec_;
  if (s.packed) {
    // Three sequences, one of them empty on the query side, one on the key side; a tail that none owns.
    const std::vector<int64_t> q{0, s.L / 3, s.L / 3, s.L / 2, s.L - s.L / 8},
        k{0, s.S / 4, s.S / 2, s.S / 2, s.S};
    cu_q_ = index_tensor(q, false);
    cu_k_ = index_tensor(k, true);
    request_.lengths.cu_q = cu_q_;
    request_.lengths.cu_k = cu_k_;
    return;
  }
  if (!s.kv_lengths && !s.paged) return;
  const int64_t added = s.append ? std::min(s.appended, s.S) : 0;
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < s.B; ++b)
    lengths.push_back(b == 1 && added == 0 ? 0 : (s.S - added) - (b * 5) % (s.S - added + 1));
  lengths_ = index_tensor(lengths, s.seed % 2 == 0);
  request_.lengths.kv_lengths = lengths_;
  if (!s.paged) {
    if (s.poison_masked)
      for (int64_t b = 0; b < s.B; ++b)
        for (int64_t j = lengths[static_cast<size_t>(b)]; j < s.S; ++j) {
          for (int64_t h = 0; h < s.Hk; ++h)
            for (int64_t e = 0; e < s.E; ++e) write_element(k_, std::nan(""), b, h, j, e);
          for (int64_t h = 0; h < s.Hv; ++h)
            for (int64_t e = 0; e < s.Ev; ++e)
              write_element(v_, j % 2 == 0 ? std::nan("") : kInf, b, h, j, e);
        }
    return;
  }
  const int64_t max_pages = (s.S + s.page_size - 1) / s.page_size, pages = k_.view().size(0);
  table_ = must(Tensor::empty(DType::kI32, {s.B, max_pages}));
  for (int64_t b = 0; b < s.B; ++b)
    for (int64_t n = 0; n < max_pages; ++n) {
      const bool used = n * s.page_size < lengths[static_cast<size_t>(b)] + added;
      // Pages in scattered order; entries past the length hold garbage that must not be read.
      write_element(table_, used ? static_cast<double>((pages - 1) - (b * max_pages + n)) : -77.0, b, n);
    }
  request_.paging.block_table = table_;
  request_.paging.page_size = s.page_size;
  if (!s.append) return;
  append_k_ = make_tensor(s.dtype, {s.B, s.Hk, added, s.E}, s.layout, false);
  append_v_ = make_tensor(s.dtype, {s.B, s.Hv, added, s.Ev}, s.layout, false);
  fill_normal(append_k_, s.seed * 10 + 5);
  fill_normal(append_v_, s.seed * 10 + 6);
  request_.paging.append_k = append_k_;
  request_.paging.append_v = append_v_;
  k_before_ = bytes_of(k_);
  v_before_ = bytes_of(v_);
}

void AttentionCase::make_mask() {
  const CaseSpec& s = spec_;
  const int64_t keys = request_.kv_len();
  const auto make = [&](DType dtype, std::initializer_list<int64_t> sizes) {
    mask_ = must(Tensor::empty(dtype, sizes));
  };
  request_.mask_kind = MaskKind::kBias;
  switch (s.mask) {
    case MaskSpec::kNone: request_.mask_kind = MaskKind::kNone; return;
    case MaskSpec::kBoolFull: make(DType::kBool, {s.B, s.Hq, s.L, keys}); break;
    case MaskSpec::kBoolKeys: make(DType::kBool, {s.B, 1, 1, keys}); break;
    case MaskSpec::kBoolRows: make(DType::kBool, {1, 1, s.L, keys}); break;
    case MaskSpec::kBool2d: make(DType::kBool, {s.L, keys}); break;
    case MaskSpec::kBiasHeads: make(s.dtype, {1, s.Hq, s.L, keys}); break;
    case MaskSpec::kBiasF32: make(DType::kF32, {s.B, 1, s.L, keys}); break;
    case MaskSpec::kBiasNegInf: make(DType::kF32, {s.L, keys}); break;
    case MaskSpec::kBiasTransposed: {
      const int64_t sizes[] = {1, 1, s.L, keys}, strides[] = {s.L * keys, s.L * keys, 1, s.L};
      mask_ = must(Tensor::strided(DType::kF32, sizes, strides));
      break;
    }
  }
  if (mask_.dtype() == DType::kBool) {
    request_.mask_kind = MaskKind::kBool;
    fill_bernoulli(mask_, s.seed * 10 + 4, 0.7);
    if (s.mask == MaskSpec::kBoolRows && s.L > 1)
      for (int64_t j = 0; j < keys; ++j) write_element(mask_, 0, 0, 0, s.L / 2, j);
  } else {
    fill_normal(mask_, s.seed * 10 + 4);
    if (s.mask == MaskSpec::kBiasNegInf)
      for (int64_t i = 0; i < s.L; ++i)
        for (int64_t j = 0; j < keys; ++j)
          if (i == s.L / 2 || (i * 7 + j * 3) % 5 == 0) write_element(mask_, -kInf, i, j);
  }
  request_.mask = mask_;
}

const Outputs& AttentionCase::outputs() {
  outputs_.out = out_.view();
  outputs_.lse = spec_.lse ? lse_.view() : TensorView{};
  return outputs_;
}

const ReferenceResult& AttentionCase::reference() {
  if (!reference_) reference_ = reference_attention(request_);
  return *reference_;
}

void AttentionCase::restore_cache() {
  if (k_before_.empty()) return;
  std::copy(k_before_.begin(), k_before_.end(), k_.storage().begin());
  std::copy(v_before_.begin(), v_before_.end(), v_.storage().begin());
}

std::string compare(const TensorView& out, const std::vector<double>& expected, double tolerance,
                    const std::vector<double>* lse_for_empty_rows) {
  const int64_t width = out.rank == 4 ? out.size(3) : 1;
  const int64_t rows = width > 0 ? out.numel() / width : 0;
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t c = n % out.size(2), b = n / out.size(2) % out.size(1), a = n / out.size(2) / out.size(1);
    for (int64_t e = 0; e < width; ++e) {
      const double got = read_element(out, a, b, c, e), want = expected[static_cast<size_t>(n * width + e)];
      const bool nan_allowed = lse_for_empty_rows != nullptr &&
                               (*lse_for_empty_rows)[static_cast<size_t>(n)] == -kInf && std::isnan(got);
      if (nan_allowed) continue;
      bool equal = std::isnan(want)   ? std::isnan(got)
                   : std::isinf(want) ? got == want
                                      : std::fabs(got - want) <= tolerance;
      if (!equal)
        return fmt::format("[{},{},{},{}] is {:.9g}, expected {:.9g} (difference {:.3g}, tolerance {:.3g})",
                           a, b, c, e, got, want, std::fabs(got - want), tolerance);
    }
  }
  return {};
}

}  // namespace attnscope::testing
