#pragma once
// The families of kernel names, one recogniser each. A recogniser fills `out` and answers true when the
// name is of its family; decode_kernel_name asks them in the order below, most specific first.

#include "analysis/kernel_name.h"

#include <string_view>

namespace attnscope::kernel_name_parts {

bool recognise_attention(std::string_view name, KernelName& out);
bool recognise_triton(std::string_view name, KernelName& out);
bool recognise_gemm(std::string_view name, KernelName& out);
bool recognise_aten(std::string_view name, KernelName& out);

// ---- helpers shared by them ----------------------------------------------------------------------
inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
inline bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (auto part : parts)
    if (has(text, part)) return true;
  return false;
}
// The unsigned number at text[at…], and where it ends; −1 when there is no digit.
int number_at(std::string_view text, size_t at, size_t* end = nullptr);
// The first "AxB" or "AxBxC" at or after `from` in text; {0,0,0} when there is none.
Tile tile_after(std::string_view text, size_t from);
// "sm_90" from "sm90", "sm_90", "Sm90", "_90_tensorop"; empty when the name does not say.
std::string arch_in(std::string_view name);
// The first floating type named in text: "cutlass::half_t", "c10::BFloat16", "__nv_bfloat16", "float".
NumericType type_in(std::string_view text);

}  // namespace attnscope::kernel_name_parts
