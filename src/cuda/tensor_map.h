#pragma once
// Descriptors for the bulk tensor copy engine (TMA) of Hopper and newer.

#include "attnscope/tensor_view.h"
#include "cuda/driver_api.h"

#include <string>

namespace attnscope::cuda {

// Why the engine cannot address this view ([batch, heads, rows, columns], 16-bit elements), with the values;
// empty when it can: columns contiguous, address and strides multiples of 16 bytes, no broadcast dimension.
std::string tensor_map_obstacle(const TensorView& view);

// Sizes and strides of the 4-D map {column, row, head, batch}, as the driver wants them.
struct TensorMapGeometry {
  cuuint64_t sizes[4];
  cuuint64_t stride_bytes[3];  // of row, head, batch
};
TensorMapGeometry tensor_map_geometry(const TensorView& view);

// Encodes boxes of 64 columns × `box_rows` rows with the 128-byte swizzle; elements outside read as zeros.
[[nodiscard]] Status encode_tensor_map(const DriverApi& api, const TensorView& view, int box_rows, void* map);

// Boxes of another tensor than Q, K, V and O: a mask's tiles.
struct TensorMapBox {
  int element_bytes;  // 1 or 2
  int columns, rows;  // a row of the box is 128 or 64 bytes, and swizzled over as many
};
[[nodiscard]] Status encode_tensor_map(const DriverApi& api, const void* data,
                                       const TensorMapGeometry& geometry, const TensorMapBox& box, void* map);

}  // namespace attnscope::cuda
