#include "backends/cuda_flash_sm90/featured/mask_plan.h"

#include "attention/cost.h"
#include "attention/geometry.h"
#include "backends/cuda_flash_sm90/loaded.h"
#include "base/event_sink.h"
#include "base/text.h"
#include "cuda/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::flash_sm90 {
namespace {

constexpr std::string_view kKeptKernel = "mask_tiles";
constexpr int64_t kMaxLength = int64_t{1} << 28;  // as without a mask (plan.cpp)
constexpr int kKeptThreads = 256;
constexpr int64_t kMostSteps = 1024;  // of which the kernel leaves any out (masks.cuh)
constexpr double kLeastFlops = 2e10;  // some 40 µs: what is shorter gains less than a launch costs

// Sizes and strides of a mask's map, where a dimension that broadcasts has size 1.
cuda::TensorMapGeometry mask_geometry(const Request& r, const MaskAccess& m) {
  const auto size = static_cast<int64_t>(dtype_size(m.dtype));
  cuda::TensorMapGeometry g{};
  g.sizes[0] = static_cast<cuuint64_t>(r.kv_len());
  const std::pair<int64_t, int64_t> others[] = {// size, stride
                                                {r.q_len(), m.stride_i},
                                                {r.heads(), m.stride_h},
                                                {r.batch(), m.stride_b}};
  for (int d = 0; d < 3; ++d) {
    const auto [n, stride] = others[d];
    g.sizes[d + 1] = static_cast<cuuint64_t>(stride == 0 ? 1 : n);
    g.stride_bytes[d] = static_cast<cuuint64_t>(stride == 0 ? 16 : stride * size);
  }
  return g;
}

}  // namespace

Masking masking(const Request& r) {
  return r.mask_kind == MaskKind::kNone   ? Masking::kNone
         : r.mask_kind == MaskKind::kBool ? Masking::kBool
                                          : Masking::kBias;
}

std::string mask_obstacle(const Request& r) {
  if (!dtype_is_half(r.q.dtype)) return fmt::format("takes bf16 and f16, not {}", dtype_name(r.q.dtype));
  if (r.softcap > 0 || r.alibi_slopes.data != nullptr || r.dropout.p > 0)
    return "takes no softcap, ALiBi or dropout beside a mask";
  if (r.lengths.packed() || r.paging.active()) return "takes no packed sequences or pages beside a mask";
  if (r.kv_len() == 0 || r.head_dim() == 0 || r.value_dim() == 0) return "needs a key and a column";
  if (std::max({r.q_len(), r.kv_len(), r.batch() * r.heads() * ((r.q_len() + 127) / 128)}) > kMaxLength)
    return "takes no such lengths";
  for (const TensorView* v : {&r.q, &r.k, &r.v})
    if (std::string why = cuda::tensor_map_obstacle(*v); !why.empty()) return why;
  const MaskAccess m(r.mask);
  if (masking(r) == Masking::kBias && m.dtype != r.q.dtype)
    return fmt::format("takes a bias of {}, not {}", dtype_name(r.q.dtype), dtype_name(m.dtype));
  if (m.stride_j != 1) return "the mask's keys are not contiguous";
  if (reinterpret_cast<uintptr_t>(m.data) % 16 != 0) return "the mask is not 16-byte aligned";
  for (const int64_t stride : {m.stride_b, m.stride_h, m.stride_i}) {
    const int64_t bytes = stride * static_cast<int64_t>(dtype_size(m.dtype));
    if (bytes % 16 != 0 || bytes < 0 || bytes >= int64_t{1} << 40)
      return fmt::format("a stride of the mask is {} bytes", bytes);
  }
  return {};
}

void set_mask(const Request& r, MaskedParams& p) {
  if (r.mask_kind == MaskKind::kNone) return;
  const MaskAccess m(r.mask);
  p.mask_at = m.data;
  const int64_t strides[] = {m.stride_b, m.stride_h, m.stride_i};
  std::copy(strides, strides + 3, p.mask_strides);
  p.mask_batch = m.stride_b != 0 ? 1 : 0;
  p.mask_head = m.stride_h != 0 ? 1 : 0;
  p.mask_row = m.stride_i != 0 ? 1 : 0;
  p.bias_scale = static_cast<float>(r.effective_scale());
  if (m.stride_b == 0 && m.stride_h != 0 && r.batch() > 1 && !r.lengths.has_kv_lengths()) {
    p.heads_first = 1;
    p.heads = static_cast<int>(r.batch());
    p.sequences = static_cast<int>(r.heads());
  }
}

Status encode_mask(const cuda::DriverApi& api, const Request& r, const FeaturedImage& image, void* map) {
  const MaskAccess m(r.mask);
  const auto size = static_cast<int>(dtype_size(m.dtype));
  const int panel = std::min(image.keys, 128 / size);  // mask_tile.h
  return cuda::encode_tensor_map(api, m.data, mask_geometry(r, m),
                                 {size, panel, m.stride_i != 0 ? image.rows() : 1}, map);
}

Result<KeptTiles> KeptTiles::of(const Request& r, const FeaturedImage& image) {
  KeptTiles k;
  const int64_t steps = (r.kv_len() + image.keys - 1) / image.keys;
  if (masking(r) != Masking::kBool || steps > kMostSteps || base_cost(r).flops < kLeastFlops) return k;
  const MaskAccess m(r.mask);
  KeptParams& p = k.params_;
  const int64_t strides[] = {m.stride_b, m.stride_h, m.stride_i};
  std::copy(strides, strides + 3, p.mask_strides);
  p.rows = m.stride_i != 0 ? static_cast<int>(r.q_len()) : 1;
  p.keys = static_cast<int>(r.kv_len());
  p.tile_rows = image.rows();
  p.tile_keys = image.keys;
  p.heads = m.stride_h != 0 ? static_cast<int>(r.heads()) : 1;
  p.row_blocks = (p.rows + p.tile_rows - 1) / p.tile_rows;
  p.steps = static_cast<int>(steps);
  const int64_t tiles = (m.stride_b != 0 ? r.batch() : 1) * p.heads * p.row_blocks * steps;
  if (tiles > kMaxLength) return k;
  p.tiles = static_cast<int>(tiles);
  ATTNSCOPE_ASSIGN(k.image_, loaded("mask_tiles", mask_tiles_image(), kKeptThreads, r.q.device.index,
                                    "mask_tiles", "mask_tiles_shared_bytes"));
  return k;
}

std::string KeptTiles::describe() const {
  return fmt::format("kernel {}  finds which of {} tiles the mask removes: {} of workspace", kKeptKernel,
                     params_.tiles, format_bytes(static_cast<double>(workspace_bytes())));
}

Status KeptTiles::run(const Request& r, void* workspace, const RunOptions& options,
                      MaskedParams& main) const {
  if (!needed()) return {};
  KeptParams p = params_;
  p.mask = r.mask.as<tile::u8>();
  p.kept = static_cast<tile::u8*>(workspace);
  main.kept = p.kept;
  main.kept_strides[2] = main.mask_row != 0 ? p.steps : 0;
  main.kept_strides[1] = main.mask_head != 0 ? int64_t{p.steps} * p.row_blocks : 0;
  main.kept_strides[0] = main.mask_batch != 0 ? int64_t{p.steps} * p.row_blocks * p.heads : 0;
  const int blocks = (p.tiles + kKeptThreads / 32 - 1) / (kKeptThreads / 32);
  const EventScope scope(kKeptKernel, EventKind::kKernel, int64_t{p.tiles} * p.tile_rows * p.tile_keys,
                         p.tiles);
  return image_->launch(blocks, &p, static_cast<CUstream>(options.stream));
}

}  // namespace attnscope::flash_sm90
