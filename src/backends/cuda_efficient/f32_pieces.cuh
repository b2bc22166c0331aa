#pragma once
// An f32 as the sum of three bf16, so that tensor cores which multiply bf16 give products of f32.
//
//   x = p0 + p1 + p2 exactly: every piece is the rest rounded to 8 bits, so |p1| ≤ 2⁻⁸|x| and |p2| ≤ 2⁻¹⁶|x|.
//   x·y ≈ p2·q0 + p0·q2 + p1·q1 + p1·q0 + p0·q1 + p0·q0; what is left out is at most 2⁻²³ of it, and 2⁻²⁸ on
//   average.
//
// bf16 has the exponents of f32: nothing overflows, and pieces vanish only below 2⁻¹³³.

#include "cuda/kernels_tile/maps.h"

namespace attnscope::efficient_f32 {

using tile::u32;

inline constexpr int kPieces = 3;
inline constexpr int kProducts = 6;

// The pieces of both operands in each product, in the order in which they are added to one sum: the unit
// truncates what it adds to the sum's last place, so small products go first, while the sum is small.
struct PiecePair {
  int a, b;
};
ATTNSCOPE_HD constexpr PiecePair piece_pair(int product) {
  constexpr PiecePair pairs[kProducts] = {{2, 0}, {0, 2}, {1, 1}, {1, 0}, {0, 1}, {0, 0}};
  return pairs[product];
}

// Two neighbouring elements: word i packs their pieces i, the first element in the lower half.
struct Pieces {
  u32 word[kPieces];
};

// Two floats rounded to nearest even bf16.
ATTNSCOPE_HD u32 pack_bf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  const auto round = [](float x) {
    const u32 bits = __builtin_bit_cast(u32, x);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0x7FFFu;
    return (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;
  };
  return round(low) | round(high) << 16;
#endif
}

ATTNSCOPE_HD Pieces cut(float x, float y) {
  Pieces p{};
  for (int i = 0; i < kPieces; ++i) {
    p.word[i] = pack_bf16(x, y);
    x -= __builtin_bit_cast(float, p.word[i] << 16);
    y -= __builtin_bit_cast(float, p.word[i] & 0xFFFF0000u);
  }
  return p;
}

// ---- How a warpgroup writes 64 rows: a lane has four neighbouring columns (16 bytes of f32, 8 of each
// piece), a warp one row of 128 columns or two of 64, so that sixteen lanes fill the 128 bytes of a panel's
// row.
inline constexpr int kTileRows = 64;

ATTNSCOPE_HD constexpr int rows_a_pass(int columns) {
  return 4 * 128 / columns;
}
ATTNSCOPE_HD constexpr int passes(int columns) {
  return kTileRows / rows_a_pass(columns);
}
ATTNSCOPE_HD constexpr int row_of_thread(int columns, int thread) {
  return thread / (columns / 4);
}
ATTNSCOPE_HD constexpr int column_of_thread(int columns, int thread) {
  return thread % (columns / 4) * 4;
}
// Byte offset in a piece's tile of what a thread writes in a pass, from the offsets of its passes 0 and 1:
// two passes are eight rows or sixteen, a whole number of the swizzle's periods.
ATTNSCOPE_HD constexpr int pass_offset(int columns, int pass, int first, int second) {
  return (pass % 2 == 0 ? first : second) + pass / 2 * 2 * rows_a_pass(columns) * tile::kPanelRowBytes;
}

}  // namespace attnscope::efficient_f32
