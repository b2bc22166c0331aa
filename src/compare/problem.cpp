#include "compare/problem.h"

#include "base/text.h"
#include "tensor/fill.h"

#include <fmt/format.h>

#include <cstring>

namespace attnscope::compare {
namespace {

constexpr double kKeptByMask = 0.9;

std::array<int64_t, 4> strides_of(const std::array<int64_t, 4>& sizes, Layout layout) {
  const auto [b, h, s, d] = sizes;
  (void)b;
  if (layout == Layout::kBhsd) return {h * s * d, s * d, d, 1};
  return {s * h * d, d, h * d, 1};
}

TensorView view_of(DType dtype, const std::array<int64_t, 4>& sizes, Layout layout) {
  TensorView v;
  v.dtype = dtype;
  v.sizes = sizes;
  v.strides = strides_of(sizes, layout);
  return v;
}

std::array<int64_t, 4> q_sizes(const Problem& p) {
  return {p.batch, p.heads, p.q_len, p.head_dim};
}
std::array<int64_t, 4> k_sizes(const Problem& p) {
  return {p.batch, p.kv_heads, p.kv_len, p.head_dim};
}
std::array<int64_t, 4> v_sizes(const Problem& p) {
  return {p.batch, p.kv_heads, p.kv_len, p.value_dim};
}
std::array<int64_t, 4> out_sizes(const Problem& p) {
  return {p.batch, p.heads, p.q_len, p.value_dim};
}

DType mask_dtype(const Problem& p) {
  return p.mask_kind == MaskKind::kBool ? DType::kBool : p.dtype;
}

double bytes_of(const std::array<int64_t, 4>& sizes, DType dtype) {
  double n = static_cast<double>(dtype_size(dtype));
  for (const int64_t size : sizes) n *= static_cast<double>(size);
  return n;
}

// Everything of the request but the tensors.
Request options_of(const Problem& p) {
  Request r;
  r.causal = p.causal;
  r.window = p.window;
  r.mask_kind = p.mask_kind;
  r.scale = p.scale;
  r.softcap = p.softcap;
  r.dropout.p = p.dropout;
  r.dropout.seed = p.seed;
  r.wants.lse = p.train;
  r.wants.gradients = p.train;
  r.limits.threads = p.threads;
  r.limits.memory_bytes = p.memory_limit;
  return r;
}

Result<Tensor> make_filled(DType dtype, const std::array<int64_t, 4>& sizes, Layout layout, uint64_t seed) {
  ATTNSCOPE_ASSIGN(Tensor tensor, Tensor::strided(dtype, sizes, strides_of(sizes, layout)));
  fill_normal(tensor.view(), seed);
  return tensor;
}

Status fill_mask(const Problem& p, HostTensors& t) {
  ATTNSCOPE_ASSIGN(t.mask, Tensor::empty(mask_dtype(p), p.mask_sizes));
  if (p.mask_kind == MaskKind::kBias) {
    fill_normal(t.mask.view(), p.seed + 3);
    return {};
  }
  fill_bernoulli(t.mask.view(), p.seed + 3, kKeptByMask);
  TensorView first_key = t.mask.view();
  first_key.sizes[3] = 1;
  fill_constant(first_key, 1);
  return {};
}

std::string causal_text(CausalMode mode) {
  switch (mode) {
    case CausalMode::kTopLeft: return "causal attention";
    case CausalMode::kLowerRight: return "causal (lower-right) attention";
    case CausalMode::kNone: break;
  }
  return "attention";
}

}  // namespace

Problem default_problem(DeviceType device) {
  Problem p;
  if (device == DeviceType::kCpu) return p;
  p.batch = 8;
  p.heads = p.kv_heads = 16;
  p.dtype = DType::kBF16;
  return p;
}

std::string describe(const Problem& p) {
  std::string text = fmt::format("{}, batch {}, heads {}", causal_text(p.causal), p.batch, p.heads);
  if (p.kv_heads != p.heads) text += fmt::format(" over {} kv heads", p.kv_heads);
  text += p.q_len == p.kv_len ? fmt::format(", length {}", p.q_len)
                              : fmt::format(", {} queries, {} keys", p.q_len, p.kv_len);
  text += fmt::format(", head_dim {}", p.head_dim);
  if (p.value_dim != p.head_dim) text += fmt::format(" (values {})", p.value_dim);
  text += fmt::format(", {}", dtype_name(p.dtype));
  if (p.window.active()) text += fmt::format(", window {},{}", p.window.left, p.window.right);
  if (p.mask_kind != MaskKind::kNone)
    text += fmt::format(", {} [{}]", p.mask_kind == MaskKind::kBool ? "bool mask" : "bias",
                        fmt::join(p.mask_sizes, ","));
  if (p.scale) text += fmt::format(", scale {}", *p.scale);
  if (p.softcap > 0) text += fmt::format(", softcap {}", p.softcap);
  if (p.dropout > 0) text += fmt::format(", dropout {}", p.dropout);
  if (!p.lengths.empty()) text += fmt::format(", kv lengths {}", fmt::join(p.lengths, ","));
  if (p.layout == Layout::kBshd) text += ", layout bshd";
  if (p.train) text += ", for training";
  return text;
}

std::string as_options(const Problem& p) {
  const bool plain = p.kv_heads == p.heads && p.q_len == p.kv_len && p.head_dim == p.value_dim;
  std::string text = plain ? fmt::format("--shape {},{},{},{}", p.batch, p.heads, p.q_len, p.head_dim)
                           : fmt::format("--shape {},{},{},{},{},{},{}", p.batch, p.heads, p.kv_heads,
                                         p.q_len, p.kv_len, p.head_dim, p.value_dim);
  text += fmt::format(" --dtype {}", dtype_name(p.dtype));
  if (p.causal == CausalMode::kTopLeft) text += " --causal";
  if (p.causal == CausalMode::kLowerRight) text += " --causal=lower-right";
  if (p.causal == CausalMode::kNone) text += " --causal=none";
  if (p.window.active()) text += fmt::format(" --window {},{}", p.window.left, p.window.right);
  if (p.mask_kind != MaskKind::kNone)
    text += fmt::format(" --mask {}:{}", p.mask_kind == MaskKind::kBool ? "bool" : "bias",
                        fmt::join(p.mask_sizes, ","));
  if (p.scale) text += fmt::format(" --scale {}", *p.scale);
  if (p.softcap > 0) text += fmt::format(" --softcap {}", p.softcap);
  if (p.dropout > 0) text += fmt::format(" --dropout {}", p.dropout);
  if (!p.lengths.empty()) text += fmt::format(" --lengths {}", fmt::join(p.lengths, ","));
  if (p.layout == Layout::kBshd) text += " --layout bshd";
  if (p.train) text += " --train";
  return text;
}

int formula_kernels(const Problem& p) {
  const bool masked = p.causal != CausalMode::kNone || p.window.active() || p.mask_kind != MaskKind::kNone ||
                      !p.lengths.empty();
  return 4 + (masked ? 1 : 0) + (p.softcap > 0 ? 1 : 0) + (p.dropout > 0 ? 1 : 0);
}

double mask_bytes(const Problem& p) {
  return p.mask_kind == MaskKind::kNone ? 0.0 : bytes_of(p.mask_sizes, mask_dtype(p));
}

double tensor_bytes(const Problem& p) {
  return bytes_of(q_sizes(p), p.dtype) + bytes_of(k_sizes(p), p.dtype) + bytes_of(v_sizes(p), p.dtype) +
         bytes_of(out_sizes(p), p.dtype) + mask_bytes(p);
}

Result<Request> request_shape(const Problem& p) {
  Request r = options_of(p);
  r.q = view_of(p.dtype, q_sizes(p), p.layout);
  r.k = view_of(p.dtype, k_sizes(p), p.layout);
  r.v = view_of(p.dtype, v_sizes(p), p.layout);
  r.mask = TensorView::contiguous(nullptr, mask_dtype(p), p.mask_sizes);
  ATTNSCOPE_TRY(validate(r));
  if (p.lengths.empty()) return r;
  if (static_cast<int64_t>(p.lengths.size()) != p.batch)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--lengths needs one kv length for each of the {} batch entries; got {}", p.batch,
                            p.lengths.size()),
                "or one number for all");
  for (const int64_t length : p.lengths)
    if (length < 0 || length > p.kv_len)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--lengths: {} is outside 0 … {}, the keys there are", length, p.kv_len));
  return r;
}

Result<HostTensors> make_tensors(const Problem& p) {
  HostTensors t;
  t.request = options_of(p);
  ATTNSCOPE_ASSIGN(t.q, make_filled(p.dtype, q_sizes(p), p.layout, p.seed));
  ATTNSCOPE_ASSIGN(t.k, make_filled(p.dtype, k_sizes(p), p.layout, p.seed + 1));
  ATTNSCOPE_ASSIGN(t.v, make_filled(p.dtype, v_sizes(p), p.layout, p.seed + 2));
  t.request.q = t.q;
  t.request.k = t.k;
  t.request.v = t.v;
  if (p.mask_kind != MaskKind::kNone) {
    ATTNSCOPE_TRY(fill_mask(p, t));
    t.request.mask = t.mask;
  }
  if (!p.lengths.empty()) {
    ATTNSCOPE_ASSIGN(t.lengths, Tensor::empty(DType::kI64, {p.batch}));
    std::memcpy(t.lengths.data(), p.lengths.data(), p.lengths.size() * sizeof(int64_t));
    t.request.lengths.kv_lengths = t.lengths;
  }
  ATTNSCOPE_TRY(validate(t.request));
  return t;
}

Result<Tensor> make_output(const Problem& p) {
  ATTNSCOPE_ASSIGN(Tensor out, Tensor::strided(p.dtype, out_sizes(p), strides_of(out_sizes(p), p.layout)));
  std::memset(out.storage().data(), 0xFF, out.storage().size());  // all ones is a NaN in every float type
  return out;
}

}  // namespace attnscope::compare
