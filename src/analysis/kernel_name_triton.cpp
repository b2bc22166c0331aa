// Inductor's kernels: triton_<shape>_fused_<operators>_<number>, where the shape is poi (pointwise), per and
// red (reductions), tem (a template: mm, conv, flex_attention) or for (foreach).

#include "analysis/kernel_name_parts.h"

#include <array>

namespace attnscope::kernel_name_parts {
namespace {

struct Fused {
  std::string_view word;
  KernelKind kind;
};
// Operator names as Inductor writes them. They hold underscores themselves, so the longest known name at a
// place wins; words in between that we do not know stay as they are.
constexpr std::array kFused = {
    Fused{"_to_copy", KernelKind::kCast},
    Fused{"_safe_softmax", KernelKind::kSoftmax},
    Fused{"_log_softmax", KernelKind::kSoftmax},
    Fused{"_softmax_backward_data", KernelKind::kSoftmax},
    Fused{"prepare_softmax_online", KernelKind::kSoftmax},
    Fused{"_softmax", KernelKind::kSoftmax},
    Fused{"_unsafe_view", KernelKind::kUnknown},
    Fused{"_unsafe_index", KernelKind::kGather},
    Fused{"_native_batch_norm_legit", KernelKind::kNorm},
    Fused{"_scaled_dot_product_flash_attention", KernelKind::kAttention},
    Fused{"_scaled_dot_product_efficient_attention", KernelKind::kAttention},
    Fused{"_scaled_dot_product_cudnn_attention", KernelKind::kAttention},
    Fused{"scaled_dot_product_attention", KernelKind::kAttention},
    Fused{"flex_attention_backward", KernelKind::kAttention},
    Fused{"flex_attention", KernelKind::kAttention},
    Fused{"native_layer_norm_backward", KernelKind::kNorm},
    Fused{"native_layer_norm", KernelKind::kNorm},
    Fused{"native_group_norm", KernelKind::kNorm},
    Fused{"native_dropout", KernelKind::kRandom},
    Fused{"threshold_backward", KernelKind::kElementwise},
    Fused{"nll_loss_forward", KernelKind::kLoss},
    Fused{"nll_loss_backward", KernelKind::kLoss},
    Fused{"constant_pad_nd", KernelKind::kCopy},
    Fused{"masked_fill", KernelKind::kMask},
    Fused{"bitwise_and", KernelKind::kElementwise},
    Fused{"bitwise_or", KernelKind::kElementwise},
    Fused{"bitwise_not", KernelKind::kElementwise},
    Fused{"logical_and", KernelKind::kElementwise},
    Fused{"logical_not", KernelKind::kElementwise},
    Fused{"index_put", KernelKind::kGather},
    Fused{"index_select", KernelKind::kGather},
    Fused{"slice_scatter", KernelKind::kGather},
    Fused{"split_with_sizes", KernelKind::kUnknown},
    Fused{"moe_forward", KernelKind::kMoe},
    Fused{"layer_norm", KernelKind::kNorm},
    Fused{"rms_norm", KernelKind::kNorm},
    Fused{"scalar_tensor", KernelKind::kFill},
    Fused{"new_zeros", KernelKind::kFill},
    Fused{"zeros_like", KernelKind::kFill},
    Fused{"full_like", KernelKind::kFill},
    Fused{"embedding", KernelKind::kEmbedding},
    Fused{"convolution", KernelKind::kConv},
    Fused{"addmm", KernelKind::kGemm},
    Fused{"baddbmm", KernelKind::kGemm},
    Fused{"bmm", KernelKind::kGemm},
    Fused{"mm", KernelKind::kGemm},
    Fused{"where", KernelKind::kMask},
    Fused{"tril", KernelKind::kMask},
    Fused{"triu", KernelKind::kMask},
    Fused{"arange", KernelKind::kFill},
    Fused{"zeros", KernelKind::kFill},
    Fused{"ones", KernelKind::kFill},
    Fused{"full", KernelKind::kFill},
    Fused{"clone", KernelKind::kCopy},
    Fused{"copy", KernelKind::kCopy},
    Fused{"cat", KernelKind::kCopy},
    Fused{"stack", KernelKind::kCopy},
    Fused{"index", KernelKind::kGather},
    Fused{"gather", KernelKind::kGather},
    Fused{"gelu", KernelKind::kElementwise},
    Fused{"silu", KernelKind::kElementwise},
    Fused{"relu", KernelKind::kElementwise},
    Fused{"sigmoid", KernelKind::kElementwise},
    Fused{"rsqrt", KernelKind::kElementwise},
    Fused{"exp", KernelKind::kElementwise},
    Fused{"log", KernelKind::kElementwise},
    Fused{"add", KernelKind::kElementwise},
    Fused{"sub", KernelKind::kElementwise},
    Fused{"mul", KernelKind::kElementwise},
    Fused{"div", KernelKind::kElementwise},
    Fused{"neg", KernelKind::kElementwise},
    Fused{"pow", KernelKind::kElementwise},
    Fused{"sin", KernelKind::kElementwise},
    Fused{"cos", KernelKind::kElementwise},
    Fused{"tanh", KernelKind::kElementwise},
    Fused{"clamp", KernelKind::kElementwise},
    Fused{"ge", KernelKind::kElementwise},
    Fused{"gt", KernelKind::kElementwise},
    Fused{"le", KernelKind::kElementwise},
    Fused{"lt", KernelKind::kElementwise},
    Fused{"eq", KernelKind::kElementwise},
    Fused{"ne", KernelKind::kElementwise},
    Fused{"mean", KernelKind::kReduction},
    Fused{"sum", KernelKind::kReduction},
    Fused{"amax", KernelKind::kReduction},
    Fused{"max", KernelKind::kReduction},
    Fused{"var_mean", KernelKind::kReduction},
    Fused{"view", KernelKind::kUnknown},
    Fused{"permute", KernelKind::kUnknown},
    Fused{"transpose", KernelKind::kUnknown},
    Fused{"t", KernelKind::kUnknown},
    Fused{"expand", KernelKind::kUnknown},
    Fused{"slice", KernelKind::kUnknown},
    Fused{"unsqueeze", KernelKind::kUnknown},
    Fused{"squeeze", KernelKind::kUnknown},
    Fused{"select", KernelKind::kUnknown},
    Fused{"split", KernelKind::kUnknown},
};

const Fused* known_at(std::string_view text) {
  const Fused* best = nullptr;
  for (const Fused& f : kFused) {
    if (!text.starts_with(f.word) || (best && best->word.size() >= f.word.size())) continue;
    if (text.size() > f.word.size() && text[f.word.size()] != '_') continue;
    best = &f;
  }
  return best;
}

// "add_masked_fill__softmax_3" → {add, masked_fill, _softmax}.
void split_operators(std::string_view text, KernelName& out, KernelKind* only, bool* several) {
  while (!text.empty() && out.fused.size() < 256) {
    const Fused* known = known_at(text);
    std::string_view word = known ? known->word : text.substr(0, std::max<size_t>(text.find('_'), 1));
    word = word.substr(0, text.size());
    const bool number = word.find_first_not_of("0123456789") == std::string_view::npos;
    if (!number && !word.empty()) {
      out.fused.emplace_back(word);
      const KernelKind kind = known ? known->kind : KernelKind::kUnknown;
      if (kind != KernelKind::kUnknown) {
        if (*only != KernelKind::kUnknown && *only != kind) *several = true;
        *only = kind;
      }
    }
    text.remove_prefix(word.size());
    if (text.starts_with("_")) text.remove_prefix(1);
  }
}

bool recognise_inductor(std::string_view name, KernelName& out) {
  if (!name.starts_with("triton_")) return false;
  out.library = "Triton";
  const size_t fused = name.find("_fused_");
  KernelKind only = KernelKind::kUnknown;
  bool several = false;
  if (fused != std::string_view::npos) split_operators(name.substr(fused + 7), out, &only, &several);
  out.kind = several || only == KernelKind::kUnknown ? KernelKind::kFused : only;
  if (name.starts_with("triton_tem_")) {
    out.kind = only == KernelKind::kConv ? KernelKind::kConv : KernelKind::kGemm;
    out.operation = out.kind == KernelKind::kConv ? "convolution" : "gemm";
    return true;
  }
  for (const std::string& word : out.fused) {
    if (!out.operation.empty()) out.operation += '+';
    out.operation += word;
    if (out.operation.size() > 120) break;
  }
  return true;
}

}  // namespace

bool recognise_triton(std::string_view name, KernelName& out) {
  if (recognise_inductor(name, out)) return true;
  // OpenAI's matmul_ogs: the types are in the name, _matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1.
  if (const size_t at = name.find("_matmul_ogs_"); at != std::string_view::npos) {
    out.kind = KernelKind::kGemm;
    out.operation = "gemm";
    out.library = "Triton";
    out.input = type_in(name.substr(at));
    out.tensor_cores = Tristate::kYes;
    return true;
  }
  return false;
}

}  // namespace attnscope::kernel_name_parts
