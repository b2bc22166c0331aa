#include "backends/cuda_mla/schedule.h"

#include <algorithm>

namespace attnscope::mla {
namespace {

// In times of a key tile: loading Q, filling the pipeline and writing the sums of a piece; joining pieces.
constexpr int64_t kPieceCost = 2, kJoinCost = 2;
constexpr int64_t kMaxParts = 128;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Time of even parts, and of the line shared by all blocks: there a block's run ends one row tile and begins
// another.
int64_t even_time(const Work& w, int64_t parts) {
  const int64_t turns = ceil_div(w.row_tiles * parts, w.blocks);
  return turns * (ceil_div(w.key_tiles, parts) + kPieceCost) + (parts > 1 ? kJoinCost : 0);
}
int64_t flat_time(const Work& w, int64_t blocks) {
  return ceil_div(w.row_tiles * w.key_tiles, blocks) + 2 * kPieceCost + kJoinCost;
}

}  // namespace

decode::Sharing share_keys(const Work& w) {
  using decode::Join;
  const auto even = [](int64_t parts) {
    return decode::Sharing{static_cast<int>(parts), 0, parts > 1 ? Join::kWorkspace : Join::kNone};
  };
  if (w.splits > 0) return even(w.splits);
  if (w.row_tiles == 0 || w.key_tiles <= 1) return even(1);
  const int64_t blocks = std::min(w.blocks, w.row_tiles * w.key_tiles);
  const decode::Sharing flat{0, static_cast<int>(blocks), Join::kWorkspace};
  if (w.ragged) return flat;
  int64_t best = 1;
  for (int64_t parts = 2; parts <= std::min(w.key_tiles, kMaxParts) && w.row_tiles * parts <= w.blocks;
       ++parts)
    if (even_time(w, parts) < even_time(w, best)) best = parts;
  return flat_time(w, blocks) < even_time(w, best) ? flat : even(best);
}

bool may_alias(const Request& r) {
  if (r.value_dim() > r.head_dim()) return false;
  for (int d = 0; d < 3; ++d)
    if (r.k.size(d) != r.v.size(d) || (r.k.size(d) > 1 && r.k.stride(d) != r.v.stride(d))) return false;
  return true;
}

}  // namespace attnscope::mla
