// The f32 kernel's maps against a software model of the instruction, and its split of f32 into two tf32.
#include "backends/cuda_efficient/f32_tile.cuh"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace attnscope::efficient_f32 {
namespace {

constexpr int kColumns = 64, kKeys = 64, kChunks = kColumns / 4;
using Matrix = std::vector<double>;                       // row-major
using Registers = std::array<std::array<double, 4>, 32>;  // of each lane

Matrix random_matrix(int rows, int columns, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Matrix m(static_cast<size_t>(rows * columns));
  for (double& x : m) x = normal(engine);
  return m;
}

// As the copies place it: chunk c of row r at c XOR f(r).
template <class Swizzle>
Matrix in_shared_memory(const Matrix& m, Swizzle swizzle) {
  Matrix image(m.size());
  for (int r = 0; r * kColumns < static_cast<int>(m.size()); ++r)
    for (int column = 0; column < kColumns; ++column)
      image[static_cast<size_t>((r * kChunks + ((column / 4) ^ swizzle(r))) * 4 + column % 4)] =
          m[static_cast<size_t>(r * kColumns + column)];
  return image;
}

// mma.m16n8k8 by the fragment layout of the PTX ISA.
void mma(Registers& c, const Registers& a, const Registers& b) {
  double full_a[16][8], full_b[8][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto l = static_cast<size_t>(lane);
    const int g = lane / 4, t = lane % 4;
    full_a[g][t] = a[l][0], full_a[g + 8][t] = a[l][1], full_a[g][t + 4] = a[l][2],
    full_a[g + 8][t + 4] = a[l][3];
    full_b[t][g] = b[l][0], full_b[t + 4][g] = b[l][1];
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 8; ++k)
        c[static_cast<size_t>(lane)][static_cast<size_t>(i)] +=
            full_a[lane / 4 + 8 * (i / 2)][k] * full_b[k][2 * (lane % 4) + i % 2];
}

// Eight lanes at a time read 128 bits each: they must fall on eight different groups of four banks.
void expect_no_conflict(const std::array<int, 32>& chunks) {
  for (size_t first = 0; first < 32; first += 8) {
    std::set<int> groups;
    for (size_t lane = first; lane < first + 8; ++lane) groups.insert(chunks[lane] % 8);
    EXPECT_EQ(groups.size(), 8u) << "lanes from " << first;
  }
}

TEST(EfficientF32, ProductsFollowTheInstructionAndMeetNoBankConflict) {
  const Matrix q = random_matrix(16, kColumns, 1), k = random_matrix(kKeys, kColumns, 2),
               v = random_matrix(kKeys, kColumns, 3);
  const Matrix shared_q = in_shared_memory(q, swizzle_qk), shared_k = in_shared_memory(k, swizzle_qk),
               shared_v = in_shared_memory(v, swizzle_v);
  const auto word = [](const Matrix& m, int chunk, int i) { return m[static_cast<size_t>(chunk * 4 + i)]; };

  std::vector<Registers> scores(kKeys / 8, Registers{});
  for (int s = 0; s < kColumns / 16; ++s)
    for (int j = 0; j < kKeys / 8; ++j) {
      std::array<int, 32> upper{}, lower{}, keys{};
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4, chunk = chunk_qk(s, g, t);
        upper[static_cast<size_t>(lane)] = g * kChunks + chunk;
        lower[static_cast<size_t>(lane)] = (g + 8) * kChunks + chunk;
        keys[static_cast<size_t>(lane)] = (8 * j + g) * kChunks + chunk;
      }
      expect_no_conflict(upper), expect_no_conflict(lower), expect_no_conflict(keys);
      for (int product = 0; product < 2; ++product) {
        Registers a{}, b{};
        for (size_t lane = 0; lane < 32; ++lane) {
          const int low = 2 * product, high = low + 1;
          a[lane] = {word(shared_q, upper[lane], low), word(shared_q, lower[lane], low),
                     word(shared_q, upper[lane], high), word(shared_q, lower[lane], high)};
          b[lane] = {word(shared_k, keys[lane], low), word(shared_k, keys[lane], high)};
        }
        mma(scores[static_cast<size_t>(j)], a, b);
      }
    }
  Matrix s(16 * kKeys);
  for (int j = 0; j < kKeys / 8; ++j)
    for (int lane = 0; lane < 32; ++lane)
      for (int c = 0; c < 4; ++c)
        s[static_cast<size_t>((lane / 4 + 8 * (c / 2)) * kKeys + 8 * j + 2 * (lane % 4) + c % 2)] =
            scores[static_cast<size_t>(j)][static_cast<size_t>(lane)][static_cast<size_t>(c)];
  for (int i = 0; i < 16; ++i)
    for (int key = 0; key < kKeys; ++key) {
      double expected = 0;
      for (int e = 0; e < kColumns; ++e)
        expected += q[static_cast<size_t>(i * kColumns + e)] * k[static_cast<size_t>(key * kColumns + e)];
      ASSERT_NEAR(s[static_cast<size_t>(i * kKeys + key)], expected, 1e-12) << i << ", " << key;
    }

  for (int w = 0; w < kColumns / 32; ++w) {
    std::array<Registers, 4> out{};
    for (int n = 0; n < kKeys / 8; ++n) {
      std::array<int, 32> even{}, odd{};
      for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4, chunk = chunk_v(w, g, t);
        even[static_cast<size_t>(lane)] = (8 * n + 2 * t) * kChunks + chunk;
        odd[static_cast<size_t>(lane)] = (8 * n + 2 * t + 1) * kChunks + chunk;
      }
      expect_no_conflict(even), expect_no_conflict(odd);
      for (int m = 0; m < 4; ++m) {
        Registers a{}, b{};
        for (size_t lane = 0; lane < 32; ++lane) {
          const auto& c = scores[static_cast<size_t>(n)][lane];
          a[lane] = {c[0], c[2], c[1], c[3]};
          b[lane] = {word(shared_v, even[lane], m), word(shared_v, odd[lane], m)};
        }
        mma(out[static_cast<size_t>(m)], a, b);
      }
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int m = 0; m < 4; ++m)
        for (int c = 0; c < 4; ++c) {
          const int row = lane / 4 + 8 * (c / 2), column = 32 * w + 8 * (lane % 4) + 4 * (c % 2) + m;
          double expected = 0;
          for (int key = 0; key < kKeys; ++key)
            expected +=
                s[static_cast<size_t>(row * kKeys + key)] * v[static_cast<size_t>(key * kColumns + column)];
          ASSERT_NEAR(out[static_cast<size_t>(m)][static_cast<size_t>(lane)][static_cast<size_t>(c)],
                      expected, 1e-10)
              << row << ", " << column;
        }
  }
}

// What the unit reads of a word: sign, exponent and ten bits of fraction.
float as_tf32(uint32_t bits) {
  return std::bit_cast<float>(bits & 0xFFFFE000u);
}

TEST(EfficientF32, TwoTf32HoldAnF32ButForTheLastPlace) {
  std::mt19937 engine(7);
  std::uniform_int_distribution<uint32_t> any(0x20000000u, 0x5E000000u);
  for (int i = 0; i < 200000; ++i) {
    const float x = std::bit_cast<float>(any(engine) | (i % 2 ? 0x80000000u : 0u));
    const Split s = split(x);
    const double sum = static_cast<double>(as_tf32(s.big)) + static_cast<double>(as_tf32(s.small));
    ASSERT_LE(std::abs(sum - static_cast<double>(x)), std::ldexp(std::abs(static_cast<double>(x)), -23)) << x;
  }
  EXPECT_EQ(as_tf32(split(0.0f).big) + as_tf32(split(0.0f).small), 0.0f);
  // What cannot be split shows: some part is not finite.
  for (const float x : {INFINITY, -INFINITY, NAN, std::bit_cast<float>(0x7FFFFFFFu),
                        std::bit_cast<float>(0x7F800001u), std::bit_cast<float>(0x7F7FFFFFu)}) {
    const Split s = split(x);
    EXPECT_FALSE(std::isfinite(as_tf32(s.big)) && std::isfinite(as_tf32(s.small))) << x;
  }
}

}  // namespace
}  // namespace attnscope::efficient_f32
