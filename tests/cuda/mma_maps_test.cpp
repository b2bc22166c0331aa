// The maps of mma.sync and ldmatrix against software models of the instructions, written from the PTX manual
// and sharing no code with them.
#include "cuda/kernels_tile/mma_maps.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace attnscope::tile {
namespace {

// Fragments of m16n8k16 as the manual draws them: [lane][word][half] → (row, contracted) or (contracted,
// column).
struct At {
  int first, second;
};
At a_fragment(int lane, int word, int half) {
  const int group = lane >> 2, in_group = lane & 3;
  return {group + (word == 1 || word == 3 ? 8 : 0), in_group * 2 + half + (word >= 2 ? 8 : 0)};
}
At b_fragment(int lane, int word, int half) {
  const int group = lane >> 2, in_group = lane & 3;
  return {in_group * 2 + half + (word == 1 ? 8 : 0), group};
}
At c_fragment(int lane, int i) {
  return {(lane >> 2) + (i >= 2 ? 8 : 0), (lane & 3) * 2 + (i & 1)};
}

// A tile whose element (row, column) holds its own coordinates.
std::vector<At> tile_of(int rows, int columns) {
  std::vector<At> memory(static_cast<size_t>(tile_bytes(rows, columns) / 2), At{-1, -1});
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      memory[static_cast<size_t>(swizzled_offset(rows, row, column) / 2)] = {row, column};
  return memory;
}

using Addresses = std::array<int, 32>;  // bytes

// What ldmatrix.x4 gives: lane l supplies row l % 8 of matrix l / 8; of matrix w a lane receives word w, two
// elements.
At loaded(const std::vector<At>& memory, const Addresses& addresses, bool transposed, int lane, int word,
          int half) {
  const int row = transposed ? (lane & 3) * 2 + half : lane >> 2;
  const int column = transposed ? lane >> 2 : (lane & 3) * 2 + half;
  return memory[static_cast<size_t>(addresses[static_cast<size_t>(8 * word + row)] / 2 + column)];
}

// The eight rows of each matrix lie in eight different groups of four banks.
void expect_no_conflicts(const Addresses& addresses) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::set<int> groups;
    for (int row = 0; row < 8; ++row)
      groups.insert(addresses[static_cast<size_t>(8 * matrix + row)] / 16 % 8);
    EXPECT_EQ(groups.size(), 8u);
  }
}

template <class Lane>
Addresses addresses_of(Lane lane_at, int rows, int r16, int c16) {
  Addresses all;
  for (int lane = 0; lane < 32; ++lane)
    all[static_cast<size_t>(lane)] = block_offset(rows, lane_at(lane), r16, c16);
  return all;
}

TEST(MmaMaps, AccumulatorIsTheManuals) {
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(mma_row(lane, i), c_fragment(lane, i).first);
      EXPECT_EQ(mma_column(lane, i), c_fragment(lane, i).second);
    }
}

TEST(MmaMaps, QueriesAreLoadedAsA) {
  for (const int rows : {64, 128})
    for (const int columns : {64, 96, 128, 192, 256}) {
      const auto memory = tile_of(rows, columns);
      for (int r16 = 0; r16 < rows / 16; ++r16)
        for (int c16 = 0; c16 < columns / 16; ++c16) {
          const Addresses at = addresses_of(ldmatrix_a, rows, r16, c16);
          expect_no_conflicts(at);
          for (int lane = 0; lane < 32; ++lane)
            for (int word = 0; word < 4; ++word)
              for (int half = 0; half < 2; ++half) {
                const At want = a_fragment(lane, word, half),
                         got = loaded(memory, at, false, lane, word, half);
                ASSERT_EQ(got.first, 16 * r16 + want.first);
                ASSERT_EQ(got.second, 16 * c16 + want.second);
              }
        }
    }
}

// Words 0 and 1 are the B operand of keys 0–7 of the block, words 2 and 3 of keys 8–15.
TEST(MmaMaps, KeysAreLoadedAsB) {
  for (const int keys : {32, 64, 128})
    for (const int columns : {64, 96, 256}) {
      const auto memory = tile_of(keys, columns);
      for (int n16 = 0; n16 < keys / 16; ++n16)
        for (int c16 = 0; c16 < columns / 16; ++c16) {
          const Addresses at = addresses_of(ldmatrix_b, keys, n16, c16);
          expect_no_conflicts(at);
          for (int lane = 0; lane < 32; ++lane)
            for (int word = 0; word < 4; ++word)
              for (int half = 0; half < 2; ++half) {
                const At want = b_fragment(lane, word % 2, half),
                         got = loaded(memory, at, false, lane, word, half);
                ASSERT_EQ(got.first, 16 * n16 + 8 * (word / 2) + want.second);
                ASSERT_EQ(got.second, 16 * c16 + want.first);
              }
        }
    }
}

TEST(MmaMaps, ValuesAreLoadedAsTransposedB) {
  for (const int keys : {32, 64, 128})
    for (const int columns : {64, 96, 256}) {
      const auto memory = tile_of(keys, columns);
      for (int n16 = 0; n16 < keys / 16; ++n16)
        for (int c16 = 0; c16 < columns / 16; ++c16) {
          const Addresses at = addresses_of(ldmatrix_b_transposed, keys, n16, c16);
          expect_no_conflicts(at);
          for (int lane = 0; lane < 32; ++lane)
            for (int word = 0; word < 4; ++word)
              for (int half = 0; half < 2; ++half) {
                const At want = b_fragment(lane, word % 2, half),
                         got = loaded(memory, at, true, lane, word, half);
                ASSERT_EQ(got.first, 16 * n16 + want.first);
                ASSERT_EQ(got.second, 16 * c16 + 8 * (word / 2) + want.second);
              }
        }
    }
}

// Word w of P's A operand packs what the same lane accumulated.
TEST(MmaMaps, ScoresFeedTheSecondProduct) {
  for (int lane = 0; lane < 32; ++lane)
    for (int word = 0; word < 4; ++word)
      for (int half = 0; half < 2; ++half) {
        const At want = a_fragment(lane, word, half);
        const At have = c_fragment(lane, mma_a_first(word) + half);
        EXPECT_EQ(have.first, want.first);
        EXPECT_EQ(8 * mma_a_tile(word) + have.second, want.second);
      }
}

}  // namespace
}  // namespace attnscope::tile
