#pragma once
// Element types and devices.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace attnscope {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kBool, kI32, kI64 };

constexpr size_t dtype_size(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kBool: return 1;
  }
  return 0;
}
// The short names used on the command line and in every report.
constexpr std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::kF64: return "f64";
    case DType::kF32: return "f32";
    case DType::kF16: return "f16";
    case DType::kBF16: return "bf16";
    case DType::kBool: return "bool";
    case DType::kI32: return "i32";
    case DType::kI64: return "i64";
  }
  return "?";
}
constexpr bool dtype_is_float(DType t) {
  return t <= DType::kBF16;
}
constexpr bool dtype_is_half(DType t) {
  return t == DType::kF16 || t == DType::kBF16;
}

enum class DeviceType : uint8_t { kCpu, kCuda };
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  constexpr bool is_cpu() const { return type == DeviceType::kCpu; }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

}  // namespace attnscope
