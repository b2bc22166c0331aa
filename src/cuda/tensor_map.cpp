#include "cuda/tensor_map.h"

#include <fmt/format.h>

#include <cstdint>

namespace attnscope::cuda {
namespace {

constexpr int64_t kAlignment = 16;  // bytes
constexpr const char* kDimension[] = {"batch", "head", "row"};

}  // namespace

std::string tensor_map_obstacle(const TensorView& v) {
  const auto size = static_cast<int64_t>(dtype_size(v.dtype));
  if (v.size(3) > 1 && v.stride(3) != 1)
    return fmt::format("columns are {} elements apart, not contiguous", v.stride(3));
  if (reinterpret_cast<uintptr_t>(v.data) % kAlignment != 0) return "data is not 16-byte aligned";
  for (int d = 0; d < 3; ++d) {
    if (v.size(d) <= 1) continue;
    const int64_t bytes = v.stride(d) * size;
    if (bytes <= 0) return fmt::format("{} stride is {} (broadcast)", kDimension[d], v.stride(d));
    if (bytes % kAlignment != 0)
      return fmt::format("{} stride is {} bytes, not a multiple of 16", kDimension[d], bytes);
    if (bytes >= int64_t{1} << 40)
      return fmt::format("{} stride is {} bytes, 2^40 or more", kDimension[d], bytes);
  }
  return {};
}

TensorMapGeometry tensor_map_geometry(const TensorView& v) {
  const auto size = static_cast<int64_t>(dtype_size(v.dtype));
  TensorMapGeometry g{};
  for (int i = 0; i < 4; ++i) g.sizes[i] = static_cast<cuuint64_t>(v.size(3 - i));
  const int64_t row_bytes = (v.size(3) * size + kAlignment - 1) / kAlignment * kAlignment;
  for (int i = 0; i < 3; ++i)  // the stride of a dimension of size 1 never matters, but must be legal
    g.stride_bytes[i] = static_cast<cuuint64_t>(v.size(2 - i) > 1 ? v.stride(2 - i) * size : row_bytes);
  return g;
}

Status encode_tensor_map(const DriverApi& api, const TensorView& v, int box_rows, void* map) {
  const TensorMapGeometry g = tensor_map_geometry(v);
  const cuuint32_t box[4] = {64, static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t ones[4] = {1, 1, 1, 1};
  return check(
      api,
      api.tensor_map_encode_tiled(
          static_cast<CUtensorMap*>(map),
          v.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
          v.data, g.sizes, g.stride_bytes, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
          CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "cuTensorMapEncodeTiled");
}

Status encode_tensor_map(const DriverApi& api, const void* data, const TensorMapGeometry& g,
                         const TensorMapBox& b, void* map) {
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(b.columns), static_cast<cuuint32_t>(b.rows), 1, 1};
  const cuuint32_t ones[4] = {1, 1, 1, 1};
  return check(api,
               api.tensor_map_encode_tiled(
                   static_cast<CUtensorMap*>(map),
                   b.element_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_UINT16, 4,
                   const_cast<void*>(data), g.sizes, g.stride_bytes, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                   b.columns * b.element_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                   CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
               "cuTensorMapEncodeTiled");
}

}  // namespace attnscope::cuda
