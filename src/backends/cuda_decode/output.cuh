#pragma once
// What the kernels share: lengths, and the last step of a row (sink, division, LSE).

#include "backends/cuda_decode/device.cuh"
#include "backends/cuda_decode/params.h"

namespace attnscope::decode {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

template <Type16 T>
ATTNSCOPE_D float to_float(u16 bits) {
  if constexpr (T == Type16::kBf16) return __int_as_float(int(bits) << 16);
  return f16_to_float(bits);
}

// Keys in the cache for batch entry b, before this call appends; never outside what there is room for,
// whatever the lengths hold.
ATTNSCOPE_D int stored_of(const Problem& p, int b) {
  if (p.lengths == nullptr) return p.keys;
  const i64 at = b * p.lengths_stride;
  const i64 stored =
      p.lengths_wide ? static_cast<const i64*>(p.lengths)[at] : static_cast<const int*>(p.lengths)[at];
  return int(max(i64(0), min(stored, i64(p.keys))));
}
// Those appended included.
ATTNSCOPE_D int keys_of(const Problem& p, int b) {
  return min(stored_of(p, b) + p.appended, p.keys);
}
ATTNSCOPE_D int count_of(const Problem& p, int b) {
  return key_tiles(p, keys_of(p, b)).count;
}

ATTNSCOPE_D float sink_of(const Params& p, int head) {
  const i64 at = head * p.sink_stride;
  if (p.sink_type == SinkType::kF32) return static_cast<const float*>(p.sinks)[at] * kLog2E;
  const u16 bits = static_cast<const u16*>(p.sinks)[at];
  return (p.sink_type == SinkType::kBf16 ? to_float<Type16::kBf16>(bits) : to_float<Type16::kF16>(bits)) *
         kLog2E;
}

// Weights of parts are relative to 2^maximum; a part without keys has maximum −∞ and sum 0.
struct State {
  float maximum, sum;
};
// What to multiply a part's sums with when they are brought to the reference `maximum`.
ATTNSCOPE_D float weight_of(float part_maximum, float maximum) {
  return maximum == -infinity() ? 1.0f : exp2_unit(part_maximum - maximum);  // all empty: sums are 0 (or NaN)
}

// The factor that turns the sums of a row into its output.
ATTNSCOPE_D float finish_row(const Params& p, int head, State& s) {
  if (s.sum == 0.0f) return 0.0f;
  float scale = 1.0f;
  if (p.sink_type != SinkType::kNone) {
    const float sink = sink_of(p, head);
    const float maximum = fmaxf(s.maximum, sink);
    scale = weight_of(s.maximum, maximum);
    s.sum = s.sum * scale + exp2_unit(sink - maximum);
    s.maximum = maximum;
  }
  return __fdividef(scale, s.sum);
}

ATTNSCOPE_D void store_lse(const Params& p, int batch, Row row, const State& s) {
  p.lse[batch * p.lse_strides[0] + row.head * p.lse_strides[1] + row.i * p.lse_strides[2]] =
      s.sum == 0.0f ? -infinity() : (s.maximum + log2_unit(s.sum)) * kLn2;
}

template <Type16 T>
ATTNSCOPE_D void store_output(const Params& p, int batch, Row row, int column, const float (&v)[4]) {
  u16* to = p.out + batch * p.out_strides[0] + row.head * p.out_strides[1] + row.i * p.out_strides[2] +
            column * p.out_strides[3];
  const u32 low = pack16<T>(v[0], v[1]), high = pack16<T>(v[2], v[3]);
  to[0] = u16(low);
  to[p.out_strides[3]] = u16(low >> 16);
  to[2 * p.out_strides[3]] = u16(high);
  to[3 * p.out_strides[3]] = u16(high >> 16);
}

}  // namespace attnscope::decode
