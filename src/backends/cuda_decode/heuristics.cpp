#include "backends/cuda_decode/heuristics.h"

#include "cuda/kernels_tile/maps.h"

#include <algorithm>

namespace attnscope::decode {
namespace {

// Clusters of `size` blocks that run at once take this part of the multiprocessors: a cluster lies within one
// group of them (GPC), whose sizes differ (on an H200 two clusters of 16 blocks do not find a place at once
// in all).
struct ClusterSize {
  int size;
  double part;
};
constexpr ClusterSize kClusters[] = {{8, 0.8}, {4, 0.9}, {2, 1.0}};

// Measured on an H200, D 128, 8 key heads (docs/kernels/decode.md): joining through memory costs 1.2 to 2 µs
// more than through a cluster, which half as many multiprocessors make up for as long as a block has few key
// tiles: 8 at a batch of 1 and 8192 keys (19.8 against 21.0 µs), not 128 (175 against 138).
constexpr int64_t kFewKeyTiles = 8;
// Parts joined through memory cost 4 %, flat runs, which also end one row tile and begin another, 8 %: batch
// 16 takes 134.5 µs whole, 140 in two parts; batch 1 of 131072 keys 138.2 in 16 parts, 142 flat.
constexpr double kPartsEfficiency = 0.96, kFlatEfficiency = 0.92;
constexpr int64_t kMaxParts = 128;

// Part of the slots that work on average, with `blocks` equal blocks.
double efficiency(int64_t blocks, int64_t slots) {
  const int64_t turns = (blocks + slots - 1) / slots;
  return static_cast<double>(blocks) / static_cast<double>(turns * slots);
}

// The size of cluster to use, or 0.
int cluster_for(const Work& w) {
  if (!w.clusters || w.row_tiles * 2 > w.slots) return 0;
  for (const ClusterSize& c : kClusters) {
    const int64_t blocks = w.row_tiles * c.size;
    if (c.size > w.key_tiles || static_cast<double>(blocks) > c.part * static_cast<double>(w.slots)) continue;
    const bool fills = blocks * 10 >= w.slots * 8;
    return fills || w.key_tiles <= kFewKeyTiles * c.size ? c.size : 0;
  }
  return 0;
}

}  // namespace

int64_t shared_bytes_of(const EmbeddedImage& i) {
  const int64_t unit = tile::tile_bytes(16, i.e) + tile::tile_bytes(16, i.ev);
  return i.teams * i.stages * i.units * unit + int64_t{i.row_warps} * tile::tile_bytes(16, i.e) + 4096;
}

bool too_many_rows(const Request& r) {
  const int64_t pack = r.k.size(1) > 0 && r.v.size(1) > 0 && r.heads() > 0 ? packed_heads(r) : 1;
  return r.q_len() > kMaxLength && pack * r.q_len() > kMaxPackedRows;
}

const EmbeddedImage* choose_image(const Request& r, const Gpu& gpu) {
  const bool few_rows = packed_heads(r) * r.q_len() <= kSmallRows;
  const bool small = has_small_cache(r);
  const EmbeddedImage* best = nullptr;
  const auto better = [&](const EmbeddedImage& a, const EmbeddedImage& b) {
    const int size_a = a.e + a.ev, size_b = b.e + b.ev;
    if (size_a != size_b) return size_a < size_b;
    if (a.rows() != b.rows()) return few_rows ? a.rows() < b.rows() : a.rows() > b.rows();
    if (a.large != b.large) return a.large;
    return small ? a.stages < b.stages : a.stages > b.stages;
  };
  for (const EmbeddedImage& image : images()) {
    if (image.dtype != r.q.dtype || image.e < r.head_dim() || image.ev < r.value_dim() ||
        shared_bytes_of(image) > gpu.shared_per_block || (image.large && !gpu.clusters))
      continue;  // large ones have code for 9.0 and later only
    if (best == nullptr || better(image, *best)) best = &image;
  }
  return best;
}

Sharing share_keys(const Work& w) {
  const auto even = [](int64_t parts) {
    return Sharing{static_cast<int>(parts), 0, parts > 1 ? Join::kWorkspace : Join::kNone};
  };
  if (w.splits > 0) return even(w.splits);
  if (w.key_tiles <= 1 || w.row_tiles == 0) return even(1);
  const int64_t most = std::min(w.key_tiles, kMaxParts);
  // Lengths that differ even out when there are two blocks to a slot: 86.9 µs (flat 92.7) with half of 16 ×
  // 8192 keys.
  if (w.ragged) return even(std::clamp<int64_t>(2 * w.slots / w.row_tiles, 1, most));
  if (const int size = cluster_for(w); size > 0) return {size, 0, Join::kCluster};
  int64_t best = 1;
  double best_efficiency = efficiency(w.row_tiles, w.slots);
  for (int64_t parts = 2; parts <= most && w.row_tiles * parts <= w.slots; ++parts)
    if (const double e = kPartsEfficiency * efficiency(w.row_tiles * parts, w.slots); e > best_efficiency)
      best = parts, best_efficiency = e;
  const int64_t blocks = std::min(w.slots, w.row_tiles * w.key_tiles);
  if (kFlatEfficiency * efficiency(blocks, w.slots) > best_efficiency)
    return {0, static_cast<int>(blocks), Join::kWorkspace};
  return even(best);
}

}  // namespace attnscope::decode
