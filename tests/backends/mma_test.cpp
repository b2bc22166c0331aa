// What of the tensor-core kernel and its backends can be tested without a GPU: which keys a row sees, the
// order of the blocks, the mask's tile, the embedded images, the reasons of flash_sm80 and efficient.
#include "attention/backend.h"
#include "attention/geometry.h"
#include "backends/cuda_mma/geometry.cuh"
#include "backends/cuda_mma/images.h"
#include "backends/cuda_mma/mask_tile.h"
#include "backends/cuda_mma/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace attnscope::mma {
namespace {

TensorView index_view(std::vector<int32_t>& values) {
  TensorView v;
  v.data = values.data();
  v.dtype = DType::kI32;
  v.rank = 1;
  v.sizes = {static_cast<int64_t>(values.size()), 1, 1, 1};
  return v;
}

Request request_of(int64_t batch, int64_t rows, int64_t keys, int64_t head_dim = 64) {
  Request r;
  void* somewhere = reinterpret_cast<void*>(uintptr_t{0x10000});  // never read
  r.q = TensorView::contiguous(somewhere, DType::kBF16, {batch, 2, rows, head_dim}, {DeviceType::kCuda, 0});
  r.k = r.v =
      TensorView::contiguous(somewhere, DType::kBF16, {batch, 2, keys, head_dim}, {DeviceType::kCuda, 0});
  return r;
}

Params params_of(const Request& r) {
  Params p{};
  p.rows = static_cast<int>(r.q_len());
  p.keys = static_cast<int>(r.kv_len());
  Geometry& g = p.geometry;
  g.causal = static_cast<int>(r.causal);
  g.left = static_cast<int>(std::min<int64_t>(r.window.left, kFar));
  g.right = static_cast<int>(std::min<int64_t>(r.window.right, kFar));
  const auto vector = [](const TensorView& v) {
    return v.data ? IndexVector{v.data, v.stride(0), LengthType::kI32} : IndexVector{};
  };
  g.kv_lengths = vector(r.lengths.kv_lengths);
  g.cu_q = vector(r.lengths.cu_q);
  g.cu_k = vector(r.lengths.cu_k);
  g.sequences = r.lengths.packed() ? static_cast<int>(r.lengths.cu_q.size(0)) - 1 : 0;
  return p;
}

void expect_same_keys(const Request& r, const std::string& what) {
  const attnscope::Geometry reference(r);
  const Params p = params_of(r);
  for (int64_t b = 0; b < r.batch(); ++b)
    for (int64_t i = 0; i < r.q_len(); ++i) {
      const KeyRange want = reference.visible(b, i);
      int diagonal = 0;
      const Interval got = visible(p, static_cast<int>(b), static_cast<int>(i), diagonal);
      if (want.empty()) {
        EXPECT_GE(got.begin, got.end) << what << " row " << i;
      } else {
        EXPECT_EQ(got.begin, want.begin) << what << " row " << i;
        EXPECT_EQ(got.end, want.end) << what << " row " << i;
      }
    }
}

const CausalMode kCausalModes[] = {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight};
const Window kWindows[] = {{}, {0, 0}, {3, 1}, {-1, 4}, {6, -1}, {int64_t{1} << 40, 2}};

TEST(MmaGeometry, SeesTheKeysThatTheLibrarysGeometrySees) {
  static_assert(static_cast<int>(CausalMode::kTopLeft) == 1 &&
                static_cast<int>(CausalMode::kLowerRight) == 2);
  for (const CausalMode causal : kCausalModes)
    for (const Window& window : kWindows)
      for (const auto& [rows, keys] : {std::pair{17, 17}, {5, 23}, {23, 5}, {1, 9}, {9, 1}}) {
        Request r = request_of(2, rows, keys);
        r.causal = causal;
        r.window = window;
        expect_same_keys(r, "dense");
        std::vector<int32_t> lengths = {keys / 2, 0};
        r.lengths.kv_lengths = index_view(lengths);
        expect_same_keys(r, "lengths");
      }
}

TEST(MmaGeometry, PackedSequencesWithEmptyOnes) {
  std::vector<int32_t> q = {0, 5, 5, 12, 12, 20}, k = {0, 3, 9, 9, 12, 30};
  for (const CausalMode causal : kCausalModes)
    for (const Window& window : kWindows) {
      Request r = request_of(1, 24, 33);  // rows and keys past the last sequence
      r.causal = causal;
      r.window = window;
      r.lengths.cu_q = index_view(q);
      r.lengths.cu_k = index_view(k);
      expect_same_keys(r, "packed");
    }
}

TEST(MmaSchedule, EveryTileIsTakenOnceAndLongOnesComeFirst) {
  for (const int heads : {1, 3, 8})
    for (const int batch : {1, 5})
      for (const int row_blocks : {1, 4, 9})
        for (const int group : {1, 2, 7, heads * batch, -1}) {
          Params p{};
          p.heads = heads;
          p.all_heads = heads * batch;
          p.row_blocks = row_blocks;
          p.group_heads = std::min(group, p.all_heads);
          if (group < 0) p.group_heads = p.batches = batch;  // batch entries side by side
          std::set<std::vector<int>> seen;
          int in_group = 0, before = row_blocks;
          for (int block = 0; block < p.all_heads * row_blocks; ++block) {
            const Place place = place_of(p, block);
            ASSERT_TRUE(place.head >= 0 && place.head < heads && place.batch >= 0 && place.batch < batch);
            ASSERT_TRUE(seen.insert({place.batch, place.head, place.row_block}).second);
            if (in_group == 0) before = row_blocks;
            ASSERT_LE(place.row_block, before);
            before = place.row_block;
            in_group = (in_group + 1) % (p.group_heads * row_blocks);
          }
        }
}

// A warp reads eight rows at once: 2 bytes (bool), 4 (16 bits) or, four rows at a time, 8 (f32) a lane.
TEST(MmaMaskTile, HoldsEveryByteOnceWithoutBankConflicts) {
  for (const int keys : {32, 64})
    for (const int size : {1, 2, 4}) {
      const int row_bytes = keys * size;
      std::set<int> seen;
      for (int row = 0; row < 32; ++row)
        for (int byte = 0; byte < row_bytes; ++byte) {
          const int at = mask_offset(row_bytes, row, byte);
          ASSERT_TRUE(at >= 0 && at < 32 * row_bytes && seen.insert(at).second);
          ASSERT_EQ(at / 16, mask_offset(row_bytes, row, byte / 16 * 16) / 16) << "16 bytes stay together";
        }
      if (keys == 32) continue;  // the widest head size only
      for (int first_row = 0; first_row < 16; first_row += size == 4 ? 4 : 8)
        for (int n = 0; n < keys / 8; ++n) {
          std::set<std::pair<int, int>> words;  // bank, address of the word
          std::set<int> banks;
          for (int row = first_row; row < first_row + (size == 4 ? 4 : 8); ++row)
            for (int lane = 0; lane < 4; ++lane)
              for (int b = 0; b < 2 * size; ++b) {
                const int word = mask_offset(row_bytes, row, (8 * n + 2 * lane) * size + b) / 4;
                words.insert({word % 32, word});
                banks.insert(word % 32);
              }
          EXPECT_EQ(words.size(), banks.size()) << size << " bytes, tile " << n;
        }
    }
}

TEST(MmaImages, EveryHeadSizeAndKindIsEmbedded) {
  std::set<std::string> names;
  for (const EmbeddedImage& image : images()) {
    EXPECT_TRUE(names.insert(image.name).second) << image.name;
    EXPECT_GT(image.bytes().size(), 4096u) << image.name;
    EXPECT_EQ(image.threads % 32, 0) << image.name;
  }
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const bool featured : {false, true})
      EXPECT_TRUE(std::any_of(images().begin(), images().end(), [&](const EmbeddedImage& i) {
        return i.dtype == dtype && i.featured == featured && i.e == 256;
      }));
}

std::set<std::string> codes_of(std::string_view backend, const Request& r) {
  std::set<std::string> codes;
  for (const Refusal& refusal : find_backend(backend, DeviceType::kCuda)->refusals(r)) {
    EXPECT_EQ(refusal.backend, backend);
    EXPECT_FALSE(refusal.message.empty());
    codes.insert(refusal.code);
  }
  codes.erase("device");  // depends on the machine
  return codes;
}

using Codes = std::set<std::string>;

TEST(MmaRefusals, FlashTakesEverythingButMasksAndOddLayouts) {
  Request r = request_of(2, 33, 65);
  r.causal = CausalMode::kLowerRight;
  r.window = {5, 3};
  r.softcap = 2;
  r.dropout.p = 0.5;
  r.scale = -1.0;
  r.lengths.kv_lengths.data = r.sinks.data = r.q.data;
  r.wants.lse = r.wants.deterministic = true;
  EXPECT_EQ(codes_of("flash_sm80", r), Codes{});
  r.mask_kind = MaskKind::kBool;
  EXPECT_EQ(codes_of("flash_sm80", r), Codes{"mask"});
  EXPECT_EQ(codes_of("flash_sm80", request_of(1, 8, 8, 20)), Codes{"layout"});
  r = request_of(1, 8, 8);
  r.k.strides[3] = 2;
  EXPECT_EQ(codes_of("flash_sm80", r), Codes{"layout"});
  r = request_of(1, 8, 8);
  r.k.strides[1] = 0;
  EXPECT_EQ(codes_of("flash_sm80", r), Codes{}) << "a broadcast is no obstacle";
}

TEST(MmaRefusals, EfficientTakesMasksAndAnyLayout) {
  Request r = request_of(1, 33, 65, 21);
  r.k.strides[3] = 2;
  r.mask_kind = MaskKind::kBias;
  EXPECT_EQ(codes_of("efficient", r), Codes{});
}

TEST(MmaRefusals, BothTakeAppendsOfAnyLength) {
  for (const int64_t rows : {1, 64, 4096}) {
    Request r = request_of(1, rows, 64);
    r.paging.page_size = 64;
    r.paging.append_k = r.paging.append_v =
        TensorView::contiguous(r.q.data, DType::kBF16, {1, 2, rows, 64}, r.q.device);
    EXPECT_EQ(codes_of("flash_sm80", r), Codes{});
    EXPECT_EQ(codes_of("efficient", r), Codes{});
  }
}

TEST(MmaRefusals, BothNameAllTheirReasons) {
  Request r = request_of(1, 8, 8, 264);
  r.limits.splits = 3;
  r.limits.sm_count = 16;
  const Codes both = {"head-dim-too-large", "splits", "sm-count"};
  EXPECT_EQ(codes_of("flash_sm80", r), both);
  EXPECT_EQ(codes_of("efficient", r), both);
}

TEST(MmaAlignment, SaysWhatStands) {
  TensorView v = request_of(1, 8, 8).q;
  EXPECT_EQ(misalignment(v), "");
  v.strides[2] = 68;
  EXPECT_NE(misalignment(v).find("row stride"), std::string::npos);
  v = request_of(1, 1, 8).q;
  v.strides[2] = 3;
  EXPECT_EQ(misalignment(v), "") << "the stride of a single row never matters";
  v.data = static_cast<std::byte*>(v.data) + 2;
  EXPECT_NE(misalignment(v).find("16-byte"), std::string::npos);
}

}  // namespace
}  // namespace attnscope::mma
