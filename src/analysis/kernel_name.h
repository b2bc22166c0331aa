#pragma once
// What a kernel is, read from its name alone: a kernel's name is a fingerprint. Device events carry no
// other description, so dtype, tensor-core use and the attention implementation are decoded from here.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// The kinds that a guess file's `sequence` speaks of; sequence_kinds() describes each.
enum class KernelKind : uint8_t {
  kUnknown,
  kGemm,
  kConv,
  kAttention,
  kSoftmax,
  kMask,
  kElementwise,
  kReduction,
  kCopy,
  kCast,
  kFill,
  kTranspose,
  kNorm,
  kRope,
  kEmbedding,
  kGather,
  kSort,
  kRandom,
  kPool,
  kLoss,
  kOptimizer,
  kQuantize,
  kCacheWrite,
  kMoe,
  kComm,
  kFused,
};

// Element types as kernel names spell them; wider than DType because names speak of tf32 and fp8 too.
enum class NumericType : uint8_t {
  kUnknown,
  kF64,
  kF32,
  kTF32,
  kF16,
  kBF16,
  kF8,
  kF4,
  kI8,
  kI32,
  kI64,
  kBool,
  kComplex
};

enum class Tristate : uint8_t { kUnknown, kNo, kYes };

// Who wrote the attention that ran. kAtenMath is the unfused decomposition: no kernel name shows it,
// only the operator does.
enum class AttentionImpl : uint8_t {
  kNone,
  kAtenMath,
  kEfficient,  // fmha_cutlass: PyTorch's memory-efficient attention, xFormers
  kFlash2,     // FlashAttention-2, PyTorch's copy (pytorch_flash) included
  kFlash3,     // FlashAttention-3 (Hopper)
  kFlash4,     // FlashAttention-4 (CuTe DSL)
  kCudnn,      // cudnn_generated_…, although the name says flash_fprop
  kFlex,       // FlexAttention, compiled by Inductor
  kTriton,     // any other Triton attention
  kFlashInfer,
  kTrtLlm,     // TensorRT-LLM: fmhaSm100…, fmha_v2, XQA
  kVllmPaged,  // vLLM's paged and unified attention
  kFlashMla,
  kCk,        // AMD composable kernel
  kAiter,     // AMD aiter assembly kernels
  kAotriton,  // AMD AOTriton (attn_fwd)
  kCpuFlash,  // PyTorch's fused CPU attention
  kOneDnn,
  kMps,
  kAttnscope,  // our own fused kernels
  kOther,      // attention, but nobody we know
};

enum class AttentionPass : uint8_t { kNone, kForward, kBackward };

// What part of a multi-kernel attention this kernel is.
enum class AttentionRole : uint8_t { kNone, kMain, kSplit, kCombine, kPrepare, kConvert };

struct Tile {
  int m = 0, n = 0, k = 0;  // 0: not in the name
  friend constexpr bool operator==(const Tile&, const Tile&) = default;
};

struct KernelName {
  std::string demangled;  // the name, demangled when it was mangled
  KernelKind kind = KernelKind::kUnknown;
  std::string operation;           // "masked_fill", "gemm", "flash_fwd"; empty when not known
  std::vector<std::string> fused;  // the operators an Inductor kernel fuses, in its name's order
  NumericType input = NumericType::kUnknown;
  NumericType accumulate = NumericType::kUnknown;
  NumericType output = NumericType::kUnknown;
  Tristate tensor_cores = Tristate::kUnknown;
  bool is_gemv = false;  // a matrix-vector product: bound by memory, tensor cores would not help
  std::string library;   // "cuBLAS", "cuDNN", "CUTLASS", "ATen", "Triton", …
  std::string arch;      // "sm_80", "gfx942" when the name says which
  Tile tile;
  AttentionImpl implementation = AttentionImpl::kNone;
  AttentionPass pass = AttentionPass::kNone;
  AttentionRole role = AttentionRole::kNone;
};

// Decodes a kernel's name; never fails: an unrecognised name has kind kUnknown. Names may be hostile:
// only the first 8 KiB are looked at. Cost is that of a few dozen substring searches, so decode once per
// distinct name.
KernelName decode_kernel_name(std::string_view name);

// The same for an operator ("aten::bmm", "attnscope::softmax"), used where operators are the kernels
// (CPU-only traces) and to name an attention whose kernels are not decisive.
KernelName decode_operator_name(std::string_view name);

// A short readable form for tables: namespaces, template arguments and lambdas dropped, the functor kept:
// "elementwise masked_fill", "nvjet_sm90_tst_256x128_64x4 …" stays as it is.
std::string short_kernel_name(const KernelName& decoded);

std::string_view kind_name(KernelKind kind);
std::string_view numeric_name(NumericType type);
std::string_view implementation_name(AttentionImpl implementation);
std::string_view pass_name(AttentionPass pass);
constexpr bool is_16_bit(NumericType t) {
  return t == NumericType::kF16 || t == NumericType::kBF16;
}
constexpr bool is_fused_attention(AttentionImpl i) {
  return i != AttentionImpl::kNone && i != AttentionImpl::kAtenMath;
}

struct KindDescription {
  KernelKind kind;
  std::string_view name;
  std::string_view meaning;
};
// Every kind with what it covers, in the order in which they are listed to people.
std::span<const KindDescription> sequence_kinds();

// The type that a trace or a person spells: "c10::BFloat16", "bf16", "float", "Half", "__nv_bfloat16".
NumericType numeric_from_text(std::string_view text);

}  // namespace attnscope
