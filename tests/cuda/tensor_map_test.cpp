#include "cuda/tensor_map.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace attnscope::cuda {
namespace {

TensorView view(int64_t b, int64_t h, int64_t s, int64_t d) {
  return TensorView::contiguous(reinterpret_cast<void*>(uintptr_t{0x10000}), DType::kBF16, {b, h, s, d},
                                {DeviceType::kCuda, 0});
}

TEST(TensorMap, DenseViewsPass) {
  EXPECT_EQ(tensor_map_obstacle(view(2, 3, 100, 64)), "");
  EXPECT_EQ(tensor_map_obstacle(view(2, 3, 100, 40)), "");
  EXPECT_EQ(tensor_map_obstacle(view(1, 1, 1, 13)), "") << "strides of size-1 dimensions never matter";
}

TEST(TensorMap, ObstaclesNameTheDimensionAndTheValue) {
  EXPECT_NE(tensor_map_obstacle(view(1, 1, 4, 12)).find("row stride is 24 bytes"), std::string::npos);
  TensorView broadcast = view(2, 4, 100, 64);
  broadcast.strides[1] = 0;
  EXPECT_NE(tensor_map_obstacle(broadcast).find("head stride is 0 (broadcast)"), std::string::npos);
  TensorView gaps = view(2, 4, 100, 64);
  gaps.strides[3] = 2;
  EXPECT_NE(tensor_map_obstacle(gaps).find("2 elements apart"), std::string::npos);
  TensorView odd = view(2, 4, 100, 64);
  odd.data = reinterpret_cast<void*>(uintptr_t{0x10002});
  EXPECT_NE(tensor_map_obstacle(odd).find("16-byte aligned"), std::string::npos);
  TensorView far = view(2, 4, 100, 64);
  far.strides[0] = int64_t{1} << 40;
  EXPECT_NE(tensor_map_obstacle(far).find("batch stride"), std::string::npos);
}

TEST(TensorMap, GeometryIsInnermostFirst) {
  TensorView v = view(2, 3, 100, 64);
  v.strides = {99'000, 64, 192, 1};  // [batch, seq, head, dim] in memory
  const TensorMapGeometry g = tensor_map_geometry(v);
  EXPECT_EQ(g.sizes[0], 64u);
  EXPECT_EQ(g.sizes[1], 100u);
  EXPECT_EQ(g.sizes[2], 3u);
  EXPECT_EQ(g.sizes[3], 2u);
  EXPECT_EQ(g.stride_bytes[0], 384u);
  EXPECT_EQ(g.stride_bytes[1], 128u);
  EXPECT_EQ(g.stride_bytes[2], 198'000u);
}

TEST(TensorMap, SizeOneDimensionsGetALegalStride) {
  TensorView v = view(1, 1, 1, 20);
  v.strides = {0, 3, 7, 1};
  for (const cuuint64_t stride : tensor_map_geometry(v).stride_bytes) EXPECT_EQ(stride, 48u);
}

}  // namespace
}  // namespace attnscope::cuda
