// Matrix products and convolutions: cuBLAS, cuBLASLt, CUTLASS, cuDNN, MAGMA, Tensile (ROCm), TensorRT-LLM.
// The question that matters is which unit multiplied: a 16-bit product on FMA units is ten times slower.

#include "analysis/kernel_name_parts.h"

#include <array>

namespace attnscope::kernel_name_parts {
namespace {

void set_gemm(KernelName& out, std::string_view library, NumericType input, NumericType accumulate,
              Tristate tensor_cores) {
  out.kind = KernelKind::kGemm;
  if (out.operation.empty()) out.operation = "gemm";
  out.library = library;
  out.input = input;
  out.accumulate = accumulate;
  out.tensor_cores = tensor_cores;
}

// "s16816gemm", "h884gemm", "d884gemm", "s161616gemm": accumulator letter, MMA shape, "gemm" (or the
// convolution's word). The position of the shape, or npos.
size_t find_mma_shape(std::string_view name, char* accumulator) {
  static constexpr std::array<std::string_view, 8> kShapes = {"161616", "16816", "16832", "16864",
                                                              "1688",   "16816", "884",   "81632"};
  for (std::string_view shape : kShapes)
    for (size_t at = name.find(shape); at != std::string_view::npos; at = name.find(shape, at + 1)) {
      if (at == 0) continue;
      const char letter = name[at - 1];
      if (letter != 's' && letter != 'h' && letter != 'i' && letter != 'd') continue;
      const std::string_view rest = name.substr(at + shape.size(), 24);
      if (!has_any(rest, {"gemm", "cudnn", "fprop", "dgrad", "wgrad"})) continue;
      *accumulator = letter;
      return at;
    }
  return std::string_view::npos;
}

NumericType accumulator_type(char letter) {
  switch (letter) {
    case 's': return NumericType::kF32;
    case 'h': return NumericType::kF16;
    case 'd': return NumericType::kF64;
    case 'i': return NumericType::kI32;
    default: return NumericType::kUnknown;
  }
}

// ampere_bf16_s16816gemm_bf16_128x64_…, cutlass_80_tensorop_f16_s16816gemm_relu_f16_…, s1688gemm = tf32.
bool mma_shape_gemm(std::string_view name, KernelName& out) {
  char letter = 0;
  const size_t at = find_mma_shape(name, &letter);
  if (at == std::string_view::npos) return false;
  NumericType input = type_in(name.substr(at > 32 ? at - 32 : 0, at > 32 ? 80 : at + 48));
  if (letter == 'd') input = NumericType::kF64;
  if (letter == 'i') input = NumericType::kI8;
  // A tensor-core product of 32-bit inputs rounds them to tf32, and its name gives no input type.
  if (input == NumericType::kUnknown && letter == 's') input = NumericType::kTF32;
  if (input == NumericType::kUnknown && letter == 'h') input = NumericType::kF16;
  set_gemm(out, has(name, "cutlass") ? "CUTLASS" : "cuBLAS", input, accumulator_type(letter), Tristate::kYes);
  out.tile = tile_after(name, at + 4);
  return true;
}

// sm80_xmma_gemm_<A><A'>_<B><B'>_<C>_…: the first half of the first field is the input type.
bool xmma_gemm(std::string_view name, KernelName& out) {
  const size_t at = name.find("_xmma_");
  if (at == std::string_view::npos) return false;
  NumericType input = NumericType::kUnknown;
  if (has_any(name, {"_f32f32", "_fp32fp32"})) input = NumericType::kF32;
  if (has(name, "_tf32f32")) input = NumericType::kTF32;
  if (has(name, "_f16f16")) input = NumericType::kF16;
  if (has(name, "_bf16bf16")) input = NumericType::kBF16;
  if (has(name, "_e4m3") || has(name, "_e5m2")) input = NumericType::kF8;
  if (has(name, "_i8i8")) input = NumericType::kI8;
  if (has(name, "_f64f64")) input = NumericType::kF64;
  Tristate tensor = Tristate::kUnknown;
  if (has_any(name, {"_tensor", "warpgroupsize"}) || is_16_bit(input) || input == NumericType::kTF32 ||
      input == NumericType::kF8)
    tensor = Tristate::kYes;
  if (has_any(name, {"_ffma", "_simt", "_dfma"})) tensor = Tristate::kNo;
  set_gemm(out, "cuBLAS", input, NumericType::kF32, tensor);
  const size_t tile = name.find("tilesize");
  if (tile != std::string_view::npos) out.tile = tile_after(name, tile);
  return true;
}

// nvjet_sm90_tst_256x128_64x4_…: input, accumulator and output letters; t = bf16, h = f16, s = f32, q = fp8.
bool nvjet_gemm(std::string_view name, KernelName& out) {
  const size_t start = name.find("nvjet");
  if (start == std::string_view::npos) return false;
  size_t at = start + 5;
  NumericType input = NumericType::kUnknown;
  while (at < name.size() && name[at] == '_') {
    const size_t next = std::min(name.find('_', at + 1), name.size());
    const std::string_view word = name.substr(at + 1, next - at - 1);
    at = next;
    if (word.starts_with("sm")) continue;
    if (word.empty() || (word[0] >= '0' && word[0] <= '9')) break;
    switch (word[0]) {
      case 't': input = NumericType::kBF16; break;
      case 'h': input = NumericType::kF16; break;
      case 's': input = NumericType::kTF32; break;
      case 'q':
      case 'o': input = NumericType::kF8; break;
      case 'd': input = NumericType::kF64; break;
      case 'i': input = NumericType::kI8; break;
      default: break;
    }
    break;
  }
  set_gemm(out, "cuBLASLt", input, NumericType::kF32, Tristate::kYes);
  out.tile = tile_after(name, start + 10);
  return true;
}

// Cijk_Alik_Bljk_BBS_BH_…_MT128x224x64_MI16x16x1_…: Tensile. MI gives the matrix instruction.
bool tensile_gemm(std::string_view name, KernelName& out) {
  const size_t start = name.find("Cijk_");
  if (start == std::string_view::npos) return false;
  NumericType input = NumericType::kUnknown;
  // The data-type field follows the two index fields: Cijk_Ailk_Bljk_<types>.
  size_t field = start;
  for (int i = 0; i < 3 && field != std::string_view::npos; ++i) field = name.find('_', field + 1);
  if (field != std::string_view::npos && field + 2 < name.size()) {
    switch (name[field + 1]) {
      case 'B': input = NumericType::kBF16; break;
      case 'H': input = NumericType::kF16; break;
      case 'S': input = NumericType::kF32; break;
      case 'D': input = NumericType::kF64; break;
      case 'F': input = NumericType::kF8; break;
      case 'I': input = NumericType::kI8; break;
      case 'X': input = NumericType::kTF32; break;
      case 'C':
      case 'Z': input = NumericType::kComplex; break;
      default: break;
    }
  }
  Tristate tensor = Tristate::kUnknown;
  if (const size_t mi = name.find("_MI"); mi != std::string_view::npos)
    tensor = number_at(name, mi + 3) > 1 ? Tristate::kYes : Tristate::kNo;
  set_gemm(out, "Tensile", input, NumericType::kF32, tensor);
  if (const size_t mt = name.find("_MT"); mt != std::string_view::npos) out.tile = tile_after(name, mt);
  return true;
}

// ampere_sgemm_128x64_nn, cutlass_80_simt_sgemm_…, magma_sgemmEx_kernel, sgemm_largek_lds64.
bool fma_gemm(std::string_view name, KernelName& out) {
  struct Word {
    std::string_view word;
    NumericType type;
  };
  static constexpr std::array kWords = {Word{"sgemm", NumericType::kF32}, Word{"dgemm", NumericType::kF64},
                                        Word{"cgemm", NumericType::kComplex},
                                        Word{"zgemm", NumericType::kComplex},
                                        Word{"hgemm", NumericType::kF16}};
  for (const Word& w : kWords) {
    const size_t at = name.find(w.word);
    if (at == std::string_view::npos) continue;
    set_gemm(out,
             has(name, "cutlass") ? "CUTLASS"
             : has(name, "magma") ? "MAGMA"
                                  : "cuBLAS",
             w.type, w.type, Tristate::kNo);
    out.tile = tile_after(name, at);
    return true;
  }
  return false;
}

bool convolution(std::string_view name, KernelName& out) {
  const bool conv = has_any(name, {"scudnn", "hcudnn", "icudnn", "convolve", "ImplicitGemmConvolution",
                                   "implicit_gemm", "wgrad", "dgrad", "fprop", "im2col", "winograd", "Conv2d",
                                   "conv2d", "conv_depthwise", "fft2d_", "cudnn_convolution"});
  if (!conv) return false;
  char letter = 0;
  Tristate tensor = Tristate::kUnknown;
  NumericType input = NumericType::kUnknown;
  if (find_mma_shape(name, &letter) != std::string_view::npos ||
      has_any(name, {"_tensor1", "884", "tensorop"})) {
    tensor = Tristate::kYes;
    input = type_in(name);
    if (input == NumericType::kF32 || (input == NumericType::kUnknown && letter == 's'))
      input = NumericType::kTF32;
  } else if (has_any(name, {"scudnn", "convolve_sgemm", "winograd", "simt"})) {
    tensor = Tristate::kNo;
    input = NumericType::kF32;
  } else {
    input = type_in(name);
  }
  out.kind = KernelKind::kConv;
  out.operation = has_any(name, {"wgrad", "Wgrad"})   ? "convolution weight gradient"
                  : has_any(name, {"dgrad", "Dgrad"}) ? "convolution data gradient"
                                                      : "convolution";
  out.library = has(name, "cutlass_") && !has(name, "cudnn") ? "CUTLASS" : "cuDNN";
  out.input = input;
  out.tensor_cores = tensor;
  if (has_any(name, {"im2col", "fft2d_"})) out.tensor_cores = Tristate::kUnknown;  // no product in these
  return true;
}

bool matrix_vector(std::string_view name, KernelName& out) {
  if (!has_any(name, {"gemv", "gemmk1_kernel", "gemmSN", "dot_kernel", "wvSplitK"})) return false;
  if (has(name, "splitKreduce")) return false;
  set_gemm(out, "cuBLAS", type_in(name), NumericType::kF32, Tristate::kNo);
  out.operation = "gemv";
  out.is_gemv = true;
  return true;
}

// Products of newer libraries whose names give the types in words.
bool worded_gemm(std::string_view name, KernelName& out) {
  const bool trtllm = name.starts_with("bmm_") || name.starts_with("gemm_");
  const bool cutlass3 = has_any(name, {"GemmUniversal", "cutlass3x_", "gemm::kernel::", "GemmWithBroadcast"});
  const bool other = has_any(name, {"deep_gemm", "fp8_gemm", "marlin", "Marlin", "gptq_gemm", "awq_gemm",
                                    "gemm_kernel", "GemmKernel", "_gemm_", "machete", "ck_tile::Gemm",
                                    "kernel_gemm", "gemm_xdl", "matmul_kernel", "gemmEx"});
  if (!trtllm && !cutlass3 && !other) return false;
  const NumericType input = type_in(name);
  Tristate tensor = Tristate::kUnknown;
  if (is_16_bit(input) || input == NumericType::kF8 || input == NumericType::kF4) tensor = Tristate::kYes;
  if (has_any(name, {"OpClassSimt", "simt"})) tensor = Tristate::kNo;
  if (has_any(name, {"OpClassTensorOp", "tensorop", "Sm90Tma", "xdl", "wgmma"})) tensor = Tristate::kYes;
  set_gemm(out, trtllm ? "TensorRT-LLM" : cutlass3 ? "CUTLASS" : "", input, NumericType::kF32, tensor);
  out.tile = tile_after(name, 0);
  return true;
}

}  // namespace

bool recognise_gemm(std::string_view name, KernelName& out) {
  if (has(name, "splitKreduce") || has_any(name, {"ReduceSplitK", "split_k_reduce", "splitk_reduce"})) {
    out.kind = KernelKind::kReduction;
    out.operation = "split-K reduce";
    out.library = "cuBLAS";
    out.input = type_in(name);
    return true;
  }
  // Elementwise helpers whose template arguments mention a product must not be taken for one.
  if (has(name, "at::native::") && !has(name, "gemm")) return false;
  out.arch = arch_in(name);
  return convolution(name, out) || nvjet_gemm(name, out) || tensile_gemm(name, out) ||
         matrix_vector(name, out) || mma_shape_gemm(name, out) || xmma_gemm(name, out) ||
         fma_gemm(name, out) || worded_gemm(name, out);
}

}  // namespace attnscope::kernel_name_parts
