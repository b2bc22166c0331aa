// What of decode can be tested without a GPU: who computes what, the choice of image and sharing, the reasons
// it refuses with.
#include "attention/backend.h"
#include "backends/cuda_decode/heuristics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace attnscope::decode {
namespace {

Problem problem(int batch, int heads, int pack, int length, int keys) {
  Problem p{};
  p.batch = batch, p.heads = heads, p.pack = p.k_group = p.v_group = pack, p.length = length, p.keys = keys;
  p.window_left = p.window_right = -1;
  p.tile_rows = 16, p.tile_keys = 128;
  derive(p);
  return p;
}

TEST(DecodeSchedule, EveryRowIsPackedOnce) {
  for (const int pack : {1, 3, 4, 8})
    for (const int length : {1, 2, 7}) {
      const Problem p = problem(1, 24, pack, length, 100);
      std::set<std::pair<int, int>> seen;
      for (int n = 0; n < p.tiles_per_batch / p.row_tiles; ++n)
        for (int r = 0; r < p.rows(); ++r) {
          const Row row = row_of(p, n, r);
          ASSERT_EQ(row.head / pack, n) << "heads of another key head";
          ASSERT_TRUE(seen.emplace(row.head, row.i).second);
        }
      EXPECT_EQ(seen.size(), static_cast<size_t>(24 * length));
    }
}

TEST(DecodeSchedule, VisibleKeysFollowTheMasks) {
  Problem p = problem(1, 1, 1, 4, 10);
  EXPECT_EQ(visible(p, 10, 2).end, 10);
  p.causal = 1;
  EXPECT_EQ(visible(p, 10, 2).end, 3);
  p.lower_right = 1;
  EXPECT_EQ(visible(p, 10, 2).end, 9);
  EXPECT_EQ(visible(p, 2, 0).end, 0) << "more rows than keys: the first see nothing";
  p.window_left = 3;
  EXPECT_EQ(visible(p, 10, 3).begin, 6);
  EXPECT_EQ(key_tiles(p, 1000).first, (1000 - 4 - 3) / 128);
  EXPECT_EQ(key_tiles(p, 0).count, 1) << "a row tile without keys still writes its rows";
}

TEST(DecodeSchedule, EvenPartsCoverTheKeysOnce) {
  for (const int count : {1, 2, 7, 64, 1000})
    for (const int parts : {1, 2, 3, 16, 33}) {
      int at = 0;
      for (int part = 0; part < parts; ++part) {
        ASSERT_EQ(part_begin(count, part, parts), at);
        at = part_begin(count, part + 1, parts);
      }
      EXPECT_EQ(at, count);
    }
}

TEST(DecodeSchedule, QuickDivisionsAreDivisions) {
  for (const int by : {1, 2, 3, 5, 7, 8, 12, 48, 100, 127, 128, 65535, 65536}) {
    const Divisor d = divisor(by);
    const int64_t end = std::min<int64_t>(INT32_MAX, (int64_t{1} << 32) / by - 1);
    for (const int64_t x : {int64_t{0}, int64_t{1}, int64_t{by - 1}, int64_t{by}, end / 2, end - 1, end}) {
      if (x > end) continue;
      EXPECT_EQ(divided(static_cast<int>(x), d), x / by) << x << " / " << by;
    }
    for (int64_t multiple = 0; multiple + by <= end; multiple += std::max<int64_t>(by, end / 1000 / by * by))
      ASSERT_EQ(divided(static_cast<int>(multiple + by - 1), d), multiple / by) << multiple << " / " << by;
  }
  Problem p = problem(1, 8, 4, 1, 1 << 30);
  p.parts = 2;
  derive(p);
  EXPECT_EQ(p.quick, 1);
  p.parts = 8;
  derive(p);
  EXPECT_EQ(p.quick, 0) << "2^33 is too much";
  p.parts = 0;
  derive(p);
  EXPECT_EQ(p.quick, 0) << "flat";
}

TEST(DecodeSchedule, SimpleRequestsAreThoseWhoseRowsSeeAllKeys) {
  Params p{};
  p.problem = problem(2, 8, 4, 1, 1000);
  p.problem.parts = 4;
  derive(p.problem);
  p.e = p.ev = 128, p.q_vectors = 1, p.page_shift = -1;
  const auto simple = [](Params q, auto change) {
    change(q);
    return is_simple(q, 128, 128);
  };
  EXPECT_TRUE(is_simple(p, 128, 128));
  EXPECT_FALSE(is_simple(p, 256, 256)) << "filled with zeros";
  EXPECT_TRUE(simple(p, [](Params& q) { q.page_size = 64, q.page_shift = 6; }));
  EXPECT_FALSE(simple(p, [](Params& q) { q.page_size = 48; }));
  EXPECT_TRUE(simple(p, [](Params& q) { q.problem.causal = q.problem.lower_right = 1; }));
  EXPECT_FALSE(simple(p, [](Params& q) { q.problem.causal = 1; })) << "top-left: row 0 sees key 0 only";
  EXPECT_FALSE(
      simple(p, [](Params& q) { q.problem.causal = q.problem.lower_right = 1, q.problem.length = 2; }));
  EXPECT_FALSE(simple(p, [](Params& q) { q.problem.window_left = 100; }));
  EXPECT_FALSE(simple(p, [](Params& q) { q.problem.v_group = 8; })) << "K and V of different heads";
  EXPECT_FALSE(simple(p, [](Params& q) { q.softcap_out = 1; }));
  EXPECT_FALSE(simple(p, [](Params& q) { q.q_vectors = 0; }));
}

TEST(DecodeSchedule, TheLineIsSharedOnceAndEvenly) {
  for (const i64 total : {1, 5, 131, 132, 133, 16384, 1 << 20})
    for (const int most : {1, 2, 132, 264}) {
      const int blocks = static_cast<int>(std::min<i64>(most, total));
      i64 shortest = total, longest = 0;
      for (int b = 0; b < blocks; ++b) {
        const i64 begin = line_begin(total, b, blocks), end = line_begin(total, b + 1, blocks);
        shortest = std::min(shortest, end - begin), longest = std::max(longest, end - begin);
        for (const i64 at : {begin, (begin + end) / 2, end - 1}) {
          ASSERT_EQ(line_owner(total, at, blocks), b) << total << " " << at;
        }
      }
      EXPECT_EQ(line_begin(total, blocks, blocks), total);
      EXPECT_GE(shortest, 1);
      EXPECT_LE(longest - shortest, 1);
    }
}

// Request over memory that is never read.
Request request_of(int64_t heads, int64_t kv_heads, int64_t length, int64_t keys, int64_t head_dim) {
  Request r;
  void* somewhere = reinterpret_cast<void*>(uintptr_t{0x10000});
  const Device gpu{DeviceType::kCuda, 0};
  r.q = TensorView::contiguous(somewhere, DType::kBF16, {2, heads, length, head_dim}, gpu);
  r.k = r.v = TensorView::contiguous(somewhere, DType::kBF16, {2, kv_heads, keys, head_dim}, gpu);
  return r;
}

TEST(DecodeChoice, EveryHeadSizeHasAnImageOnEveryGpu) {
  const Gpu h200{}, small{142, 101376, false};
  for (const int64_t head_dim : {8, 64, 96, 128, 192, 256})
    for (const int64_t length : {1, 16})
      for (const Gpu& gpu : {h200, small}) {
        const EmbeddedImage* image = choose_image(request_of(32, 8, length, 1000, head_dim), gpu);
        ASSERT_NE(image, nullptr) << head_dim;
        EXPECT_GE(image->e, head_dim);
        EXPECT_EQ(image->large, gpu.clusters);
        EXPECT_LE(shared_bytes_of(*image), gpu.shared_per_block);
      }
  EXPECT_EQ(choose_image(request_of(32, 8, 1, 1000, 128), h200)->rows(), 16);
  EXPECT_EQ(choose_image(request_of(32, 8, 5, 1000, 128), h200)->rows(), 32);
  EXPECT_EQ(choose_image(request_of(32, 8, 1, 1000, 128), h200)->stages, 2) << "a small cache";
  EXPECT_EQ(choose_image(request_of(32, 8, 1, 131072, 128), h200)->stages, 3);
}

TEST(DecodeChoice, SharingUsesTheGpuAndStaysWithinTheKeys) {
  for (const int64_t tiles : {1, 8, 100, 128, 131, 133, 512, 5000})
    for (const int64_t key_tiles : {1, 3, 64, 1024})
      for (const bool ragged : {false, true})
        for (const bool clusters : {false, true}) {
          Work work{tiles, key_tiles, 132, ragged, 0, clusters};
          const Sharing s = share_keys(work);
          EXPECT_LE(s.parts, std::max<int64_t>(key_tiles, 1));
          EXPECT_LE(s.blocks, 132);
          EXPECT_EQ(s.join == Join::kNone, s.parts == 1);
          EXPECT_TRUE(clusters || s.join != Join::kCluster);
          EXPECT_TRUE(s.parts <= 8 || s.join != Join::kCluster);
          EXPECT_TRUE(s.parts > 0 || s.blocks > 0);
        }
  Work asked{8, 64, 132, false, 5, true};
  EXPECT_EQ(share_keys(asked).parts, 5);
  asked.splits = 1;
  EXPECT_EQ(share_keys(asked).join, Join::kNone);
}

std::set<std::string> codes_of(const Request& r) {
  std::set<std::string> codes;
  for (const Refusal& refusal : find_backend("decode", DeviceType::kCuda)->refusals(r)) {
    EXPECT_EQ(refusal.backend, "decode");
    EXPECT_FALSE(refusal.message.empty());
    codes.insert(refusal.code);
  }
  codes.erase("device");  // depends on the machine
  return codes;
}

TEST(DecodeRefusals, EachReasonHasItsCode) {
  using Codes = std::set<std::string>;
  EXPECT_EQ(codes_of(request_of(32, 8, 1, 1000, 128)), Codes{});
  EXPECT_EQ(codes_of(request_of(32, 8, 16, 1000, 128)), Codes{});
  EXPECT_EQ(codes_of(request_of(8, 8, 64, 1000, 128)), Codes{}) << "64 rows, nothing packed";
  EXPECT_EQ(codes_of(request_of(32, 8, 17, 1000, 128)), Codes{"too-many-rows"});
  EXPECT_EQ(codes_of(request_of(32, 8, 1, 1000, 264)), Codes{"head-dim-too-large"});
  EXPECT_EQ(codes_of(request_of(32, 8, 1, 1000, 100)), Codes{"layout"});
  EXPECT_EQ(codes_of(request_of(32, 8, 1, 0, 128)), Codes{"empty"});
  Request r = request_of(32, 8, 1, 1000, 128);
  r.mask_kind = MaskKind::kBool;
  r.dropout.p = 0.5;
  EXPECT_EQ(codes_of(r), (Codes{"mask", "dropout"}));
  r = request_of(32, 8, 1, 1000, 128);
  r.q.dtype = r.k.dtype = r.v.dtype = DType::kF32;
  EXPECT_EQ(codes_of(r), Codes{"dtype"});
  r = request_of(32, 8, 1, 1000, 128);
  r.lengths.cu_q.data = r.lengths.cu_k.data = r.q.data;
  EXPECT_EQ(codes_of(r), Codes{"packed-sequences"});
  r = request_of(32, 8, 1, 1000, 128);
  r.window = {100, 0};
  r.softcap = 30;
  r.sinks = TensorView::contiguous(r.q.data, DType::kF32, {32}, r.q.device);
  r.alibi_slopes = r.sinks;
  r.causal = CausalMode::kLowerRight;
  EXPECT_EQ(codes_of(r), Codes{});
  r.k.data = reinterpret_cast<void*>(uintptr_t{0x10002});
  EXPECT_EQ(codes_of(r), Codes{"layout"});
}

}  // namespace
}  // namespace attnscope::decode
