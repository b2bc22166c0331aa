#include "analysis/kernel_name.h"

#include "analysis/kernel_name_parts.h"
#include "base/demangle.h"

#include <array>

namespace attnscope {
namespace {

constexpr std::array kKinds = {
    KindDescription{KernelKind::kGemm, "gemm", "matrix products, batched or not, and matrix-vector products"},
    KindDescription{KernelKind::kConv, "conv", "convolutions and their gradients"},
    KindDescription{
        KernelKind::kAttention, "attention",
        "fused attention: one kernel for scores, softmax and output, or a part of it (split, combine)"},
    KindDescription{KernelKind::kSoftmax, "softmax", "softmax, log-softmax and their gradients"},
    KindDescription{KernelKind::kMask, "mask",
                    "masked_fill, where, tril and triu: whatever selects by a boolean or writes a triangle"},
    KindDescription{KernelKind::kElementwise, "elementwise",
                    "one value in, one value out: scale, add, exp, gelu, compare"},
    KindDescription{KernelKind::kReduction, "reduction",
                    "sum, mean, max, all, scans, and the reduction after a split-K product"},
    KindDescription{KernelKind::kCopy, "copy",
                    "a kernel that moves values of one dtype unchanged: contiguous, cat"},
    KindDescription{KernelKind::kCast, "cast", "a kernel that changes the dtype"},
    KindDescription{KernelKind::kFill, "fill", "a kernel that writes a constant"},
    KindDescription{KernelKind::kTranspose, "transpose", "layout changes: nchwToNhwc, permute"},
    KindDescription{KernelKind::kNorm, "norm", "layer, batch, group and RMS normalisation"},
    KindDescription{KernelKind::kRope, "rope", "rotary position embedding"},
    KindDescription{KernelKind::kEmbedding, "embedding", "embedding look-up and its gradient"},
    KindDescription{KernelKind::kGather, "gather", "index, gather, scatter"},
    KindDescription{KernelKind::kSort, "sort", "sort, top-k, searchsorted"},
    KindDescription{KernelKind::kRandom, "random", "random numbers and dropout"},
    KindDescription{KernelKind::kPool, "pool", "pooling and resampling"},
    KindDescription{KernelKind::kLoss, "loss", "loss functions and their gradients"},
    KindDescription{KernelKind::kOptimizer, "optimizer", "fused optimizer steps"},
    KindDescription{KernelKind::kQuantize, "quantize", "conversion to or from fp8, fp4 or int8 with scales"},
    KindDescription{KernelKind::kCacheWrite, "cache-write",
                    "writing keys and values into a KV cache; not attention"},
    KindDescription{KernelKind::kMoe, "moe", "routing and gathering of mixture-of-experts layers"},
    KindDescription{KernelKind::kComm, "comm", "collectives: NCCL, RCCL, multimem all-reduce"},
    KindDescription{
        KernelKind::kFused, "fused",
        "compiled kernels that fuse several operators (Inductor's triton_poi, triton_per, triton_red)"},
    KindDescription{KernelKind::kUnknown, "unknown", "a kernel whose name says nothing we know"},
};

}  // namespace

std::span<const KindDescription> sequence_kinds() {
  return kKinds;
}

std::string_view kind_name(KernelKind kind) {
  for (const KindDescription& k : kKinds)
    if (k.kind == kind) return k.name;
  return "unknown";
}

std::string_view numeric_name(NumericType type) {
  switch (type) {
    case NumericType::kUnknown: return "unknown";
    case NumericType::kF64: return "f64";
    case NumericType::kF32: return "f32";
    case NumericType::kTF32: return "tf32";
    case NumericType::kF16: return "f16";
    case NumericType::kBF16: return "bf16";
    case NumericType::kF8: return "f8";
    case NumericType::kF4: return "f4";
    case NumericType::kI8: return "i8";
    case NumericType::kI32: return "i32";
    case NumericType::kI64: return "i64";
    case NumericType::kBool: return "bool";
    case NumericType::kComplex: return "complex";
  }
  return "unknown";
}

std::string_view implementation_name(AttentionImpl implementation) {
  switch (implementation) {
    case AttentionImpl::kNone: return "none";
    case AttentionImpl::kAtenMath: return "math";
    case AttentionImpl::kEfficient: return "efficient";
    case AttentionImpl::kFlash2: return "flash";
    case AttentionImpl::kFlash3: return "flash3";
    case AttentionImpl::kFlash4: return "flash4";
    case AttentionImpl::kCudnn: return "cudnn";
    case AttentionImpl::kFlex: return "flex";
    case AttentionImpl::kTriton: return "triton";
    case AttentionImpl::kFlashInfer: return "flashinfer";
    case AttentionImpl::kTrtLlm: return "trtllm";
    case AttentionImpl::kVllmPaged: return "vllm";
    case AttentionImpl::kFlashMla: return "flashmla";
    case AttentionImpl::kCk: return "ck";
    case AttentionImpl::kAiter: return "aiter";
    case AttentionImpl::kAotriton: return "aotriton";
    case AttentionImpl::kCpuFlash: return "cpu-flash";
    case AttentionImpl::kOneDnn: return "onednn";
    case AttentionImpl::kMps: return "mps";
    case AttentionImpl::kAttnscope: return "attnscope";
    case AttentionImpl::kOther: return "other";
  }
  return "none";
}

std::string_view pass_name(AttentionPass pass) {
  switch (pass) {
    case AttentionPass::kNone: return "none";
    case AttentionPass::kForward: return "forward";
    case AttentionPass::kBackward: return "backward";
  }
  return "none";
}

// "softmax_f32", "onednn_matmul_bf16", "flash_attention": what our CPU backends call their kernels.
static bool is_cpu_kernel_of_ours(std::string_view name) {
  if (name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string_view::npos) return false;
  for (std::string_view end : {"_f64", "_f32", "_f16", "_bf16", "_bool", "_attention"})
    if (name.ends_with(end)) return true;
  return name == "clone";
}

KernelName decode_kernel_name(std::string_view name) {
  using namespace kernel_name_parts;
  // A CPU recording's kernels are named like operators.
  if (name.starts_with("attnscope::") || name.starts_with("aten::")) return decode_operator_name(name);
  KernelName out;
  out.demangled = demangle(name);
  const std::string_view text = out.demangled;
  // Our own CUDA kernels: attnscope::cuda_unfused::softmax_registers<…>(…) is named like an operator too.
  if (std::string_view head = text.substr(0, text.find('<')); has(head, "attnscope::")) {
    constexpr std::string_view kAnonymous = "(anonymous namespace)::";
    if (const size_t unnamed = head.rfind(kAnonymous); unnamed != std::string_view::npos)
      head.remove_prefix(unnamed + kAnonymous.size());
    head = head.substr(0, head.find('('));
    if (const size_t colon = head.rfind("::"); colon != std::string_view::npos) head.remove_prefix(colon + 2);
    KernelName named = decode_operator_name("attnscope::" + std::string(head));
    named.demangled = std::move(out.demangled);
    return named;
  }
  // The recognisers write into `out`, but never into `demangled`, which they read.
  const bool known = recognise_attention(text, out) || recognise_triton(text, out) ||
                     recognise_gemm(text, out) || recognise_aten(text, out);
  return !known && is_cpu_kernel_of_ours(name) ? decode_operator_name("attnscope::" + std::string(name))
                                               : out;
}

namespace kernel_name_parts {

int number_at(std::string_view text, size_t at, size_t* end) {
  int value = -1;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9' && value < 100'000'000)
    value = (value < 0 ? 0 : value * 10) + (text[at++] - '0');
  if (end) *end = at;
  return value;
}

Tile tile_after(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    if (text[at] < '0' || text[at] > '9') continue;
    size_t end = at;
    const int m = number_at(text, at, &end);
    if (end + 1 < text.size() && text[end] == 'x' && text[end + 1] >= '0' && text[end + 1] <= '9') {
      Tile tile{m, number_at(text, end + 1, &end), 0};
      if (end + 1 < text.size() && (text[end] == 'x' || text[end] == '_') && text[end + 1] >= '0' &&
          text[end + 1] <= '9')
        tile.k = number_at(text, end + 1, &end);
      return tile;
    }
    at = end;
  }
  return {};
}

std::string arch_in(std::string_view name) {
  for (std::string_view mark : {"sm_", "sm", "Sm", "SM", "cutlass_", "cutlass3x_sm"}) {
    for (size_t at = name.find(mark); at != std::string_view::npos; at = name.find(mark, at + 1)) {
      size_t end = 0;
      const int n = number_at(name, at + mark.size(), &end);
      if (n >= 50 && n < 200) return "sm_" + std::to_string(n);
    }
  }
  if (const size_t at = name.find("_ISA"); at != std::string_view::npos) {
    size_t end = at + 4;
    while (end < name.size() && end < at + 8 && name[end] != '_') ++end;
    return "gfx" + std::string(name.substr(at + 4, end - at - 4));
  }
  if (const size_t at = name.find("gfx"); at != std::string_view::npos) {
    size_t end = at + 3;
    while (end < name.size() && end < at + 8 && std::string_view("0123456789abcdef").find(name[end]) < 16)
      ++end;
    if (end > at + 5) return std::string(name.substr(at, end - at));
  }
  struct Word {
    std::string_view word, arch;
  };
  for (const Word& w : {Word{"volta_", "sm_70"},
                        {"turing_", "sm_75"},
                        {"ampere_", "sm_80"},
                        {"maxwell_", "sm_50"},
                        {"pascal_", "sm_60"}})
    if (has(name, w.word)) return std::string(w.arch);
  return {};
}

NumericType type_in(std::string_view text) {
  struct Spelling {
    std::string_view word;
    NumericType type;
  };
  static constexpr std::array kSpellings = {
      Spelling{"BFloat16", NumericType::kBF16}, Spelling{"bfloat16", NumericType::kBF16},
      Spelling{"bf16", NumericType::kBF16},     Spelling{"Bfloat16", NumericType::kBF16},
      Spelling{"half", NumericType::kF16},      Spelling{"Half", NumericType::kF16},
      Spelling{"fp16", NumericType::kF16},      Spelling{"f16", NumericType::kF16},
      Spelling{"e4m3", NumericType::kF8},       Spelling{"E4m3", NumericType::kF8},
      Spelling{"e5m2", NumericType::kF8},       Spelling{"E5m2", NumericType::kF8},
      Spelling{"Float8", NumericType::kF8},     Spelling{"fp8", NumericType::kF8},
      Spelling{"FP8", NumericType::kF8},        Spelling{"E2m1", NumericType::kF4},
      Spelling{"e2m1", NumericType::kF4},       Spelling{"tfloat32", NumericType::kTF32},
      Spelling{"tf32", NumericType::kTF32},     Spelling{"complex", NumericType::kComplex},
      Spelling{"double", NumericType::kF64},    Spelling{"float", NumericType::kF32},
      Spelling{"fp32", NumericType::kF32},      Spelling{"f32", NumericType::kF32}};
  size_t best = std::string_view::npos;
  NumericType type = NumericType::kUnknown;
  for (const Spelling& s : kSpellings) {
    const size_t at = text.find(s.word);
    if (at < best) {  // at equal places the longer spelling stands first in the list ("bf16" before "f16")
      best = at;
      type = s.type;
    }
  }
  return type;
}

}  // namespace kernel_name_parts

NumericType numeric_from_text(std::string_view text) {
  struct Exact {
    std::string_view word;
    NumericType type;
  };
  static constexpr std::array kExact = {
      Exact{"f64", NumericType::kF64},         Exact{"f32", NumericType::kF32},
      Exact{"tf32", NumericType::kTF32},       Exact{"f16", NumericType::kF16},
      Exact{"bf16", NumericType::kBF16},       Exact{"f8", NumericType::kF8},
      Exact{"fp8", NumericType::kF8},          Exact{"f4", NumericType::kF4},
      Exact{"fp4", NumericType::kF4},          Exact{"i8", NumericType::kI8},
      Exact{"int8", NumericType::kI8},         Exact{"i32", NumericType::kI32},
      Exact{"int", NumericType::kI32},         Exact{"i64", NumericType::kI64},
      Exact{"long", NumericType::kI64},        Exact{"long int", NumericType::kI64},
      Exact{"bool", NumericType::kBool},       Exact{"fp16", NumericType::kF16},
      Exact{"float16", NumericType::kF16},     Exact{"bfloat16", NumericType::kBF16},
      Exact{"float32", NumericType::kF32},     Exact{"float64", NumericType::kF64},
      Exact{"fp32", NumericType::kF32},        Exact{"signed char", NumericType::kI8},
      Exact{"unsigned char", NumericType::kI8}};
  for (const Exact& e : kExact)
    if (text == e.word) return e.type;
  return kernel_name_parts::type_in(text);
}

std::string short_kernel_name(const KernelName& decoded) {
  const std::string& name = decoded.demangled;
  if (name.find('<') == std::string::npos && name.find('(') == std::string::npos) return name;
  if (!decoded.operation.empty()) {
    const std::string kind(kind_name(decoded.kind));
    return decoded.operation == kind || decoded.kind == KernelKind::kAttention
               ? decoded.operation
               : kind + " " + decoded.operation;
  }
  // An unknown C++ name: its last identifier before the template arguments.
  std::string_view head = std::string_view(name).substr(0, name.find_first_of("<("));
  if (head.starts_with("void ")) head.remove_prefix(5);
  const size_t colon = head.rfind("::");
  if (colon != std::string_view::npos) head.remove_prefix(colon + 2);
  return head.empty() ? name : std::string(head);
}

}  // namespace attnscope
