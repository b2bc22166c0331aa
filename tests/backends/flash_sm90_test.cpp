// What of flash on Hopper can be tested without a GPU: the walk over tiles, its balance, the embedded images,
// the reasons it refuses with.
#include "attention/backend.h"
#include "backends/cuda_flash_sm90/featured/images.h"
#include "backends/cuda_flash_sm90/featured/mask_plan.h"
#include "backends/cuda_flash_sm90/featured/mask_tile.h"
#include "backends/cuda_flash_sm90/featured/ranges.h"
#include "backends/cuda_flash_sm90/images.h"
#include "backends/cuda_flash_sm90/schedule.h"
#include "cuda/kernels_tile/maps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace attnscope::flash_sm90 {
namespace {

Problem causal_problem(int64_t heads, int64_t length, double kv_bytes) {
  return {heads, length, length, true, 0, kv_bytes};
}

TEST(FlashSm90Schedule, EveryTileIsTakenOnce) {
  for (const int64_t heads : {1, 5, 16, 70})
    for (const int64_t rows : {1, 64, 129, 1000})
      for (const int64_t group : {int64_t{1}, int64_t{3}, heads})
        for (const int64_t blocks : {1, 7, 132}) {
          const Problem problem{heads, rows, rows, true, 0, 1};
          const TileShape shape{128, 128, 1};
          const int64_t per_head = (rows + 127) / 128;
          std::set<std::pair<int64_t, int64_t>> seen;
          for (int64_t block = 0; block < blocks; ++block)
            for (int64_t turn = 0; turn * blocks < heads * per_head; ++turn) {
              const WalkedTile t = tile_of(problem, shape, std::min(group, heads), blocks, block, turn);
              if (t.head < 0) continue;
              ASSERT_LT(t.head, heads);
              ASSERT_GE(t.row_block, 0);
              ASSERT_LT(t.row_block, per_head);
              ASSERT_TRUE(seen.emplace(t.head, t.row_block).second);
            }
          EXPECT_EQ(static_cast<int64_t>(seen.size()), heads * per_head);
        }
}

TEST(FlashSm90Schedule, LongTilesComeFirst) {
  const Problem problem = causal_problem(8, 4096, 1);
  const TileShape shape{128, 128, 1};
  int64_t before = 1 << 30;
  for (int64_t turn = 0; turn < 2; ++turn) {
    const WalkedTile t = tile_of(problem, shape, 8, 132, 0, turn);
    const int64_t steps = steps_of(problem, shape, t.row_block);
    EXPECT_LE(steps, before);
    before = steps;
  }
}

TEST(FlashSm90Schedule, StepsFollowTheDiagonal) {
  const TileShape shape{128, 128, 1};
  EXPECT_EQ(steps_of(causal_problem(1, 1024, 1), shape, 0), 1);
  EXPECT_EQ(steps_of(causal_problem(1, 1024, 1), shape, 7), 8);
  EXPECT_EQ(steps_of({1, 100, 1000, true, 900, 1}, shape, 0), 8) << "lower-right: all keys";
  EXPECT_EQ(steps_of({1, 1000, 100, true, -900, 1}, shape, 0), 1) << "sees nothing, still writes its rows";
  EXPECT_EQ(steps_of({1, 1000, 100, false, 0, 1}, shape, 3), 1);
}

// The rows of the speed table: batch · heads, sequence, head size.
TEST(FlashSm90Schedule, CausalWorkIsBalanced) {
  const struct {
    int64_t heads, length, head_dim;
  } rows[] = {{128, 1024, 128}, {64, 4096, 128}, {32, 8192, 128}, {16, 16384, 128}, {16, 4096, 256}};
  for (const auto& row : rows) {
    const Schedule s = choose_schedule(
        causal_problem(row.heads, row.length, static_cast<double>(row.length * row.head_dim) * 4),
        {128, 128, 1.6}, 132);
    EXPECT_GT(s.balance, 0.96) << row.length << " " << row.head_dim;
    EXPECT_GE(s.group_heads, 1);
    EXPECT_LE(s.group_heads, row.heads);
  }
}

TEST(FlashSm90Schedule, AWindowShortensTiles) {
  Problem problem = causal_problem(16, 2048, 2048.0 * 512);
  problem.window_left = 256;
  const TileShape shape{128, 128, 1};
  EXPECT_EQ(steps_of(problem, shape, 15), 3);
  EXPECT_EQ(steps_of(problem, shape, 1), 2);
  EXPECT_EQ(steps_of(problem, shape, 0), 1);
}

// ---- Ranges of the featured kernel, against the definition row by row
struct Visible {
  int begin, end;
};
Visible visible(const FeaturedParams& p, const Sequence& s, int row) {
  const int64_t diagonal = row + (p.lower_right != 0 ? s.keys - s.rows : 0);
  int64_t begin = 0, end = s.keys;
  if (p.left != kUnbounded) begin = std::max<int64_t>(begin, diagonal - p.left);
  if (p.right != kUnbounded) end = std::min<int64_t>(end, diagonal + p.right + 1);
  return {static_cast<int>(begin), static_cast<int>(std::max(begin, end))};
}

template <int kRows, int kColumns>
void check_ranges(const FeaturedParams& p, const Sequence& s) {
  const int blocks = (s.rows + kRows - 1) / kRows,
            most_steps = std::max(1, (s.keys + kColumns - 1) / kColumns);
  ASSERT_EQ((blocks_within<kRows, kColumns>(p, s, 0)), 0);
  ASSERT_EQ((blocks_within<kRows, kColumns>(p, s, most_steps)), blocks) << "every block has its place";
  for (int block = 0; block < blocks; ++block) {
    const TileInfo t = tile_info<kRows, kColumns>(p, s, block, 0);
    ASSERT_LE((blocks_within<kRows, kColumns>(p, s, t.end_step - 1)), block) << "exactly its number of steps";
    ASSERT_GT((blocks_within<kRows, kColumns>(p, s, t.end_step)), block);
    ASSERT_LT(t.first_step, t.end_step);
    for (int r = 0; r < std::min(kRows, t.rows); ++r) {
      const Visible want = visible(p, s, block * kRows + r);
      const int begin = std::max(0, r + t.seen_begin), end = std::min(t.keys, r + t.seen_end);
      if (want.begin >= want.end) {
        ASSERT_LE(end, begin);
        continue;
      }
      ASSERT_EQ(begin, want.begin);
      ASSERT_EQ(end, want.end);
      ASSERT_GE(begin, t.first_step * kColumns);
      ASSERT_LE(end, t.end_step * kColumns);
    }
  }
}

TEST(FlashSm90Ranges, TilesSeeWhatTheirRowsSee) {
  for (const int left : {kUnbounded, 0, 1, 70, 128, 1000})
    for (const int right : {kUnbounded, 0, 3, 200})
      for (const int lower_right : {0, 1})
        for (const int rows : {0, 1, 127, 128, 300, 1000})
          for (const int keys : {0, 1, 80, 129, 640, 1300}) {
            FeaturedParams p{};
            p.left = left;
            p.right = right;
            p.lower_right = lower_right;
            p.k_group = p.v_group = 1;
            const Sequence s{5, rows, 7, keys, 0};
            SCOPED_TRACE(std::to_string(left) + " " + std::to_string(right) + " " + std::to_string(rows) +
                         " " + std::to_string(keys));
            check_ranges<128, 128>(p, s);
            check_ranges<192, 128>(p, s);
            check_ranges<128, 80>(p, s);
            if (::testing::Test::HasFatalFailure()) return;
          }
}

// ---- Masks
// What the copy engine does to an address: bits 4…6 (of a row of 64 bytes: 4…5) are combined with bits 7 and
// up.
int swizzled(int row_bytes, int address) {
  return row_bytes == 128 ? address ^ ((address >> 7 & 7) << 4) : address ^ ((address >> 7 & 3) << 4);
}

TEST(FlashSm90Masks, TilesLieAsTheCopyEngineWritesThem) {
  for (const int row_bytes : {64, 128})
    for (int row = 0; row < 192; ++row)
      for (int byte = 0; byte < row_bytes; ++byte)
        ASSERT_EQ(mask_offset(row_bytes, row, byte), swizzled(row_bytes, row * row_bytes + byte));
  for (int row = 0; row < 184; ++row)
    for (const int row_bytes : {64, 128})
      ASSERT_EQ(mask_flip(row_bytes, row), mask_flip(row_bytes, row + 8)) << "a thread's two rows";
}

// The words that a warp reads at once lie in different banks.
template <Masking kKind, int kKeys>
void check_banks() {
  using Tile = MaskTile<kKind, 128, kKeys>;
  for (int key = 0; key < kKeys; key += 8) {
    std::set<int> banks, words;
    for (int lane = 0; lane < 32; ++lane) {
      const int byte = (key % Tile::kPanelKeys + tile::accumulator_column(lane, 0)) * Tile::kSize;
      const int at = key / Tile::kPanelKeys * Tile::kPanelBytes +
                     mask_offset(Tile::kRowBytes, tile::accumulator_row(lane, 0), byte);
      words.insert(at / 4);
      banks.insert(at / 4 % 32);
    }
    EXPECT_EQ(banks.size(), words.size()) << key;
    EXPECT_EQ(words.size(), kKind == Masking::kBool ? 16u : 32u);
  }
}

TEST(FlashSm90Masks, AWarpReadsWithoutConflicts) {
  check_banks<Masking::kBool, 128>();
  check_banks<Masking::kBool, 64>();
  check_banks<Masking::kBias, 128>();
  check_banks<Masking::kBias, 64>();
}

Request masked_request(DType dtype, std::array<int64_t, 4> sizes, int64_t row_stride) {
  Request r;
  void* somewhere = reinterpret_cast<void*>(uintptr_t{0x10000});  // never read
  r.q = r.k = r.v = TensorView::contiguous(somewhere, DType::kBF16, {2, 4, 64, 64}, {DeviceType::kCuda, 0});
  r.mask = TensorView::contiguous(somewhere, dtype, {sizes[0], sizes[1], sizes[2], sizes[3]},
                                  {DeviceType::kCuda, 0});
  r.mask.strides[2] = row_stride;
  r.mask_kind = dtype == DType::kBool ? MaskKind::kBool : MaskKind::kBias;
  return r;
}

TEST(FlashSm90Masks, TakesWhatTheCopyEngineCanLoad) {
  for (const DType dtype : {DType::kBool, DType::kBF16})
    for (const std::array<int64_t, 4> sizes :
         {std::array<int64_t, 4>{2, 4, 64, 64}, {1, 4, 64, 64}, {2, 1, 1, 64}})
      EXPECT_EQ(mask_obstacle(masked_request(dtype, sizes, 64)), "");
  Request r = masked_request(DType::kBool, {1, 1, 64, 64}, 72);
  EXPECT_NE(mask_obstacle(r), "") << "rows are 72 bytes apart";
  r.mask.sizes[2] = 1;
  EXPECT_EQ(mask_obstacle(r), "") << "one row has no stride";
  r = masked_request(DType::kBF16, {1, 1, 64, 64}, 72);
  EXPECT_EQ(mask_obstacle(r), "");
  r.mask.strides[3] = 2;
  EXPECT_NE(mask_obstacle(r), "");
  r = masked_request(DType::kBF16, {1, 1, 64, 64}, 64);
  r.mask.data = static_cast<char*>(r.mask.data) + 2;
  EXPECT_NE(mask_obstacle(r), "");
  EXPECT_NE(mask_obstacle(masked_request(DType::kF32, {1, 1, 64, 64}, 64)), "") << "a bias of another type";
  r = masked_request(DType::kBool, {1, 1, 64, 64}, 64);
  r.softcap = 3;
  EXPECT_NE(mask_obstacle(r), "");
}

TEST(FlashSm90Images, EveryFeatureHasAnImageForEveryHeadSize) {
  std::set<std::string> names;
  for (const FeaturedImage& image : featured_images()) {
    EXPECT_TRUE(names.insert(image.name).second) << image.name;
    ASSERT_GT(image.cubin().size(), 4096u) << image.name;
  }
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int size : {64, 128, 256})
      for (const Masking mask : {Masking::kBool, Masking::kBias})
        EXPECT_TRUE(std::any_of(featured_images().begin(), featured_images().end(),
                                [&](const FeaturedImage& i) {
                                  return i.dtype == dtype && i.e == size && i.ev == size && i.mask == mask;
                                }))
            << size;
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int size : {64, 128, 256})
      for (const bool transform : {false, true})
        for (const bool any_output : {false, true})
          EXPECT_TRUE(std::any_of(featured_images().begin(), featured_images().end(),
                                  [&](const FeaturedImage& i) {
                                    return i.dtype == dtype && i.e >= size && i.ev >= size &&
                                           i.transform >= transform && i.any_output == any_output;
                                  }))
              << size << " " << transform << any_output;
}

TEST(FlashSm90Images, EveryHeadSizeAndDtypeIsEmbedded) {
  std::set<std::string> names;
  for (const EmbeddedImage& image : images()) {
    EXPECT_TRUE(names.insert(image.name).second) << image.name;
    ASSERT_GT(image.cubin().size(), 4096u) << image.name;
    EXPECT_EQ(std::to_integer<int>(image.begin[0]), 0x7F) << image.name << " is no ELF file";
    EXPECT_EQ(std::to_integer<char>(image.begin[1]), 'E');
  }
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const bool causal : {false, true})
      for (const auto& [e, ev] :
           {std::pair{64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}})
        EXPECT_TRUE(std::any_of(images().begin(), images().end(),
                                [&, e = e, ev = ev](const EmbeddedImage& i) {
                                  return i.dtype == dtype && i.causal == causal && i.e == e && i.ev == ev &&
                                         !i.any_output;
                                }))
            << e << " " << ev;
  for (const EmbeddedImage& image : images())  // …and each has one that writes any output
    EXPECT_TRUE(std::any_of(images().begin(), images().end(), [&](const EmbeddedImage& i) {
      return i.any_output && i.dtype == image.dtype && i.causal == image.causal && i.e >= image.e &&
             i.ev >= image.ev;
    })) << image.name;
}

Request request_of(int64_t head_dim) {
  Request r;
  void* somewhere = reinterpret_cast<void*>(uintptr_t{0x10000});  // never read
  r.q = r.k = r.v =
      TensorView::contiguous(somewhere, DType::kBF16, {1, 2, 64, head_dim}, {DeviceType::kCuda, 0});
  return r;
}

std::set<std::string> codes_of(const Request& r) {
  std::set<std::string> codes;
  for (const Refusal& refusal : find_backend("flash", DeviceType::kCuda)->refusals(r)) {
    EXPECT_EQ(refusal.backend, "flash");
    EXPECT_FALSE(refusal.message.empty());
    codes.insert(refusal.code);
  }
  codes.erase("device");  // depends on the machine
  return codes;
}

TEST(FlashSm90Refusals, TakesWhatItIsFor) {
  for (const int64_t head_dim : {8, 40, 64, 96, 128, 192, 256})
    EXPECT_EQ(codes_of(request_of(head_dim)), std::set<std::string>{});
  Request r = request_of(64);
  for (const double scale : {0.0, -2.0, 3.0}) {
    r.scale = scale;
    EXPECT_EQ(codes_of(r), std::set<std::string>{});
  }
  r.causal = CausalMode::kLowerRight;
  r.wants.lse = r.wants.deterministic = true;
  EXPECT_EQ(codes_of(r), std::set<std::string>{});
}

TEST(FlashSm90Refusals, TakesTheFeatures) {
  Request r = request_of(64);
  r.window = {3, 1};
  r.softcap = 2;
  r.dropout.p = 0.5;
  r.lengths.kv_lengths.data = r.sinks.data = r.alibi_slopes.data = r.q.data;
  EXPECT_EQ(codes_of(r), std::set<std::string>{});
  r = request_of(128);
  r.lengths.cu_q.data = r.lengths.cu_k.data = r.q.data;
  r.lengths.cu_q.rank = r.lengths.cu_k.rank = 1;
  r.lengths.cu_q.sizes[0] = r.lengths.cu_k.sizes[0] = 4;
  EXPECT_EQ(codes_of(r), std::set<std::string>{});
}

TEST(FlashSm90Refusals, EachReasonHasItsCode) {
  using Codes = std::set<std::string>;
  EXPECT_EQ(codes_of(request_of(260)), (Codes{"head-dim-too-large", "layout"}));
  EXPECT_EQ(codes_of(request_of(12)), Codes{"layout"});
  Request r = request_of(64);
  r.q.dtype = r.k.dtype = r.v.dtype = DType::kF32;
  EXPECT_EQ(codes_of(r), Codes{"dtype"});
  r = request_of(64);
  r.mask_kind = MaskKind::kBool;
  EXPECT_EQ(codes_of(r), Codes{"mask"});
  r = request_of(64);
  r.limits.splits = 2;
  r.score_program = "score";
  EXPECT_EQ(codes_of(r), (Codes{"splits", "score-program"})) << "all reasons, not the first";
  r = request_of(64);
  r.k.strides[1] = 0;
  EXPECT_EQ(codes_of(r), Codes{"layout"});
  r = request_of(64);
  r.q.sizes[2] = r.k.sizes[2] = r.v.sizes[2] = int64_t{1} << 29;
  EXPECT_EQ(codes_of(r), Codes{}) << "the plain kernel holds it";
  r.window.left = 3;
  EXPECT_EQ(codes_of(r), Codes{"too-long"}) << "a row and a window side must fit an int";
}

}  // namespace
}  // namespace attnscope::flash_sm90
