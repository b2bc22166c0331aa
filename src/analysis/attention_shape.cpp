#include "analysis/attention_shape.h"

#include "base/total.h"

#include <fmt/format.h>

#include <array>

namespace attnscope {
namespace {

// Where an operator's arguments stand. −1: it has no such argument.
struct Signature {
  std::string_view op;  // without namespace
  int query;            // key and value follow
  int mask;
  int causal;
  bool heads_first;  // [B, H, L, D]; otherwise [B, L, H, D]
};
constexpr std::array<Signature, 19> kSignatures{{
    {"scaled_dot_product_attention", 0, 3, 5, true},
    {"_scaled_dot_product_attention_math", 0, 3, 5, true},
    {"_scaled_dot_product_flash_attention", 0, -1, 4, true},
    {"_scaled_dot_product_flash_attention_for_cpu", 0, 5, 4, true},
    {"_scaled_dot_product_efficient_attention", 0, 3, 6, true},
    {"_scaled_dot_product_cudnn_attention", 0, 3, 6, true},
    {"_scaled_dot_product_fused_attention_overrideable", 0, 3, 5, true},
    {"_scaled_dot_product_flash_attention_backward", 1, -1, 11, true},
    {"_scaled_dot_product_flash_attention_for_cpu_backward", 1, 8, 7, true},
    {"_scaled_dot_product_efficient_attention_backward", 1, 4, 11, true},
    {"_scaled_dot_product_cudnn_attention_backward", 1, 8, 14, true},
    {"_flash_attention_forward", 0, -1, 8, false},
    {"_flash_attention_backward", 1, -1, 11, false},
    {"_efficient_attention_forward", 0, 3, -1, false},
    {"_cudnn_attention_forward", 0, 3, 10, true},
    {"_cudnn_attention_backward", 1, 8, 14, true},
    {"_flash_attn_forward", 0, -1, 5, false},
    {"flash_attn_func", 0, -1, -1, false},
    {"sdpa", 0, -1, -1, true},
}};

std::string_view bare_name(std::string_view op) {
  const size_t colon = op.rfind("::");
  return colon == std::string_view::npos ? op : op.substr(colon + 2);
}

const Signature* signature_of(std::string_view op) {
  const std::string_view bare = bare_name(op);
  for (const Signature& signature : kSignatures)
    if (signature.op == bare) return &signature;
  static constexpr Signature kFlex{"flex_attention", 0, -1, -1, true};
  return bare.find("flex_attention") != std::string_view::npos ? &kFlex : nullptr;
}

const OpInput* argument(const std::vector<OpInput>& inputs, int index) {
  return index >= 0 && static_cast<size_t>(index) < inputs.size() ? &inputs[static_cast<size_t>(index)]
                                                                  : nullptr;
}

AttentionShape shape_of(const OpInput& q, const OpInput& k, const OpInput& v, bool heads_first) {
  AttentionShape shape;
  const size_t rank = q.dims.size();
  if (rank != k.dims.size() || rank != v.dims.size() || rank < 3 || rank > 4) return shape;
  if (rank == 3 && !heads_first) return shape;  // packed sequences: the lengths are in another argument
  const size_t head = heads_first ? 1 : 2, row = heads_first ? 2 : 1;
  shape.batch = q.dims[0];
  if (rank == 3) {
    shape.heads = shape.kv_heads = 1;
    shape.length = q.dims[1];
    shape.kv_length = k.dims[1];
  } else {
    shape.heads = q.dims[head];
    shape.kv_heads = k.dims[head];
    shape.length = q.dims[row];
    shape.kv_length = k.dims[row];
  }
  shape.head_dim = q.dims.back();
  shape.value_dim = v.dims.back();
  return shape;
}

MaskUse mask_of(const Signature& signature, const std::vector<OpInput>& inputs, std::string_view op) {
  if (bare_name(op).find("flex_attention") != std::string_view::npos) return MaskUse::kBlock;
  const OpInput* mask = argument(inputs, signature.mask);
  if (mask && !mask->dims.empty()) return MaskUse::kTensor;
  const OpInput* causal = argument(inputs, signature.causal);
  if (!causal || causal->concrete.empty()) return MaskUse::kUnknown;
  if (causal->concrete == "True" || causal->concrete == "1") return MaskUse::kCausal;
  // A 0-dimensional mask records empty dims too, so "none" needs the argument's type to be empty.
  return mask && !mask->type.empty() ? MaskUse::kUnknown : MaskUse::kNone;
}

double type_bytes(NumericType type) {
  switch (type) {
    case NumericType::kF64: return 8;
    case NumericType::kF32:
    case NumericType::kTF32: return 4;
    case NumericType::kF16:
    case NumericType::kBF16: return 2;
    case NumericType::kF8:
    case NumericType::kI8: return 1;
    default: return 0;
  }
}

}  // namespace

std::string AttentionShape::text() const {
  if (!known()) return "";
  std::string text = fmt::format("{}×{}×{}×{}", batch, heads, length, head_dim);
  if (kv_heads != heads || kv_length != length) text += fmt::format(", kv {}×{}", kv_heads, kv_length);
  if (value_dim != head_dim) text += fmt::format(", v {}", value_dim);
  return text;
}

void read_attention_inputs(std::string_view op, const std::vector<OpInput>& inputs, AttentionCall& call) {
  const Signature* signature = signature_of(op);
  if (!signature) {
    if (!inputs.empty()) call.dtype = numeric_from_text(inputs[0].type);
    return;
  }
  const OpInput* q = argument(inputs, signature->query);
  const OpInput* k = argument(inputs, signature->query + 1);
  const OpInput* v = argument(inputs, signature->query + 2);
  if (!q || !k || !v) return;
  call.dtype = numeric_from_text(q->type);
  call.shape = shape_of(*q, *k, *v, signature->heads_first);
  call.mask = mask_of(*signature, inputs, op);
  if (const OpInput* mask = argument(inputs, signature->mask); mask && call.mask == MaskUse::kTensor)
    call.mask_bytes = static_cast<double>(product(mask->dims)) *
                      (mask->type == "bool" ? 1 : type_bytes(numeric_from_text(mask->type)));
}

void estimate_attention_work(AttentionCall& call) {
  const AttentionShape& s = call.shape;
  if (!s.known()) return;
  const auto real = [](int64_t value) { return static_cast<double>(value); };
  const bool backward = call.pass == AttentionPass::kBackward;
  if (call.mask == MaskUse::kNone || call.mask == MaskUse::kTensor || call.mask == MaskUse::kCausal) {
    double pairs = real(s.length) * real(s.kv_length);
    // Top-left aligned: row i sees min(i + 1, S) keys. The square case is half by convention.
    if (call.mask == MaskUse::kCausal) {
      const double rows = std::min(real(s.length), real(s.kv_length));
      pairs = s.length == s.kv_length ? pairs / 2
                                      : rows * (rows + 1) / 2 + (real(s.length) - rows) * real(s.kv_length);
    }
    const double forward = 2 * real(s.batch) * real(s.heads) * pairs * (real(s.head_dim) + real(s.value_dim));
    call.flops = backward ? 2.5 * forward : forward;  // five GEMMs where forward has two
  }
  const double size = type_bytes(call.dtype);
  if (size == 0) return;
  const double q = real(s.batch) * real(s.heads) * real(s.length) * real(s.head_dim);
  const double k = real(s.batch) * real(s.kv_heads) * real(s.kv_length) * real(s.head_dim);
  const double v = real(s.batch) * real(s.kv_heads) * real(s.kv_length) * real(s.value_dim);
  const double out = real(s.batch) * real(s.heads) * real(s.length) * real(s.value_dim);
  // Backward reads q, k, v, out and the gradient of out, and writes the gradients of q, k and v.
  call.bytes = (backward ? 2 * (q + k + v) + 2 * out : q + k + v + out) * size + call.mask_bytes;
}

HandWrittenPart hand_written_part(std::string_view op) {
  const std::string_view bare = bare_name(op);
  if (bare == "bmm" || bare == "baddbmm") return HandWrittenPart::kMatmul;
  if (bare == "_softmax" || (bare.starts_with("triton_") && bare.find("softmax") != std::string_view::npos))
    return HandWrittenPart::kSoftmax;
  if (bare == "masked_fill" || bare == "masked_fill_" || bare == "where" || bare == "add" || bare == "add_")
    return HandWrittenPart::kMask;
  return HandWrittenPart::kOther;
}

std::optional<AttentionCall> HandWrittenFinder::add(HandWrittenPart part, trace::EventIndex event,
                                                    std::string_view op, const std::vector<OpInput>& inputs) {
  switch (part) {
    case HandWrittenPart::kOther: break;
    case HandWrittenPart::kMask: {
      const OpInput* mask = argument(inputs, 1);
      if (scores_ && !scores_->normalised && mask && !mask->dims.empty() &&
          mask->dims.back() == scores_->kv_length)
        scores_->masked = true;
      break;
    }
    case HandWrittenPart::kSoftmax: {
      if (!scores_) break;
      bool chains = false;
      for (const OpInput& input : inputs) {
        if (input.dims.empty() || input.dims.back() != scores_->kv_length ||
            product(input.dims) != product({scores_->n, scores_->length, scores_->kv_length}))
          continue;
        chains = true;
        if (input.dims.size() == 4) {
          scores_->batch = input.dims[0];
          scores_->heads = input.dims[1];
        }
        break;
      }
      scores_->normalised = chains;
      if (op.find("masked_fill") != std::string_view::npos || op.find("where") != std::string_view::npos)
        scores_->masked = true;  // a compiled kernel names what it fuses
      if (!chains) scores_.reset();
      break;
    }
    case HandWrittenPart::kMatmul: {
      const bool has_bias = bare_name(op) == "baddbmm";
      const OpInput* a = argument(inputs, has_bias ? 1 : 0);
      const OpInput* b = argument(inputs, has_bias ? 2 : 1);
      if (!a || !b || a->dims.size() != 3 || b->dims.size() != 3) {
        scores_.reset();
        break;
      }
      std::optional<AttentionCall> call;
      if (scores_ && scores_->normalised && a->dims[0] == scores_->n && a->dims[1] == scores_->length &&
          a->dims[2] == scores_->kv_length) {
        call.emplace();
        call->event = scores_->event;
        call->op = "matmul, softmax, matmul";
        call->hand_written = true;
        call->pass = AttentionPass::kForward;
        call->implementation = AttentionImpl::kAtenMath;
        call->dtype = scores_->dtype;
        call->mask = scores_->masked ? MaskUse::kTensor : MaskUse::kNone;
        const bool split = scores_->batch > 0 && product({scores_->batch, scores_->heads}) == scores_->n;
        call->shape = {split ? scores_->batch : scores_->n,
                       split ? scores_->heads : 1,
                       split ? scores_->heads : 1,
                       scores_->length,
                       scores_->kv_length,
                       scores_->head_dim,
                       b->dims[2]};
      }
      scores_.reset();
      if (!call) {
        scores_.emplace(Scores{});
        scores_->event = event;
        scores_->n = a->dims[0];
        scores_->length = a->dims[1];
        scores_->head_dim = a->dims[2];
        scores_->kv_length = b->dims[2];
        scores_->dtype = numeric_from_text(a->type);
      }
      return call;
    }
  }
  return std::nullopt;
}

}  // namespace attnscope
