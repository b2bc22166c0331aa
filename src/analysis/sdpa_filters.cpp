#include "analysis/sdpa_filters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

namespace attnscope {
namespace {

using Reasons = std::vector<std::string>;

int64_t dim(const OpInput& input, size_t from_last) {
  return input.dims.size() > from_last ? input.dims[input.dims.size() - 1 - from_last] : -1;
}

double number(const std::string& text) {
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Conditions that every fused backend shares.
void shared_refusals(const SdpaRequest& r, bool gqa_ok, Reasons& out) {
  for (const OpInput* t : {&r.query, &r.key, &r.value})
    if (t->dims.size() != 4) {
      out.push_back(fmt::format("an input has {} dimensions; fused backends take 4", t->dims.size()));
      return;
    }
  if (r.query.type != r.key.type || r.query.type != r.value.type)
    out.push_back(
        fmt::format("q, k and v differ in dtype ({}, {}, {})", r.query.type, r.key.type, r.value.type));
  if (r.query.dims[0] != r.key.dims[0] || r.query.dims[0] != r.value.dims[0])
    out.push_back(fmt::format("batch sizes differ ({}, {}, {}); expand first", r.query.dims[0], r.key.dims[0],
                              r.value.dims[0]));
  const int64_t hq = r.query.dims[1], hk = r.key.dims[1], hv = r.value.dims[1];
  if (!r.enable_gqa && (hq != hk || hq != hv))
    out.push_back(fmt::format("head counts differ ({}, {}, {}) without enable_gqa", hq, hk, hv));
  if (r.enable_gqa && !gqa_ok && hq != hk)
    out.push_back(fmt::format("{} query heads on {} key heads: this backend takes no grouped heads", hq, hk));
  if (r.enable_gqa && gqa_ok && (hk <= 0 || hq % hk != 0))
    out.push_back(fmt::format("{} query heads do not divide by {} key heads", hq, hk));
  if (dim(r.query, 1) == 0 || dim(r.key, 1) == 0) out.push_back("a sequence length is 0");
}

void last_stride_refusals(const SdpaRequest& r, bool mask_too, Reasons& out) {
  if (!r.has_strides) return;
  const auto check = [&](const OpInput& t, std::string_view name) {
    if (t.strides.empty() || dim(t, 0) == 1) return;
    if (t.strides.back() != 1)
      out.push_back(fmt::format("the last stride of {} is {}, not 1", name, t.strides.back()));
  };
  check(r.query, "q");
  check(r.key, "k");
  check(r.value, "v");
  if (mask_too && r.has_mask()) check(r.mask, "the mask");
}

void device_refusals(const SdpaRequest& r, int lowest, Reasons& out) {
  if (r.capability != 0 && (r.capability < lowest || r.capability > 121))
    out.push_back(fmt::format("sm_{} is outside sm_{} … sm_121", r.capability, lowest));
}

}  // namespace

std::optional<SdpaRequest> read_sdpa_request(std::string_view op, const std::vector<OpInput>& inputs) {
  const bool math = op == "aten::_scaled_dot_product_attention_math";
  if (op != "aten::scaled_dot_product_attention" && !math) return std::nullopt;
  if (inputs.size() < 6 || inputs[0].dims.empty()) return std::nullopt;
  SdpaRequest r;
  r.query = inputs[0];
  r.key = inputs[1];
  r.value = inputs[2];
  r.mask = inputs[3];
  r.dtype = numeric_from_text(r.query.type);
  r.dropout = number(inputs[4].concrete);
  r.causal = inputs[5].concrete == "True";
  const size_t gqa = math ? 8 : 7;  // (…, dropout_mask, scale, gqa) or (…, scale, gqa)
  r.enable_gqa = inputs.size() > gqa && inputs[gqa].concrete == "True";
  r.has_strides = !r.query.strides.empty();
  return r;
}

std::vector<std::string> flash_refusals(const SdpaRequest& r) {
  Reasons out;
  shared_refusals(r, true, out);
  if (r.query.dims.size() != 4) return out;
  device_refusals(r, 80, out);
  if (!is_16_bit(r.dtype))
    out.push_back(fmt::format("dtype {}; flash takes f16 and bf16", numeric_name(r.dtype)));
  if (r.has_mask()) out.push_back("a mask was given; flash takes none (only is_causal)");
  const int64_t e = dim(r.query, 0), ek = dim(r.key, 0), ev = dim(r.value, 0);
  const int64_t most = r.amd ? 512 : 256;
  if (e != ek || e != ev) out.push_back(fmt::format("head_dim of q, k, v differ ({}, {}, {})", e, ek, ev));
  if (e > most) out.push_back(fmt::format("head_dim {} is above {}", e, most));
  const bool small_chip = (r.capability >= 86 && r.capability <= 89) || r.capability >= 120;
  if (r.training && small_chip && e > 192 && (e <= 224 || r.dropout > 0))
    out.push_back(fmt::format("training with head_dim {} on sm_{}", e, r.capability));
  const int64_t l = dim(r.query, 1), s = dim(r.key, 1);
  if (r.causal && l != s) out.push_back(fmt::format("causal with {} queries on {} keys", l, s));
  last_stride_refusals(r, false, out);
  return out;
}

std::vector<std::string> efficient_refusals(const SdpaRequest& r) {
  Reasons out;
  shared_refusals(r, false, out);
  if (r.query.dims.size() != 4) return out;
  device_refusals(r, 50, out);
  const bool known = is_16_bit(r.dtype) || r.dtype == NumericType::kF32;
  if (!known)
    out.push_back(fmt::format("dtype {}; efficient takes f32, f16 and bf16", numeric_name(r.dtype)));
  if (r.dtype == NumericType::kBF16 && r.capability != 0 && r.capability < 80)
    out.push_back(fmt::format("bf16 needs sm_80; this is sm_{}", r.capability));
  const int64_t e = dim(r.query, 0), ek = dim(r.key, 0), ev = dim(r.value, 0);
  if (e != ek) out.push_back(fmt::format("head_dim of q and k differ ({}, {})", e, ek));
  const int64_t align = r.capability == 0 || r.capability >= 80              ? (is_16_bit(r.dtype) ? 8 : 4)
                        : r.capability >= 70 && r.dtype == NumericType::kF16 ? 8
                                                                             : 1;
  for (const auto& [value, name] : {std::pair(e, "q"), std::pair(ev, "v")})
    if (value <= 0 || value % align != 0)
      out.push_back(fmt::format("head_dim {} of {} is not a multiple of {}", value, name, align));
  last_stride_refusals(r, true, out);
  return out;
}

std::vector<std::string> cudnn_refusals(const SdpaRequest& r) {
  Reasons out;
  if (r.amd) {
    out.push_back("cuDNN needs an NVIDIA GPU");
    return out;
  }
  shared_refusals(r, true, out);
  if (r.query.dims.size() != 4) return out;
  device_refusals(r, 80, out);
  if (!is_16_bit(r.dtype))
    out.push_back(fmt::format("dtype {}; cuDNN takes f16 and bf16", numeric_name(r.dtype)));
  if (r.query.dims[0] > 65535 || r.query.dims[1] > 65535)
    out.push_back(fmt::format("batch {} or heads {} above 65535", r.query.dims[0], r.query.dims[1]));
  const double p16 = 16 * r.dropout;
  if (std::abs(p16 - std::round(p16)) > 1e-9)
    out.push_back(fmt::format("dropout {:.3g} is not a multiple of 1/16", r.dropout));
  const int64_t e = dim(r.query, 0), ev = dim(r.value, 0), l = dim(r.query, 1), s = dim(r.key, 1);
  const bool wide_pair = e == 192 && ev == 128 && (r.capability == 90 || r.capability / 10 == 10);
  if ((e > 128 || ev > 128) && !wide_pair)
    out.push_back(fmt::format("head_dim {}, {} above 128 (newer cuDNN takes up to 256)", e, ev));
  if (e % 8 != 0 || ev % 8 != 0) out.push_back(fmt::format("head_dim {}, {} not a multiple of 8", e, ev));
  if (s == 1) out.push_back("a single key");
  if (l == 1 && r.dropout > 0) out.push_back("a single query with dropout");
  if (r.has_mask()) {
    const bool two = r.mask.dims.size() == 2, four = r.mask.dims.size() == 4;
    if (!two && !four)
      out.push_back(fmt::format("a mask of {} dimensions; cuDNN takes 2 or 4", r.mask.dims.size()));
    else if ((dim(r.mask, 1) != l && dim(r.mask, 1) != 1) || (dim(r.mask, 0) != s && dim(r.mask, 0) != 1))
      out.push_back(
          fmt::format("a mask of shape [{}] on {} queries and {} keys", fmt::join(r.mask.dims, ", "), l, s));
  }
  last_stride_refusals(r, true, out);
  return out;
}

}  // namespace attnscope
