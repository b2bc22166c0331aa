// Fused attention kernels and their helpers, of every library whose names we have seen.

#include "analysis/kernel_name_parts.h"

#include <array>

namespace attnscope::kernel_name_parts {
namespace {

struct Mark {
  std::string_view word;  // case-sensitive part of the name
  AttentionImpl implementation;
  AttentionPass pass;
  AttentionRole role;
  std::string_view library;
};

constexpr auto kFwd = AttentionPass::kForward;
constexpr auto kBwd = AttentionPass::kBackward;
constexpr auto kMain = AttentionRole::kMain;
constexpr auto kSplit = AttentionRole::kSplit;
constexpr auto kCombine = AttentionRole::kCombine;
constexpr auto kPrepare = AttentionRole::kPrepare;
constexpr auto kConvert = AttentionRole::kConvert;

// In order: the first part that the name holds decides, so special names stand before general ones.
constexpr std::array kMarks = {
    // cuDNN first: its generated names say flash_fprop, and that is not FlashAttention.
    Mark{"sdpa_sm", AttentionImpl::kCudnn, kFwd, kMain, "cuDNN"},
    Mark{"cudnn::fusion::compute_dot_do_o", AttentionImpl::kCudnn, kBwd, kPrepare, "cuDNN"},
    Mark{"cudnn::fusion::convert_dq", AttentionImpl::kCudnn, kBwd, kConvert, "cuDNN"},
    // ours
    Mark{"attnscope_combine", AttentionImpl::kAttnscope, kFwd, kCombine, "attnscope"},
    Mark{"attnscope_flash", AttentionImpl::kAttnscope, kFwd, kMain, "attnscope"},
    Mark{"attnscope_efficient", AttentionImpl::kAttnscope, kFwd, kMain, "attnscope"},
    Mark{"attnscope_decode", AttentionImpl::kAttnscope, kFwd, kSplit, "attnscope"},
    // FlashAttention-3 and -4
    Mark{"FlashAttentionForward", AttentionImpl::kFlash4, kFwd, kMain, "FlashAttention"},
    Mark{"FlashAttentionBackwardPreprocess", AttentionImpl::kFlash4, kBwd, kPrepare, "FlashAttention"},
    Mark{"FlashAttentionBackwardPostprocess", AttentionImpl::kFlash4, kBwd, kConvert, "FlashAttention"},
    Mark{"FlashAttentionBackward", AttentionImpl::kFlash4, kBwd, kMain, "FlashAttention"},
    Mark{"FlashAttnFwdCombine", AttentionImpl::kFlash3, kFwd, kCombine, "FlashAttention"},
    Mark{"FlashAttnFwdSm", AttentionImpl::kFlash3, kFwd, kMain, "FlashAttention"},
    Mark{"FlashAttnBwdPreprocess", AttentionImpl::kFlash3, kBwd, kPrepare, "FlashAttention"},
    Mark{"FlashAttnBwdPostprocess", AttentionImpl::kFlash3, kBwd, kConvert, "FlashAttention"},
    Mark{"FlashAttnBwdSm", AttentionImpl::kFlash3, kBwd, kMain, "FlashAttention"},
    Mark{"compute_attn_ws", AttentionImpl::kFlash3, kFwd, kMain, "FlashAttention"},
    // FlashMLA
    Mark{"flash_fwd_mla_combine", AttentionImpl::kFlashMla, kFwd, kCombine, "FlashMLA"},
    Mark{"flash_fwd_splitkv_mla", AttentionImpl::kFlashMla, kFwd, kSplit, "FlashMLA"},
    // vLLM: a cache write whose name says flash is no attention (see below)
    Mark{"paged_attention_v2_reduce", AttentionImpl::kVllmPaged, kFwd, kCombine, "vLLM"},
    Mark{"paged_attention_ll4mi_reduce", AttentionImpl::kVllmPaged, kFwd, kCombine, "vLLM"},
    Mark{"paged_attention_v2", AttentionImpl::kVllmPaged, kFwd, kSplit, "vLLM"},
    Mark{"paged_attention", AttentionImpl::kVllmPaged, kFwd, kMain, "vLLM"},
    Mark{"kernel_unified_attention_3d", AttentionImpl::kVllmPaged, kFwd, kSplit, "vLLM"},
    Mark{"kernel_unified_attention", AttentionImpl::kVllmPaged, kFwd, kMain, "vLLM"},
    Mark{"reduce_segments", AttentionImpl::kVllmPaged, kFwd, kCombine, "vLLM"},
    Mark{"merge_attn_states", AttentionImpl::kVllmPaged, kFwd, kCombine, "vLLM"},
    // FlashInfer
    Mark{"MergeStates", AttentionImpl::kFlashInfer, kFwd, kCombine, "FlashInfer"},
    Mark{"MergeStateKernel", AttentionImpl::kFlashInfer, kFwd, kCombine, "FlashInfer"},
    Mark{"BatchPrefillWith", AttentionImpl::kFlashInfer, kFwd, kMain, "FlashInfer"},
    Mark{"BatchDecodeWith", AttentionImpl::kFlashInfer, kFwd, kMain, "FlashInfer"},
    Mark{"SinglePrefillWith", AttentionImpl::kFlashInfer, kFwd, kMain, "FlashInfer"},
    Mark{"SingleDecodeWith", AttentionImpl::kFlashInfer, kFwd, kMain, "FlashInfer"},
    Mark{"PrefillWithKVCacheKernel", AttentionImpl::kFlashInfer, kFwd, kMain, "FlashInfer"},
    // FlashAttention-2 (after FlashInfer and FlashMLA, whose names contain parts of these)
    Mark{"flash_fwd_splitkv_combine", AttentionImpl::kFlash2, kFwd, kCombine, "FlashAttention"},
    Mark{"flash_fwd_splitkv", AttentionImpl::kFlash2, kFwd, kSplit, "FlashAttention"},
    Mark{"flash_fwd_kernel", AttentionImpl::kFlash2, kFwd, kMain, "FlashAttention"},
    Mark{"flash_bwd_dot_do_o", AttentionImpl::kFlash2, kBwd, kPrepare, "FlashAttention"},
    Mark{"flash_bwd_clear_dkvaccum", AttentionImpl::kFlash2, kBwd, kPrepare, "FlashAttention"},
    Mark{"flash_bwd_convert", AttentionImpl::kFlash2, kBwd, kConvert, "FlashAttention"},
    Mark{"flash_bwd_d", AttentionImpl::kFlash2, kBwd, kMain, "FlashAttention"},
    // TensorRT-LLM
    Mark{"fmhaSm", AttentionImpl::kTrtLlm, kFwd, kMain, "TensorRT-LLM"},
    Mark{"fmhaReductionKernel", AttentionImpl::kTrtLlm, kFwd, kCombine, "TensorRT-LLM"},
    Mark{"fmha_v2_", AttentionImpl::kTrtLlm, kFwd, kMain, "TensorRT-LLM"},
    Mark{"masked_multihead_attention", AttentionImpl::kTrtLlm, kFwd, kMain, "TensorRT-LLM"},
    Mark{"kernel_mha", AttentionImpl::kTrtLlm, kFwd, kMain, "TensorRT-LLM"},
    Mark{"xqa_kernel", AttentionImpl::kTrtLlm, kFwd, kMain, "TensorRT-LLM"},
    // AMD
    Mark{"FmhaFwdSplitKVCombine", AttentionImpl::kCk, kFwd, kCombine, "CK"},
    Mark{"FmhaFwdSplitKV", AttentionImpl::kCk, kFwd, kSplit, "CK"},
    Mark{"FmhaFwd", AttentionImpl::kCk, kFwd, kMain, "CK"},
    Mark{"FmhaBwdOGradDotO", AttentionImpl::kCk, kBwd, kPrepare, "CK"},
    Mark{"FmhaBwdConvertQGrad", AttentionImpl::kCk, kBwd, kConvert, "CK"},
    Mark{"FmhaBwd", AttentionImpl::kCk, kBwd, kMain, "CK"},
    Mark{"batched_gemm_softmax_gemm", AttentionImpl::kCk, kFwd, kMain, "CK"},
    Mark{"aiter::fmha_bwd", AttentionImpl::kAiter, kBwd, kMain, "aiter"},
    Mark{"aiter::fmha_fwd", AttentionImpl::kAiter, kFwd, kMain, "aiter"},
    Mark{"aiter::pa_", AttentionImpl::kAiter, kFwd, kMain, "aiter"},
    Mark{"aiter::mla_", AttentionImpl::kAiter, kFwd, kMain, "aiter"},
    Mark{"fmha_fwd_hd", AttentionImpl::kAiter, kFwd, kMain, "aiter"},
    Mark{"fmha_bwd_hd", AttentionImpl::kAiter, kBwd, kMain, "aiter"},
    // PyTorch's memory-efficient attention, xFormers
    Mark{"fmha_cutlassF", AttentionImpl::kEfficient, kFwd, kMain, "CUTLASS"},
    Mark{"fmha_cutlassB", AttentionImpl::kEfficient, kBwd, kMain, "CUTLASS"},
    Mark{"AttentionBackwardKernel", AttentionImpl::kEfficient, kBwd, kMain, "CUTLASS"},
    Mark{"PyTorchMemEffAttention::AttentionKernel", AttentionImpl::kEfficient, kFwd, kMain, "CUTLASS"},
    // Intel
    Mark{"micro_sdpa", AttentionImpl::kOneDnn, kFwd, kMain, "oneDNN"},
    // Triton: compiled FlexAttention, the tutorial's kernels, SGLang's decode
    Mark{"flex_attention_backward", AttentionImpl::kFlex, kBwd, kMain, "Triton"},
    Mark{"flex_decoding", AttentionImpl::kFlex, kFwd, kSplit, "Triton"},
    Mark{"flex_attention", AttentionImpl::kFlex, kFwd, kMain, "Triton"},
    Mark{"_fwd_grouped_kernel_stage1", AttentionImpl::kTriton, kFwd, kSplit, "Triton"},
    Mark{"_fwd_kernel_stage1", AttentionImpl::kTriton, kFwd, kSplit, "Triton"},
    Mark{"_fwd_kernel_stage2", AttentionImpl::kTriton, kFwd, kCombine, "Triton"},
    Mark{"_attn_fwd", AttentionImpl::kTriton, kFwd, kMain, "Triton"},
    Mark{"_attn_bwd_preprocess", AttentionImpl::kTriton, kBwd, kPrepare, "Triton"},
    Mark{"_attn_bwd", AttentionImpl::kTriton, kBwd, kMain, "Triton"},
};

// Names that are attention only when they are the whole name: AOTriton's are that short.
constexpr std::array kWhole = {
    Mark{"flash_forward", AttentionImpl::kAttnscope, kFwd, kMain, "attnscope"},
    Mark{"flash_backward", AttentionImpl::kAttnscope, kBwd, kMain, "attnscope"},
    Mark{"attention_forward", AttentionImpl::kAttnscope, kFwd, kMain, "attnscope"},
    Mark{"efficient_forward", AttentionImpl::kAttnscope, kFwd, kMain, "attnscope"},
    Mark{"efficient_backward", AttentionImpl::kAttnscope, kBwd, kMain, "attnscope"},
    Mark{"decode_forward", AttentionImpl::kAttnscope, kFwd, kSplit, "attnscope"},
    Mark{"decode_forward_simple", AttentionImpl::kAttnscope, kFwd, kSplit, "attnscope"},
    Mark{"decode_combine", AttentionImpl::kAttnscope, kFwd, kCombine, "attnscope"},
    Mark{"mla_forward", AttentionImpl::kAttnscope, kFwd, kSplit, "attnscope"},
    Mark{"mla_combine", AttentionImpl::kAttnscope, kFwd, kCombine, "attnscope"},
    Mark{"cache_append", AttentionImpl::kAttnscope, kFwd, kPrepare, "attnscope"},
    Mark{"decode_append", AttentionImpl::kAttnscope, kFwd, kPrepare, "attnscope"},  // up to 0.1
    Mark{"attn_fwd", AttentionImpl::kAotriton, kFwd, kMain, "AOTriton"},
    Mark{"bwd_preprocess", AttentionImpl::kAotriton, kBwd, kPrepare, "AOTriton"},
    Mark{"bwd_preprocess_varlen", AttentionImpl::kAotriton, kBwd, kPrepare, "AOTriton"},
    Mark{"bwd_kernel_dk_dv", AttentionImpl::kAotriton, kBwd, kMain, "AOTriton"},
    Mark{"bwd_kernel_dq", AttentionImpl::kAotriton, kBwd, kMain, "AOTriton"},
    Mark{"bwd_kernel_fuse", AttentionImpl::kAotriton, kBwd, kMain, "AOTriton"},
    Mark{"attn_bwd", AttentionImpl::kAotriton, kBwd, kMain, "AOTriton"},
};

bool is_cache_write(std::string_view name) {
  return has_any(name, {"reshape_and_cache", "concat_and_cache", "AppendPagedKVCache", "copy_blocks_kernel",
                        "UpdateKVCache", "update_kv_cache", "store_kv_cache"});
}

// FA2: Flash_fwd_kernel_traits<head_dim, kBlockM, kBlockN, warps, …, element>.
void read_flash2_traits(std::string_view name, KernelName& out) {
  size_t at = name.find("kernel_traits<");
  if (at == std::string_view::npos) return;
  at += 14;
  int values[3] = {0, 0, 0};
  for (int& value : values) {
    while (at < name.size() && name[at] == ' ') ++at;
    size_t end = at;
    value = number_at(name, at, &end);
    if (value < 0) return;
    at = end + 1;
  }
  out.tile = Tile{values[1], values[2], values[0]};
}

// cuDNN: …_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_…; f16 there is the size, not the format.
void read_cudnn(std::string_view name, KernelName& out) {
  if (has(name, "bprop")) out.pass = kBwd;
  if (has_any(name, {"wgmma", "wmma", "mma", "tcgen05"})) out.tensor_cores = Tristate::kYes;
  if (const size_t knob = name.find("_knob_"); knob != std::string_view::npos) {
    size_t end = 0;
    (void)number_at(name, knob + 6, &end);
    out.tile = tile_after(name, end);
  }
}

void describe(const Mark& mark, std::string_view name, KernelName& out) {
  out.kind = KernelKind::kAttention;
  out.implementation = mark.implementation;
  out.pass = mark.pass;
  out.role = mark.role;
  out.library = mark.library;
  out.operation =
      std::string(implementation_name(mark.implementation)) + " " + std::string(pass_name(mark.pass));
  if (mark.role == kCombine) out.operation += " combine";
  if (mark.role == kSplit) out.operation += " split";
  if (mark.role == kPrepare) out.operation += " prepare";
  if (mark.role == kConvert) out.operation += " convert";
  out.arch = arch_in(name);
  const bool multiplies = mark.role == kMain || mark.role == kSplit;
  switch (mark.implementation) {
    case AttentionImpl::kCudnn:
      read_cudnn(name, out);
      out.operation.replace(0, out.operation.find(' ', 6), "cudnn " + std::string(pass_name(out.pass)));
      return;  // the dtype is not in the name: the same kernel serves f16 and bf16
    case AttentionImpl::kFlash2: read_flash2_traits(name, out); break;
    case AttentionImpl::kEfficient: out.tile = tile_after(name, 0); break;
    default: break;
  }
  // A Triton name is chosen by whoever wrote it: no dtype can be read from it safely.
  if (mark.library != "Triton" && mark.library != "AOTriton") out.input = type_in(name);
  const bool always_tensor_cores =
      mark.implementation == AttentionImpl::kFlash2 || mark.implementation == AttentionImpl::kFlash3 ||
      mark.implementation == AttentionImpl::kFlash4 || mark.implementation == AttentionImpl::kTrtLlm;
  if (multiplies && (always_tensor_cores || (mark.implementation == AttentionImpl::kEfficient &&
                                             is_16_bit(out.input) && out.arch != "sm_50")))
    out.tensor_cores = Tristate::kYes;
  if (mark.implementation == AttentionImpl::kEfficient && has(name, "fmha_cutlassF_f32") &&
      !has(name, "sm80"))
    out.tensor_cores = Tristate::kNo;
}

}  // namespace

bool recognise_attention(std::string_view name, KernelName& out) {
  if (is_cache_write(name)) {
    out.kind = KernelKind::kCacheWrite;
    out.operation = "kv cache write";
    out.library = has(name, "vllm") ? "vLLM" : "";
    return true;
  }
  for (const Mark& mark : kWhole)
    if (name == mark.word) {
      describe(mark, name, out);
      return true;
    }
  for (const Mark& mark : kMarks) {
    if (!has(name, mark.word)) continue;
    if (mark.implementation == AttentionImpl::kCudnn && !has(name, "cudnn")) continue;
    // Inductor names its pointwise helpers after flex_attention too; only the template is the attention.
    if (mark.implementation == AttentionImpl::kFlex && name.starts_with("triton_") &&
        !name.starts_with("triton_tem_") && !name.starts_with("triton_flex"))
      continue;
    describe(mark, name, out);
    return true;
  }
  if (has(name, "attnscope") && has_any(name, {"fwd", "bwd", "attention"})) {
    describe(Mark{"", AttentionImpl::kAttnscope, has(name, "bwd") ? kBwd : kFwd, kMain, "attnscope"}, name,
             out);
    return true;
  }
  return false;
}

}  // namespace attnscope::kernel_name_parts
