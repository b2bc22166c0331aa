// PyTorch's own kernels (elementwise, reductions, copies, softmax, norms …), collectives, and whatever else
// is told apart by one word of its name. Also operators, where those are all a trace has.

#include "analysis/kernel_name_parts.h"

#include <array>

namespace attnscope {
namespace {

using namespace kernel_name_parts;

struct Word {
  std::string_view word;
  KernelKind kind;
  std::string_view operation;
};

// In order: the first part that the name holds decides.
constexpr std::array kWords = {
    // collectives
    Word{"ncclKernel", KernelKind::kComm, "collective"},
    Word{"ncclDevKernel", KernelKind::kComm, "collective"},
    Word{"rcclKernel", KernelKind::kComm, "collective"},
    Word{"multimem_all_reduce", KernelKind::kComm, "all-reduce"},
    Word{"cross_device_reduce", KernelKind::kComm, "all-reduce"},
    Word{"all_reduce_kernel", KernelKind::kComm, "all-reduce"},
    Word{"one_shot_all_reduce", KernelKind::kComm, "all-reduce"},
    Word{"two_shot_all_reduce", KernelKind::kComm, "all-reduce"},
    // softmax
    Word{"softmax_warp_forward", KernelKind::kSoftmax, "softmax"},
    Word{"softmax_warp_backward", KernelKind::kSoftmax, "softmax backward"},
    Word{"SoftMaxForward", KernelKind::kSoftmax, "softmax"},
    Word{"SoftMaxBackward", KernelKind::kSoftmax, "softmax backward"},
    Word{"oftmax_fwd", KernelKind::kSoftmax, "softmax"},
    Word{"sparse_coo_softmax", KernelKind::kSoftmax, "softmax"},
    // masks
    Word{"masked_fill_kernel", KernelKind::kMask, "masked_fill"},
    Word{"where_kernel_impl", KernelKind::kMask, "where"},
    Word{"triu_tril_kernel", KernelKind::kMask, "triu/tril"},
    // norms
    Word{"layer_norm", KernelKind::kNorm, "layer norm"},
    Word{"LayerNorm", KernelKind::kNorm, "layer norm"},
    Word{"RowwiseMoments", KernelKind::kNorm, "layer norm moments"},
    Word{"GammaBetaBackward", KernelKind::kNorm, "layer norm backward"},
    Word{"rms_norm", KernelKind::kNorm, "rms norm"},
    Word{"RMSNorm", KernelKind::kNorm, "rms norm"},
    Word{"Rmsnorm", KernelKind::kNorm, "rms norm"},
    Word{"rmsnorm", KernelKind::kNorm, "rms norm"},
    Word{"bn_fw_", KernelKind::kNorm, "batch norm"},
    Word{"bn_bw_", KernelKind::kNorm, "batch norm backward"},
    Word{"batch_norm", KernelKind::kNorm, "batch norm"},
    Word{"BatchNorm", KernelKind::kNorm, "batch norm"},
    Word{"MIOpenBatchNorm", KernelKind::kNorm, "batch norm"},
    Word{"group_norm", KernelKind::kNorm, "group norm"},
    Word{"GroupNorm", KernelKind::kNorm, "group norm"},
    // positions, embeddings, caches
    Word{"rotary", KernelKind::kRope, "rope"},
    Word{"Rotary", KernelKind::kRope, "rope"},
    Word{"RoPE", KernelKind::kRope, "rope"},
    Word{"_rope_", KernelKind::kRope, "rope"},
    Word{"rope_kernel", KernelKind::kRope, "rope"},
    Word{"embedding", KernelKind::kEmbedding, "embedding"},
    Word{"Embedding", KernelKind::kEmbedding, "embedding"},
    Word{"pooled_embs", KernelKind::kEmbedding, "embedding"},
    // experts
    Word{"moe::", KernelKind::kMoe, "experts"},
    Word{"moe_", KernelKind::kMoe, "experts"},
    Word{"_combined_routing", KernelKind::kMoe, "routing"},
    Word{"_sum_bitmatrix", KernelKind::kMoe, "routing"},
    Word{"_finalize_matmul_scatter", KernelKind::kMoe, "scatter"},
    // quantisation
    Word{"quant", KernelKind::kQuantize, "quantize"},
    Word{"Quant", KernelKind::kQuantize, "quantize"},
    Word{"FP8rowwise", KernelKind::kQuantize, "dequantize"},
    Word{"FP8_qparam", KernelKind::kQuantize, "quantize"},
    // layout
    Word{"nchwToNhwc", KernelKind::kTranspose, "nchw to nhwc"},
    Word{"nhwcToNchw", KernelKind::kTranspose, "nhwc to nchw"},
    Word{"transpose", KernelKind::kTranspose, "transpose"},
    Word{"Transpose", KernelKind::kTranspose, "transpose"},
    Word{"batched_transpose", KernelKind::kTranspose, "transpose"},
    Word{"permute_", KernelKind::kTranspose, "permute"},
    // copies and casts
    Word{"bfloat16_copy_kernel", KernelKind::kCast, "to bf16"},
    Word{"float16_copy_kernel", KernelKind::kCast, "to f16"},
    Word{"float8_copy_kernel", KernelKind::kCast, "to f8"},
    Word{"copy_device_to_device", KernelKind::kCopy, "copy"},
    Word{"direct_copy_kernel", KernelKind::kCopy, "copy"},
    Word{"CatArrayBatchedCopy", KernelKind::kCopy, "cat"},
    Word{"CopyDeviceToDevice", KernelKind::kCopy, "copy"},
    Word{"copy_kernel_cuda", KernelKind::kCopy, "copy"},
    Word{"__amd_rocclr_copyBuffer", KernelKind::kCopy, "copy"},
    Word{"__amd_rocclr_fillBuffer", KernelKind::kFill, "fill"},
    Word{"FillFunctor", KernelKind::kFill, "fill"},
    Word{"arange_cuda_out", KernelKind::kFill, "arange"},
    // indexing, sorting, scans
    Word{"index_copy", KernelKind::kGather, "index copy"},
    Word{"index_elementwise_kernel", KernelKind::kGather, "index"},
    Word{"index_put", KernelKind::kGather, "index put"},
    Word{"indexSelect", KernelKind::kGather, "index select"},
    Word{"indexing_backward", KernelKind::kGather, "index backward"},
    Word{"indexFunc", KernelKind::kGather, "index"},
    Word{"scatter_gather", KernelKind::kGather, "scatter/gather"},
    Word{"gather_kernel", KernelKind::kGather, "gather"},
    Word{"RadixSort", KernelKind::kSort, "sort"},
    Word{"gatherTopK", KernelKind::kSort, "top-k"},
    Word{"topk", KernelKind::kSort, "top-k"},
    Word{"TopK", KernelKind::kSort, "top-k"},
    Word{"bitonicSort", KernelKind::kSort, "sort"},
    Word{"searchsorted", KernelKind::kSort, "search"},
    Word{"radixFindKth", KernelKind::kSort, "top-k"},
    Word{"DeviceScan", KernelKind::kReduction, "scan"},
    Word{"tensor_kernel_scan", KernelKind::kReduction, "scan"},
    // random, pool, loss, optimizer
    Word{"dropout", KernelKind::kRandom, "dropout"},
    Word{"masked_scale_kernel", KernelKind::kRandom, "dropout backward"},
    Word{"distribution_elementwise", KernelKind::kRandom, "random"},
    Word{"philox", KernelKind::kRandom, "random state"},
    Word{"max_pool", KernelKind::kPool, "max pool"},
    Word{"MaxPool", KernelKind::kPool, "max pool"},
    Word{"average_pool", KernelKind::kPool, "average pool"},
    Word{"avg_pool", KernelKind::kPool, "average pool"},
    Word{"upsample", KernelKind::kPool, "upsample"},
    Word{"nll_loss", KernelKind::kLoss, "nll loss"},
    Word{"mse_", KernelKind::kLoss, "mse loss"},
    Word{"cross_entropy", KernelKind::kLoss, "cross entropy"},
    Word{"AdamFunctor", KernelKind::kOptimizer, "adam"},
    Word{"FusedAdam", KernelKind::kOptimizer, "adam"},
    Word{"fused_adam", KernelKind::kOptimizer, "adam"},
    Word{"LAMB", KernelKind::kOptimizer, "lamb"},
    Word{"multi_tensor_apply_kernel", KernelKind::kElementwise, "foreach"},
    Word{"NLLCriterion", KernelKind::kLoss, "nll loss"},
    // helpers of convolutions and products
    Word{"computeOffsetsKernel", KernelKind::kConv, "convolution offsets"},
    Word{"OffsetsKernel", KernelKind::kConv, "convolution offsets"},
    Word{"epilogue::impl::globalKernel", KernelKind::kElementwise, "epilogue"},
    Word{"scalePackedTensor", KernelKind::kElementwise, "scale"},
    Word{"transform_bias_rescale_qkv", KernelKind::kElementwise, "bias and scale of q, k, v"},
    Word{"recat_copy", KernelKind::kCopy, "copy"},
    Word{"_copy_page_indices", KernelKind::kCopy, "copy"},
    Word{"DeviceCompactInit", KernelKind::kReduction, "scan"},
    // reductions
    Word{"and_kernel_cuda", KernelKind::kReduction, "all"},
    Word{"or_kernel_cuda", KernelKind::kReduction, "any"},
    Word{"MeanOps", KernelKind::kReduction, "mean"},
    Word{"ArgMax", KernelKind::kReduction, "argmax"},
    Word{"MaxOps", KernelKind::kReduction, "max"},
    Word{"MaxNanFunctor", KernelKind::kReduction, "max"},
    Word{"WelfordOps", KernelKind::kReduction, "variance"},
    Word{"NormTwoOps", KernelKind::kReduction, "norm"},
    Word{"sum_functor", KernelKind::kReduction, "sum"},
    Word{"reduce_kernel", KernelKind::kReduction, "reduce"},
    Word{"DeviceReduce", KernelKind::kReduction, "reduce"},
};

// The functor of a plain elementwise kernel: "add" from CUDAFunctor_add, "gelu" from GeluCUDAKernelImpl.
std::string elementwise_operation(std::string_view name) {
  struct Functor {
    std::string_view word, operation;
  };
  static constexpr std::array kFunctors = {Functor{"MulFunctor", "mul"},
                                           Functor{"MulScalarFunctor", "mul"},
                                           Functor{"DivFunctor", "div"},
                                           Functor{"Functor_add", "add"},
                                           Functor{"FunctorOnSelf_add", "add"},
                                           Functor{"FunctorOnOther_add", "add"},
                                           Functor{"AddFunctor", "add"},
                                           Functor{"BitwiseAnd", "and"},
                                           Functor{"BitwiseOr", "or"},
                                           Functor{"CompareEq", "compare"},
                                           Functor{"CompareFunctor", "compare"},
                                           Functor{"compare_scalar", "compare"},
                                           Functor{"threshold_kernel", "relu"},
                                           Functor{"Gelu", "gelu"},
                                           Functor{"silu", "silu"},
                                           Functor{"sigmoid", "sigmoid"},
                                           Functor{"tanh", "tanh"},
                                           Functor{"isneginf", "isneginf"},
                                           Functor{"clamp", "clamp"}};
  for (const Functor& f : kFunctors)
    if (has(name, f.word)) return std::string(f.operation);
  // at::native::<word>_kernel_cuda(…): the word.
  for (std::string_view tail : {"_kernel_cuda", "_kernel_impl", "_cuda_kernel"}) {
    const size_t end = name.find(tail);
    if (end == std::string_view::npos) continue;
    size_t start = end;
    while (start > 0 && (name[start - 1] == '_' || (name[start - 1] >= 'a' && name[start - 1] <= 'z') ||
                         (name[start - 1] >= '0' && name[start - 1] <= '9')))
      --start;
    if (start < end) return std::string(name.substr(start, end - start));
  }
  return {};
}

// direct_copy_kernel_cuda both copies and casts; the loader says which: LoadWithCast/StoreWithCast convert,
// gpu_kernel_impl_nocast and the vectorised form do not. The old gpu_kernel_impl does either.
void settle_copy(std::string_view name, KernelName& out) {
  if (out.kind == KernelKind::kCast) {
    out.output = has(name, "bfloat16_copy")  ? NumericType::kBF16
                 : has(name, "float16_copy") ? NumericType::kF16
                                             : NumericType::kF8;
    const size_t lambda = name.find("{lambda(");
    if (lambda != std::string_view::npos) out.input = type_in(name.substr(lambda + 8, 24));
    return;
  }
  if (out.operation != "copy") return;
  if (has_any(name, {"LoadWithCast", "StoreWithCast"})) {
    out.kind = KernelKind::kCast;
    out.operation = "cast";
    // The functor works in the destination's type.
    size_t lambda = name.rfind("{lambda(", name.find("LoadWithCast"));
    while (lambda != std::string_view::npos && lambda + 8 < name.size() && name[lambda + 8] == ')')
      lambda = lambda == 0 ? std::string_view::npos : name.rfind("{lambda(", lambda - 1);
    if (lambda != std::string_view::npos) {
      const std::string_view rest = name.substr(lambda + 8, 40);
      out.output = numeric_from_text(rest.substr(0, rest.find(')')));
    }
  }
}

}  // namespace

namespace kernel_name_parts {

bool recognise_aten(std::string_view name, KernelName& out) {
  const bool aten = has(name, "at::native");
  for (const Word& w : kWords) {
    if (!has(name, w.word)) continue;
    out.kind = w.kind;
    out.operation = w.operation;
    out.library = aten ? "ATen" : w.kind == KernelKind::kComm ? "NCCL" : has(name, "cudnn") ? "cuDNN" : "";
    settle_copy(name, out);
    if (out.input == NumericType::kUnknown && out.kind == KernelKind::kSoftmax) out.input = type_in(name);
    return true;
  }
  if (has_any(name, {"elementwise_kernel", "gpu_kernel_impl", "elementwise"})) {
    out.kind = KernelKind::kElementwise;
    out.operation = elementwise_operation(name);
    out.library = aten ? "ATen" : "";
    return true;
  }
  return false;
}

}  // namespace kernel_name_parts

namespace {

// Operators by their last word; used where operators are the kernels.
constexpr std::array kOperators = {
    Word{"scaled_dot_product", KernelKind::kAttention, "attention"},
    Word{"flash_attention", KernelKind::kAttention, "attention"},
    Word{"efficient_attention", KernelKind::kAttention, "attention"},
    Word{"fused_attention", KernelKind::kAttention, "attention"},
    Word{"gemm", KernelKind::kGemm, "gemm"},
    Word{"matmul", KernelKind::kGemm, "gemm"},
    Word{"baddbmm", KernelKind::kGemm, "gemm"},
    Word{"bmm", KernelKind::kGemm, "gemm"},
    Word{"addmm", KernelKind::kGemm, "gemm"},
    Word{"addmv", KernelKind::kGemm, "gemm"},
    Word{"linear", KernelKind::kGemm, "gemm"},
    Word{"convolution", KernelKind::kConv, "convolution"},
    Word{"softmax", KernelKind::kSoftmax, "softmax"},
    Word{"masked_fill", KernelKind::kMask, "masked_fill"},
    Word{"mask", KernelKind::kMask, "mask"},
    Word{"where", KernelKind::kMask, "where"},
    Word{"tril", KernelKind::kMask, "tril"},
    Word{"triu", KernelKind::kMask, "triu"},
    Word{"cast", KernelKind::kCast, "cast"},
    Word{"convert", KernelKind::kCast, "cast"},
    Word{"band_kernel", KernelKind::kMask, "tril"},
    Word{"minus_inf", KernelKind::kElementwise, "isneginf"},
    Word{"fill", KernelKind::kFill, "fill"},
    Word{"zero_", KernelKind::kFill, "fill"},
    Word{"zeros", KernelKind::kFill, "fill"},
    Word{"ones", KernelKind::kFill, "fill"},
    Word{"full", KernelKind::kFill, "fill"},
    Word{"arange", KernelKind::kFill, "arange"},
    Word{"copy", KernelKind::kCopy, "copy"},
    Word{"clone", KernelKind::kCopy, "copy"},
    Word{"contiguous", KernelKind::kCopy, "copy"},
    Word{"cat", KernelKind::kCopy, "cat"},
    Word{"transpose", KernelKind::kTranspose, "transpose"},
    Word{"norm", KernelKind::kNorm, "norm"},
    Word{"embedding", KernelKind::kEmbedding, "embedding"},
    Word{"index", KernelKind::kGather, "index"},
    Word{"gather", KernelKind::kGather, "gather"},
    Word{"scatter", KernelKind::kGather, "scatter"},
    Word{"sort", KernelKind::kSort, "sort"},
    Word{"topk", KernelKind::kSort, "top-k"},
    Word{"dropout", KernelKind::kRandom, "dropout"},
    Word{"bernoulli", KernelKind::kRandom, "dropout"},
    Word{"rand", KernelKind::kRandom, "random"},
    Word{"pool", KernelKind::kPool, "pool"},
    Word{"loss", KernelKind::kLoss, "loss"},
    Word{"all_rows", KernelKind::kReduction, "all"},
    Word{"reduce", KernelKind::kReduction, "reduce"},
};
// Operators that are one of these as a whole word (a substring would catch too much: "add" in "padding").
constexpr std::array kWholeOperators = {
    Word{"mm", KernelKind::kGemm, "gemm"},
    Word{"mv", KernelKind::kGemm, "gemm"},
    Word{"dot", KernelKind::kGemm, "gemm"},
    Word{"add", KernelKind::kElementwise, "add"},
    Word{"sub", KernelKind::kElementwise, "sub"},
    Word{"mul", KernelKind::kElementwise, "mul"},
    Word{"div", KernelKind::kElementwise, "div"},
    Word{"exp", KernelKind::kElementwise, "exp"},
    Word{"scale", KernelKind::kElementwise, "scale"},
    Word{"gelu", KernelKind::kElementwise, "gelu"},
    Word{"relu", KernelKind::kElementwise, "relu"},
    Word{"silu", KernelKind::kElementwise, "silu"},
    Word{"sigmoid", KernelKind::kElementwise, "sigmoid"},
    Word{"tanh", KernelKind::kElementwise, "tanh"},
    Word{"neg", KernelKind::kElementwise, "neg"},
    Word{"sin", KernelKind::kElementwise, "sin"},
    Word{"cos", KernelKind::kElementwise, "cos"},
    Word{"pow", KernelKind::kElementwise, "pow"},
    Word{"rsqrt", KernelKind::kElementwise, "rsqrt"},
    Word{"eq", KernelKind::kElementwise, "compare"},
    Word{"isneginf", KernelKind::kElementwise, "isneginf"},
    Word{"sum", KernelKind::kReduction, "sum"},
    Word{"mean", KernelKind::kReduction, "mean"},
    Word{"max", KernelKind::kReduction, "max"},
    Word{"argmax", KernelKind::kReduction, "argmax"},
    Word{"all", KernelKind::kReduction, "all"},
    Word{"any", KernelKind::kReduction, "any"},
    Word{"cumsum", KernelKind::kReduction, "scan"},
};

void read_attention_operator(std::string_view name, KernelName& out) {
  struct Op {
    std::string_view word;
    AttentionImpl implementation;
  };
  static constexpr std::array kOps = {Op{"flash_attention_for_cpu", AttentionImpl::kCpuFlash},
                                      Op{"attention_math_for_mps", AttentionImpl::kMps},
                                      Op{"attention_math", AttentionImpl::kAtenMath},
                                      Op{"cudnn_attention", AttentionImpl::kCudnn},
                                      Op{"efficient_attention", AttentionImpl::kEfficient},
                                      Op{"flash_attention", AttentionImpl::kFlash2},
                                      Op{"fused_attention_overrideable", AttentionImpl::kOther},
                                      Op{"flex_attention", AttentionImpl::kFlex}};
  out.pass = has(name, "backward") ? AttentionPass::kBackward : AttentionPass::kForward;
  out.role = AttentionRole::kMain;
  for (const Op& op : kOps)
    if (has(name, op.word)) {
      out.implementation = op.implementation;
      return;
    }
}

}  // namespace

KernelName decode_operator_name(std::string_view name) {
  KernelName out;
  out.demangled = std::string(name.substr(0, 512));
  std::string_view word = out.demangled;
  if (word.starts_with("attnscope::")) {
    out.library = "attnscope";
    const std::string_view own = word.substr(11);
    if (own == "sdpa" || own == "naive" || own == "inplace" || own == "math") {
      out.kind = KernelKind::kAttention;
      out.operation = "attention";
      if (own == "math") out.implementation = AttentionImpl::kAtenMath;  // naive and inplace: unfused
      out.pass = AttentionPass::kForward;
      return out;
    }
    if (has_any(word, {"flash", "efficient"}) && !has(word, "copy") && !has(word, "cast") &&
        !has(word, "fill")) {
      out.kind = KernelKind::kAttention;
      out.operation = "attention";
      out.implementation = AttentionImpl::kAttnscope;
      out.pass = has_any(word, {"bwd", "backward"}) ? AttentionPass::kBackward : AttentionPass::kForward;
      out.role = has(word, "merge") || has(word, "combine") ? AttentionRole::kCombine : AttentionRole::kMain;
      return out;
    }
  } else if (word.starts_with("aten::")) {
    out.library = "ATen";
  }
  if (const size_t colon = word.rfind("::"); colon != std::string_view::npos) word.remove_prefix(colon + 2);
  if (const size_t dot = word.rfind('.'); dot != std::string_view::npos && dot + 1 < word.size())
    word.remove_prefix(dot + 1);
  for (const Word& w : kOperators) {
    if (!has(word, w.word)) continue;
    out.kind = w.kind;
    out.operation = w.operation;
    if (w.kind == KernelKind::kAttention) read_attention_operator(word, out);
    return out;
  }
  std::string_view bare = word;
  while (!bare.empty() && bare.front() == '_') bare.remove_prefix(1);
  while (!bare.empty() && bare.back() == '_') bare.remove_suffix(1);
  for (const Word& w : kWholeOperators)
    for (size_t at = bare.find(w.word); at != std::string_view::npos; at = bare.find(w.word, at + 1)) {
      const bool starts = at == 0 || bare[at - 1] == '_';
      const size_t end = at + w.word.size();
      if (!starts || (end != bare.size() && bare[end] != '_')) continue;
      out.kind = w.kind;
      out.operation = w.operation;
      return out;
    }
  return out;
}

}  // namespace attnscope
