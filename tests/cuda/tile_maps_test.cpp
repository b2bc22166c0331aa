// The maps of the tile layer against software models of the instructions, written from the PTX manual and
// sharing no code with them: the 128-byte swizzle, the wgmma matrix descriptor, register fragments, stmatrix.
#include "cuda/kernels_tile/maps.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace attnscope::tile {
namespace {

// The copy engine and the tensor cores permute address bits 4–6 by bits 7–9 (128-byte swizzle).
u32 swizzled_address(u32 linear) {
  return linear ^ (((linear >> 7) & 7) << 4);
}

struct Descriptor {
  u32 start, leading, stride;
  unsigned base_offset, mode;
  explicit Descriptor(u64 d)
      : start(static_cast<u32>(d & 0x3FFF) << 4),
        leading(static_cast<u32>((d >> 16) & 0x3FFF) << 4),
        stride(static_cast<u32>((d >> 32) & 0x3FFF) << 4),
        base_offset(static_cast<unsigned>((d >> 49) & 7)),
        mode(static_cast<unsigned>(d >> 62)) {}
};

// Where a K-major operand's element (row, k) of one instruction is read from.
u32 read_k_major(const Descriptor& d, int row, int k) {
  return swizzled_address(d.start + static_cast<u32>(row / 8) * d.stride + static_cast<u32>(row % 8) * 128 +
                          static_cast<u32>(k) * 2);
}

// Where an MN-major operand's element (k, column) is read from: atoms of 8 k × 64 columns.
u32 read_mn_major(const Descriptor& d, int k, int column) {
  return swizzled_address(d.start + static_cast<u32>(column / 64) * d.leading +
                          static_cast<u32>(k / 8) * d.stride + static_cast<u32>(k % 8) * 128 +
                          static_cast<u32>(column % 64) * 2);
}

TEST(TileMaps, SwizzledTileIsWhatTheCopyEngineWrites) {
  for (const int rows : {64, 80, 96, 112, 128, 176})
    for (const int columns : {64, 96, 128, 192, 256}) {
      std::set<int> seen;
      for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
          const int at = swizzled_offset(rows, row, column);
          const u32 linear = static_cast<u32>((column / 64) * rows * 128 + row * 128 + (column % 64) * 2);
          ASSERT_EQ(static_cast<u32>(at), swizzled_address(linear)) << rows << " " << row << " " << column;
          ASSERT_TRUE(seen.insert(at).second);
        }
      EXPECT_LE(*seen.rbegin() + 2, tile_bytes(rows, columns));
    }
}

TEST(TileMaps, KMajorDescriptorReadsEveryRowOfEveryStep) {
  constexpr u32 kBase = 0x1C400;
  for (const int rows : {64, 80, 112, 128, 176})
    for (const int contracted : {64, 96, 128, 192, 256})
      for (int k16 = 0; k16 < contracted / 16; ++k16) {
        const u64 packed = k_major_descriptor(kBase) + (static_cast<u64>(k_major_step_bytes(rows, k16)) >> 4);
        const Descriptor d(packed);
        ASSERT_EQ(d.mode, 1u);
        ASSERT_EQ(d.base_offset, 0u);
        for (int row = 0; row < rows; ++row)
          for (int k = 0; k < 16; ++k)
            ASSERT_EQ(read_k_major(d, row, k),
                      kBase + static_cast<u32>(swizzled_offset(rows, row, 16 * k16 + k)))
                << rows << " rows, step " << k16;
      }
}

TEST(TileMaps, MnMajorDescriptorReadsEveryColumnOfEveryStep) {
  constexpr u32 kBase = 0x8000;
  for (const int keys : {64, 80, 96, 112, 128, 176})
    for (const int columns : {64, 96, 128, 192, 256})
      for (int k16 = 0; k16 < keys / 16; ++k16) {
        const Descriptor d(mn_major_descriptor(kBase, panel_bytes(keys)) +
                           (static_cast<u64>(mn_major_step_bytes(k16)) >> 4));
        for (int k = 0; k < 16; ++k)
          for (int column = 0; column < columns; ++column)
            ASSERT_EQ(read_mn_major(d, k, column),
                      kBase + static_cast<u32>(swizzled_offset(keys, 16 * k16 + k, column)))
                << keys << " keys, step " << k16;
      }
}

// PTX manual, wgmma register fragments: thread t of warp w holds in accumulator registers, two by two,
// columns 8j + 2(t mod 4) of rows 16w + t / 4 and eight below.
TEST(TileMaps, AccumulatorsCoverTheTileOnce) {
  for (const int columns : {64, 80, 128, 256}) {
    std::set<std::pair<int, int>> seen;
    for (int thread = 0; thread < 128; ++thread)
      for (int i = 0; i < columns / 2; ++i) {
        const int warp = thread / 32, lane = thread % 32;
        EXPECT_EQ(accumulator_row(thread, i), 16 * warp + lane / 4 + (i % 4 >= 2 ? 8 : 0));
        EXPECT_EQ(accumulator_column(thread, i), i / 4 * 8 + lane % 4 * 2 + i % 2);
        EXPECT_TRUE(seen.emplace(accumulator_row(thread, i), accumulator_column(thread, i)).second);
      }
    EXPECT_EQ(seen.size(), static_cast<size_t>(64 * columns));
  }
}

// A in registers: words a0…a3 hold (row, k), (row + 8, k), (row, k + 8), (row + 8, k + 8), each with its
// neighbour.
TEST(TileMaps, WeightsFeedTheSecondProductWithoutAShuffle) {
  for (int thread = 0; thread < 128; ++thread)
    for (int k16 = 0; k16 < 11; ++k16)
      for (int word = 0; word < 4; ++word) {
        const int lane = thread % 32;
        EXPECT_EQ(operand_row(thread, word), thread / 32 * 16 + lane / 4 + (word == 1 || word == 3 ? 8 : 0));
        EXPECT_EQ(operand_column(thread, k16, word), 16 * k16 + lane % 4 * 2 + (word >= 2 ? 8 : 0));
        const int i = operand_first_accumulator(k16, word);
        for (int e = 0; e < 2; ++e) {
          EXPECT_EQ(accumulator_row(thread, i + e), operand_row(thread, word));
          EXPECT_EQ(accumulator_column(thread, i + e), operand_column(thread, k16, word) + e);
        }
      }
}

// stmatrix.x4: matrix m takes its eight row addresses from lanes 8m…8m+7; lane t supplies row t / 4, elements
// 2(t mod 4) and the next, of each matrix.
TEST(TileMaps, StmatrixPutsTheAccumulatorsWhereTmaStoresThem) {
  for (int c = 0; c < 16; ++c) {  // groups of 16 output columns
    std::map<std::pair<int, int>, std::pair<int, int>>
        stored;  // (row, column) of the target ← (thread, register)
    for (int lane = 0; lane < 32; ++lane)
      for (int m = 0; m < 4; ++m) {
        const int address_lane = 8 * m + lane / 4;
        const int row = stmatrix_row(address_lane);
        const int column = 16 * c + stmatrix_column(address_lane) + lane % 4 * 2;
        stored[{row, column}] = {lane, 8 * c + 2 * m};
      }
    EXPECT_EQ(stored.size(), 128u);
    for (const auto& [at, from] : stored) {
      EXPECT_EQ(accumulator_row(from.first, from.second), at.first);
      EXPECT_EQ(accumulator_column(from.first, from.second), at.second);
    }
  }
}

}  // namespace
}  // namespace attnscope::tile
