#pragma once
// The instructions of the tile layer's mma.cuh, modelled from the PTX manual: which lane holds which element.

#include "cuda/kernels_tile/math.cuh"

namespace attnscope::tile {

template <Type16 T>
float value16(u32 word, int half) {
  const auto bits = static_cast<uint16_t>(word >> (16 * half));
  return T == Type16::kBf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

// d (16 × 8) += a (16 × 16) · b (16 × 8). "Matrix Fragments for mma.m16n8k16 with floating point type".
template <Type16 T>
void mma_16816(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  struct Operands {
    u32 a[4], b[2];
  } mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const void* const* all = cuda_model::exchange(&mine);
  const int lane = cuda_model::lane(), group = lane / 4, in_group = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = group + (i >= 2 ? 8 : 0), column = 2 * in_group + (i & 1);
    for (int k = 0; k < 16; ++k) {
      const auto& from_a = *static_cast<const Operands*>(all[(row % 8) * 4 + (k % 8) / 2]);
      const auto& from_b = *static_cast<const Operands*>(all[column * 4 + (k % 8) / 2]);
      d[i] += value16<T>(from_a.a[(row >= 8 ? 1 : 0) + (k >= 8 ? 2 : 0)], k % 2) *
              value16<T>(from_b.b[k >= 8 ? 1 : 0], k % 2);
    }
  }
  cuda_model::wait_warp();
}

inline u32 shared_address_of(const void* p) {
  return cuda_model::shared_address(p);
}

// Lane l gives the address of row l mod 8 of matrix l / 8; it receives, of each matrix, row l / 4, elements
// 2·(l mod 4) and the next; transposed: column l / 4 of these rows.
inline void load_matrices(u32 (&r)[4], u32 address, bool transposed) {
  const void* const* all = cuda_model::exchange(&address);
  const int lane = cuda_model::lane();
  for (int m = 0; m < 4; ++m) {
    r[m] = 0;
    for (int e = 0; e < 2; ++e) {
      const int row = transposed ? 2 * (lane % 4) + e : lane / 4,
                column = transposed ? lane / 4 : 2 * (lane % 4) + e;
      const auto* at =
          static_cast<const u16*>(cuda_model::shared_pointer(*static_cast<const u32*>(all[8 * m + row])));
      r[m] |= u32(at[column]) << (16 * e);
    }
  }
  cuda_model::wait_warp();
}
inline void ldmatrix(u32 (&r)[4], u32 address) {
  load_matrices(r, address, false);
}
inline void ldmatrix_transposed(u32 (&r)[4], u32 address) {
  load_matrices(r, address, true);
}

inline void copy_async_16(u32 to, const void* from, int bytes) {
  cuda_model::copy_async(to, from, bytes);
}
inline void copy_async_commit() {
  cuda_model::copy_commit();
}
template <int kPending>
void copy_async_wait() {
  cuda_model::copy_wait(kPending);
}
inline void store_shared(u32 to, const u32 (&w)[4]) {
  __builtin_memcpy(cuda_model::shared_pointer(to), w, 16);
}

}  // namespace attnscope::tile
