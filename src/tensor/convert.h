#pragma once
// Exact conversions between the element types: widening is exact, narrowing rounds to nearest even, NaN stays
// NaN (quieted), infinities and signed zeros stay. No double rounding from f64.

#include "attnscope/dtype.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace attnscope {

inline float bf16_to_f32(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

inline uint16_t f32_to_bf16(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((x >> 16) | 0x40u);
  return static_cast<uint16_t>((x + 0x7fffu + ((x >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  // Subnormal: magnitude · 2^-24 is exact in f32.
  const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

inline uint16_t f32_to_f16(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  const uint16_t sign = static_cast<uint16_t>((x >> 16) & 0x8000u);
  const uint32_t magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x1ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // ≥ 65520 rounds to infinity
  if (magnitude >= 0x38800000u) {                                              // normal in f16
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  // Subnormal: adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded to nearest even.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
}

// f64 → f32 rounded to odd: a later rounding to 16 bits then sees every discarded bit.
inline float f64_to_f32_odd(double d) {
  const float f = static_cast<float>(d);
  if (static_cast<double>(f) == d || d != d) return f;
  uint32_t bits = std::bit_cast<uint32_t>(f);
  const bool away = (d > 0) ? static_cast<double>(f) > d : static_cast<double>(f) < d;
  if (away) bits -= 1;  // truncate towards zero
  return std::bit_cast<float>(bits | 1u);
}
inline uint16_t f64_to_bf16(double d) {
  return f32_to_bf16(f64_to_f32_odd(d));
}
inline uint16_t f64_to_f16(double d) {
  return f32_to_f16(f64_to_f32_odd(d));
}

// Element `index` of a buffer of any dtype, as f64 (exact but for i64 beyond 2^53); bool is 0 or 1.
inline double load_f64(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF64: return static_cast<const double*>(data)[index];
    case DType::kF32: return static_cast<double>(static_cast<const float*>(data)[index]);
    case DType::kF16: return static_cast<double>(f16_to_f32(static_cast<const uint16_t*>(data)[index]));
    case DType::kBF16: return static_cast<double>(bf16_to_f32(static_cast<const uint16_t*>(data)[index]));
    case DType::kBool: return static_cast<const uint8_t*>(data)[index] != 0 ? 1.0 : 0.0;
    case DType::kI32: return static_cast<double>(static_cast<const int32_t*>(data)[index]);
    case DType::kI64: return static_cast<double>(static_cast<const int64_t*>(data)[index]);
  }
  return 0.0;
}

inline void store_f64(void* data, DType dtype, int64_t index, double value) {
  switch (dtype) {
    case DType::kF64: static_cast<double*>(data)[index] = value; return;
    case DType::kF32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case DType::kF16: static_cast<uint16_t*>(data)[index] = f64_to_f16(value); return;
    case DType::kBF16: static_cast<uint16_t*>(data)[index] = f64_to_bf16(value); return;
    case DType::kBool: static_cast<uint8_t*>(data)[index] = value != 0.0 ? 1 : 0; return;
    case DType::kI32: static_cast<int32_t*>(data)[index] = static_cast<int32_t>(value); return;
    case DType::kI64: static_cast<int64_t*>(data)[index] = static_cast<int64_t>(value); return;
  }
}

}  // namespace attnscope
