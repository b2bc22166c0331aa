// What of mla can be tested without a GPU: how the keys are shared, where its operands lie in shared memory,
// the reasons it refuses with.
#include "attention/backend.h"
#include "backends/cuda_mla/images.h"
#include "backends/cuda_mla/schedule.h"
#include "cuda/kernels_tile/maps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace attnscope::mla {
namespace {

TEST(MlaSchedule, SharingUsesTheGpuAndStaysWithinTheKeys) {
  for (const int64_t tiles : {1, 2, 16, 64, 128, 131, 133, 256, 5000})
    for (const int64_t key_tiles : {1, 2, 3, 64, 128, 2048})
      for (const bool ragged : {false, true}) {
        const int parts = share_keys({tiles, key_tiles, 132, ragged, 0});
        SCOPED_TRACE(std::to_string(tiles) + " × " + std::to_string(key_tiles));
        EXPECT_GE(parts, 1);
        EXPECT_LE(parts, key_tiles);
        if (tiles < 132 && key_tiles >= 2048) {
          EXPECT_GE(tiles * parts, 132 / 2) << "half of the GPU is idle";
        }
        if (tiles > 132 * 8) {
          EXPECT_EQ(parts, 1) << "nothing to be won";
        }
      }
}

TEST(MlaSchedule, WhatIsAskedForIsDone) {
  for (const bool ragged : {false, true})
    for (const int64_t splits : {1, 5}) EXPECT_EQ(share_keys({8, 64, 132, ragged, splits}), splits);
}

TEST(MlaSchedule, LengthsThatDifferEvenOut) {
  EXPECT_GE(share_keys({64, 128, 132, true, 0}), 4) << "two turns";
}

// ---- Shared memory, against a software model of the tensor cores' addressing (tile_maps_test has it in
// full)
tile::u32 swizzled(tile::u32 linear) {
  return linear ^ (((linear >> 7) & 7) << 4);
}
struct Descriptor {
  tile::u32 start, leading, stride;
  explicit Descriptor(tile::u64 d)
      : start(static_cast<tile::u32>(d & 0x3FFF) << 4),
        leading(static_cast<tile::u32>((d >> 16) & 0x3FFF) << 4),
        stride(static_cast<tile::u32>((d >> 32) & 0x3FFF) << 4) {}
};

// Half w of V is panels 4w … 4w + 3 of K's tile.
TEST(MlaMaps, ValuesAreReadFromTheTileOfK) {
  using namespace tile;
  constexpr u32 kTile = 0x12000;  // K's, on a swizzle period
  for (int half = 0; half < 2; ++half)
    for (int k16 = 0; k16 < 4; ++k16) {
      const Descriptor d(
          mn_major_descriptor(kTile + static_cast<u32>(4 * half * panel_bytes(64)), panel_bytes(64)) +
          (static_cast<u64>(mn_major_step_bytes(k16)) >> 4));
      for (int k = 0; k < 16; ++k)
        for (int column = 0; column < 256; ++column) {
          const u32 at = swizzled(d.start + static_cast<u32>(column / 64) * d.leading +
                                  static_cast<u32>(k / 8) * d.stride + static_cast<u32>(k % 8) * 128 +
                                  static_cast<u32>(column % 64) * 2);
          ASSERT_EQ(at, kTile + static_cast<u32>(swizzled_offset(64, 16 * k16 + k, 256 * half + column)));
        }
    }
}

// A warpgroup's weights, stored with stmatrix, are what the other one's product reads as its operand A.
TEST(MlaMaps, WeightsCrossThroughSharedMemory) {
  using namespace tile;
  std::map<u32, std::pair<int, int>> stored;  // byte address ← (row, key)
  for (int thread = 0; thread < 128; ++thread)
    for (int c = 0; c < 4; ++c)
      for (int word = 0; word < 4; ++word) {
        // stmatrix.x4: matrix `word` takes its row addresses from lanes 8·word …; this lane supplies row lane
        // / 4.
        const int lane = thread % 32, address_lane = 8 * word + lane / 4;
        const int row = thread / 32 * 16 + stmatrix_row(address_lane);
        const int chunk = (16 * c + stmatrix_column(address_lane)) / 8;
        const u32 at = static_cast<u32>(row * kPanelRowBytes + ((chunk ^ (row % 8)) * 16) + lane % 4 * 4);
        const int i = operand_first_accumulator(c, word);
        stored[at] = {accumulator_row(thread, i), accumulator_column(thread, i)};
      }
  ASSERT_EQ(stored.size(), 64u * 32u);
  for (int k16 = 0; k16 < 4; ++k16) {
    const Descriptor d(k_major_descriptor(0) + (static_cast<u64>(k_major_step_bytes(64, k16)) >> 4));
    for (int row = 0; row < 64; ++row)
      for (int k = 0; k < 16; k += 2) {
        const u32 at = swizzled(d.start + static_cast<u32>(row / 8) * d.stride +
                                static_cast<u32>(row % 8) * 128 + static_cast<u32>(k) * 2);
        ASSERT_EQ(stored.at(at), (std::pair{row, 16 * k16 + k}));
      }
  }
}

// ---- Refusals
Request request_of(int64_t heads, int64_t kv_heads, int64_t length, int64_t keys, int64_t e, int64_t ev) {
  Request r;  // over memory that is never read
  void* somewhere = reinterpret_cast<void*>(uintptr_t{0x10000});
  const Device gpu{DeviceType::kCuda, 0};
  r.q = TensorView::contiguous(somewhere, DType::kBF16, {2, heads, length, e}, gpu);
  r.k = TensorView::contiguous(somewhere, DType::kBF16, {2, kv_heads, keys, e}, gpu);
  r.v = TensorView::contiguous(somewhere, DType::kBF16, {2, kv_heads, keys, ev}, gpu);
  return r;
}
Request absorbed() {
  Request r = request_of(128, 1, 1, 1000, 576, 512);
  for (int d = 0; d < 4; ++d) r.v.strides[static_cast<size_t>(d)] = r.k.stride(d);
  return r;
}

TEST(MlaSchedule, RowsOfHeadsThatShareKeysArePacked) {
  EXPECT_EQ(work_of(absorbed(), 132).row_tiles, 4) << "two batch entries of 128 rows";
  EXPECT_EQ(work_of(absorbed(), 132).key_tiles, 16);
  EXPECT_EQ(work_of(request_of(16, 1, 3, 1000, 576, 512), 132).row_tiles, 2);
  EXPECT_EQ(work_of(request_of(128, 128, 1, 1000, 576, 512), 132).row_tiles, 256);
}

TEST(MlaSchedule, AViewOfKIsRecognised) {
  Request r = absorbed();
  EXPECT_TRUE(may_alias(r));
  EXPECT_FALSE(may_alias(request_of(128, 1, 1, 1000, 576, 512))) << "rows of 512 elements";
  EXPECT_FALSE(may_alias(request_of(128, 1, 1, 1000, 320, 512))) << "V is wider";
  r.v = TensorView::contiguous(r.v.data, DType::kBF16, {2, 2, 1000, 512}, r.v.device);
  EXPECT_FALSE(may_alias(r)) << "more heads";
}

std::set<std::string> codes_of(const Request& r) {
  std::set<std::string> codes;
  for (const Refusal& refusal : find_backend("mla", DeviceType::kCuda)->refusals(r)) {
    EXPECT_EQ(refusal.backend, "mla");
    EXPECT_FALSE(refusal.message.empty());
    codes.insert(refusal.code);
  }
  codes.erase("device");  // depends on the machine
  return codes;
}

TEST(MlaRefusals, EachReasonHasItsCode) {
  using Codes = std::set<std::string>;
  EXPECT_EQ(codes_of(absorbed()), Codes{});
  EXPECT_EQ(codes_of(request_of(32, 2, 300, 1000, 512, 512)), Codes{});
  EXPECT_EQ(codes_of(request_of(32, 2, 1, 1000, 128, 264)), Codes{}) << "one of the two is wide";
  EXPECT_EQ(codes_of(request_of(32, 8, 1, 1000, 128, 128)), Codes{"head-dim-too-small"});
  EXPECT_EQ(codes_of(request_of(32, 8, 1, 1000, 584, 512)), Codes{"head-dim-too-large"});
  EXPECT_EQ(codes_of(request_of(32, 8, 1, 1000, 576, 520)), Codes{"head-dim-too-large"});
  EXPECT_EQ(codes_of(request_of(32, 8, 1, 1000, 300, 300)), Codes{"layout"});
  EXPECT_EQ(codes_of(request_of(32, 1, 1, 0, 576, 512)), Codes{"empty"});
  Request r = absorbed();
  r.mask_kind = MaskKind::kBool;
  r.dropout.p = 0.5;
  EXPECT_EQ(codes_of(r), (Codes{"mask", "dropout"}));
  r = absorbed();
  r.q.dtype = r.k.dtype = r.v.dtype = DType::kF32;
  EXPECT_EQ(codes_of(r), Codes{"dtype"});
  r = absorbed();
  r.lengths.cu_q.data = r.lengths.cu_k.data = r.q.data;
  EXPECT_EQ(codes_of(r), Codes{"packed-sequences"});
  r = absorbed();
  r.k.strides[0] = r.v.strides[0] = 0;
  EXPECT_EQ(codes_of(r), Codes{"layout"}) << "the copy engine has no broadcast";
  r = absorbed();
  r.window = {100, 0};
  r.softcap = 30;
  r.sinks = TensorView::contiguous(r.q.data, DType::kF32, {128}, r.q.device);
  r.alibi_slopes = r.sinks;
  r.causal = CausalMode::kLowerRight;
  EXPECT_EQ(codes_of(r), Codes{});
}

TEST(MlaRefusals, PagesHoldWholeTiles) {
  for (const int64_t page : {16, 48, 64, 96, 128, 256}) {
    Request r = absorbed();
    r.k = r.v = TensorView::contiguous(r.k.data, DType::kBF16, {40, 1, page, 576}, r.k.device);
    r.v.sizes[3] = 512;
    r.paging.page_size = page;
    r.paging.block_table = TensorView::contiguous(r.q.data, DType::kI32, {2, 16}, r.q.device);
    EXPECT_EQ(codes_of(r), page % 64 == 0 ? std::set<std::string>{} : std::set<std::string>{"page-size"})
        << page;
  }
}

TEST(MlaImages, EveryTypeHasItsKernels) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    int forward = 0, combine = 0;
    for (const EmbeddedImage& image : images()) {
      if (image.dtype != dtype) continue;
      EXPECT_FALSE(image.bytes().empty()) << image.name;
      (image.kernel == Kernel::kForward ? forward : combine) += 1;
    }
    EXPECT_EQ(forward, 2);
    EXPECT_EQ(combine, 1);
  }
}

}  // namespace
}  // namespace attnscope::mla
