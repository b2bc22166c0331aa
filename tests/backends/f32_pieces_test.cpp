// The f32 kernel for Hopper: f32 as three bf16 pieces, and where a warpgroup writes them, against models of
// the swizzle and of the wgmma descriptors that share no code with them.
#include "backends/cuda_efficient/f32_pieces.cuh"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace attnscope::efficient_f32 {
namespace {

using tile::u64;

float piece(const Pieces& p, int i, bool second) {
  return std::bit_cast<float>(second ? p.word[i] & 0xFFFF0000u : p.word[i] << 16);
}

TEST(F32Pieces, ThreeBf16HoldAnF32Exactly) {
  std::mt19937 engine(5);
  std::uniform_int_distribution<uint32_t> any(0x10000000u, 0x7F000000u);
  for (int n = 0; n < 200000; ++n) {
    const float x = std::bit_cast<float>(any(engine) | (n % 2 != 0 ? 0x80000000u : 0u)),
                y = std::bit_cast<float>(any(engine));
    const Pieces p = cut(x, y);
    for (const bool second : {false, true}) {
      const double whole = second ? y : x;
      double sum = 0;
      for (int i = 0; i < kPieces; ++i) {
        const double part = piece(p, i, second);
        EXPECT_LE(std::abs(part), std::ldexp(std::abs(whole), -8 * i) * (i == 0 ? 1.01 : 1)) << whole;
        sum += part;
      }
      ASSERT_EQ(sum, whole);
    }
  }
  EXPECT_EQ(cut(0.0f, -0.0f).word[0], 0x80000000u);
  // What has no pieces shows in the first.
  for (const float x : {INFINITY, NAN, 3.4e38f}) EXPECT_FALSE(std::isfinite(piece(cut(x, 0), 0, false))) << x;
}

TEST(F32Pieces, SixProductsAreAnF32Product) {
  std::mt19937 engine(6);
  std::normal_distribution<float> normal;
  std::set<std::pair<int, int>> pairs;
  for (int product = 0; product < kProducts; ++product)
    pairs.emplace(piece_pair(product).a, piece_pair(product).b);
  EXPECT_EQ(pairs.size(), static_cast<size_t>(kProducts));
  double worst = 0, total = 0;
  constexpr int kCount = 100000;
  for (int n = 0; n < kCount; ++n) {
    const float x = normal(engine), y = normal(engine);
    const Pieces a = cut(x, 0), b = cut(y, 0);
    double sum = 0;
    for (int product = 0; product < kProducts; ++product)
      sum += static_cast<double>(piece(a, piece_pair(product).a, false)) *
             static_cast<double>(piece(b, piece_pair(product).b, false));
    const double exact = static_cast<double>(x) * static_cast<double>(y);
    const double error = std::abs(sum - exact) / std::abs(exact);
    worst = std::max(worst, error), total += error;
  }
  EXPECT_LT(worst, std::ldexp(1.0, -23));
  EXPECT_LT(total / kCount, std::ldexp(1.0, -27));
}

// A tile as the threads of a warpgroup write one piece of it: what element lies at every byte pair.
template <int kColumns>
std::vector<int> written_tile() {
  std::vector<int> at(static_cast<size_t>(tile::tile_bytes(kTileRows, kColumns) / 2), -1);
  for (int pass = 0; pass < passes(kColumns); ++pass)
    for (int warp = 0; warp < 4; ++warp) {
      std::array<std::set<int>, 2> banks;  // of 8-byte words, by half warp
      for (int lane = 0; lane < 32; ++lane) {
        const int thread = 32 * warp + lane, row = row_of_thread(kColumns, thread),
                  column = column_of_thread(kColumns, thread);
        const int first = tile::swizzled_offset(kTileRows, row, column),
                  second = tile::swizzled_offset(kTileRows, row + rows_a_pass(kColumns), column);
        const int offset = pass_offset(kColumns, pass, first, second);
        EXPECT_TRUE(banks[static_cast<size_t>(lane / 16)].insert(offset / 8 % 16).second) << thread;
        for (int n = 0; n < 4; ++n) {
          int& element = at[static_cast<size_t>(offset / 2 + n)];
          EXPECT_EQ(element, -1);
          element = (row + pass * rows_a_pass(kColumns)) * kColumns + column + n;
        }
      }
    }
  return at;
}

// PTX ISA: 128-byte swizzle; start and stride of a matrix descriptor.
size_t element_at(u64 descriptor, int group, int row, int column) {
  const u32 start = static_cast<u32>(descriptor & 0x3FFF) << 4,
            stride = static_cast<u32>(descriptor >> 32 & 0x3FFF) << 4;
  const u32 linear = start + static_cast<u32>(group) * stride + static_cast<u32>(row * 128 + column * 2);
  return (linear ^ (linear >> 7 & 7) << 4) / 2;
}

template <int kColumns>
void check_reads() {
  const std::vector<int> at = written_tile<kColumns>();
  for (const int element : at) ASSERT_GE(element, 0);
  for (int k16 = 0; k16 < kColumns / 16; ++k16) {
    const u64 d = tile::k_major_descriptor(0) + u64(tile::k_major_step_bytes(kTileRows, k16) >> 4);
    for (int row = 0; row < kTileRows; ++row)
      for (int k = 0; k < 16; ++k)
        ASSERT_EQ(at[element_at(d, row / 8, row % 8, k)], row * kColumns + 16 * k16 + k);
  }
  for (int half = 0; half < kColumns / 64; ++half)
    for (int k16 = 0; k16 < kTileRows / 16; ++k16) {
      const u64 d = tile::mn_major_descriptor(0, tile::panel_bytes(kTileRows)) +
                    u64((half * tile::panel_bytes(kTileRows) + tile::mn_major_step_bytes(k16)) >> 4);
      for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 64; ++column)
          ASSERT_EQ(at[element_at(d, k / 8, k % 8, column)], (16 * k16 + k) * kColumns + 64 * half + column);
    }
}

TEST(F32Pieces, TilesAreWrittenWithoutConflictsWhereTheProductsReadThem) {
  check_reads<64>();
  check_reads<128>();
}

}  // namespace
}  // namespace attnscope::efficient_f32
