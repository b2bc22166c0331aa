#pragma once
// Packing of strided rows into panels, one block of keys at a time. Elements past the end of a row and rows
// past the last key become zero, so kernels need no tails.

#include "backends/cpu_fused/kernel/frame.h"

namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS {

// The n ≤ kW elements of a line from d on, widened. `line` has any element stride.
template <typename T>
ATTNSCOPE_INLINE vf load_line(const char* line, int64_t stride, int64_t d, int n) {
  if (stride == static_cast<int64_t>(sizeof(T))) {
    const T* at = reinterpret_cast<const T*>(line) + d;
    return n == kW ? load(at) : load_n(at, n);
  }
  float lanes[kW] = {};
  for (int i = 0; i < n; ++i) lanes[i] = to_float(*reinterpret_cast<const T*>(line + (d + i) * stride));
  return vload(lanes);
}

ATTNSCOPE_INLINE int lanes_left(int64_t total, int64_t at) {
  return static_cast<int>(max_of<int64_t>(0, min_of<int64_t>(kW, total - at)));
}

// K rows key0 … key0+n−1 → [panel][depth][kPanel] f32.
template <typename T>
void pack_keys_f32(const Frame& f, const KeyRows& rows, int64_t key0, int64_t n, float* panels) {
  const int64_t depth = f.layout.depth, dim = f.p.head_dim, stride = f.p.k.stride[3];
  for (int64_t j = 0; j < round_up(n, kPanel); j += kW) {
    const char* line[kW];
    for (int i = 0; i < kW; ++i) line[i] = j + i < n ? rows.row(key0 + j + i) : nullptr;
    float* dst = panels + j / kPanel * depth * kPanel + j % kPanel;
    for (int64_t d = 0; d < dim; d += kW) {
      const int count = lanes_left(dim, d);
      vf x[kW];
      for (int i = 0; i < kW; ++i) x[i] = line[i] ? load_line<T>(line[i], stride, d, count) : vset(0.0f);
      transpose(x);
      for (int i = 0; i < count; ++i) vstore(dst + (d + i) * kPanel, x[i]);
    }
    for (int64_t d = dim; d < depth; ++d) vstore(dst + d * kPanel, vset(0.0f));
  }
}

// V rows → [value panel][keys][kPanel] f32, `keys` lines a panel. Returns whether all elements are finite.
template <typename T>
bool pack_values_f32(const Frame& f, const KeyRows& rows, int64_t key0, int64_t n, float* panels) {
  const int64_t width = f.layout.value_width, dim = f.p.value_dim, stride = f.p.v.stride[3];
  const int64_t lines = f.p.keys_per_block;
  vf trouble = vset(0.0f);  // stays 0 as long as every element is finite
  for (int64_t j = 0; j < n; ++j) {
    const char* line = rows.row(key0 + j);
    for (int64_t d = 0; d < width; d += kW) {
      const vf x = d < dim ? load_line<T>(line, stride, d, lanes_left(dim, d)) : vset(0.0f);
      trouble = vfma(x, vset(0.0f), trouble);
      vstore(panels + (d / kPanel * lines + j) * kPanel + d % kPanel, x);
    }
  }
  return hsum(trouble) == 0.0f;
}

// 2^e by two factors, so that e far outside the exponent range of a float still works.
struct PowerOfTwo {
  float first, second;
};
inline PowerOfTwo power_of_two(int e) {
  const int half = max_of(-126, min_of(127, e / 2)), rest = max_of(-126, min_of(127, e - half));
  return {bits_to_float(static_cast<uint32_t>(half + 127) << 23),
          bits_to_float(static_cast<uint32_t>(rest + 127) << 23)};
}

// Query row r of the task.
ATTNSCOPE_INLINE const char* query_line(const Frame& f, int64_t r) {
  const Strided& q = f.p.q;
  return q.data + f.u.batch * q.stride[0] + f.head(r) * q.stride[1] +
         (f.u.q_begin + f.position(r)) * q.stride[2];
}

// Elements d … d+kW−1 of the scaled queries of one register tile, a row per vector; zeros outside.
struct QueryTile {
  const char* line[kRowTile];  // null past the last row
  vf first, second;            // the two factors of sign · 2^exponent
  int64_t stride, dim;

  QueryTile(const Frame& f, int64_t row0) : stride(f.p.q.stride[3]), dim(f.p.head_dim) {
    const PowerOfTwo power = power_of_two(f.p.q_exponent);
    first = vset(power.first * f.p.q_sign);
    second = vset(power.second);
    for (int r = 0; r < kRowTile; ++r) line[r] = row0 + r < f.t.rows ? query_line(f, row0 + r) : nullptr;
  }
  template <typename T>
  ATTNSCOPE_INLINE vf load(int r, int64_t d) const {
    const int n = line[r] ? lanes_left(dim, d) : 0;
    return n > 0 ? load_line<T>(line[r], stride, d, n) * first * second : vset(0.0f);
  }
};

// Turns kRowTile vectors around and stores the columns kRowTile apart. Each store is a whole vector; what it
// writes too much, the next one overwrites (the last one runs into memory that is filled later).
ATTNSCOPE_INLINE void store_columns(vf x[kW], int64_t columns, float* dst) {
  for (int i = kRowTile; i < kW; ++i) x[i] = vset(0.0f);
  transpose(x);
  for (int64_t i = 0; i < min_of<int64_t>(kW, columns); ++i) vstore(dst + i * kRowTile, x[i]);
}

}  // namespace attnscope::cpu_fused::ATTNSCOPE_ISA_NS
