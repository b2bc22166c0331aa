#include "backends/cuda_mla/schedule.h"

#include <algorithm>

namespace attnscope::mla {
namespace {

// In times of a key tile (1.7 µs on an H200): loading Q and the first keys, and the end of a piece; joining
// parts, and for each piece what its sums add (fitted to 1 × 4k … 66 × 8k keys in 1 to 66 parts,
// docs/kernels/mla.md).
constexpr double kStart = 3, kJoin = 2, kJoinPiece = 0.08;
constexpr int64_t kMaxParts = 128;

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Of the block that has most to do.
double time_of(const Work& w, int64_t parts) {
  const int64_t pieces = w.row_tiles * parts;
  const auto turns = static_cast<double>(ceil_div(pieces, w.blocks));
  const double join = parts > 1 ? kJoin + kJoinPiece * static_cast<double>(pieces) : 0;
  return turns * (static_cast<double>(ceil_div(w.key_tiles, parts)) + kStart) + join;
}

}  // namespace

Work work_of(const Request& r, int blocks) {
  Work work;
  work.row_tiles = decode::row_tiles_of(r, kTileRows);
  work.key_tiles = ceil_div(r.kv_len(), kTileKeys);
  work.blocks = blocks;
  work.ragged = r.lengths.has_kv_lengths() && r.batch() > 1;
  work.splits = r.limits.splits;
  return work;
}

int share_keys(const Work& w) {
  if (w.splits > 0) return static_cast<int>(w.splits);
  if (w.row_tiles == 0 || w.key_tiles <= 1) return 1;
  const int64_t most = std::min(w.key_tiles, kMaxParts);
  // Lengths that differ even out when blocks take two turns.
  if (w.ragged) return static_cast<int>(std::clamp<int64_t>(2 * w.blocks / w.row_tiles, 1, most));
  int64_t best = 1;
  for (int64_t parts = 2; parts <= most && w.row_tiles * parts <= 4 * w.blocks; ++parts)
    if (time_of(w, parts) < time_of(w, best)) best = parts;
  return static_cast<int>(best);
}

bool may_alias(const Request& r) {
  if (r.value_dim() > r.head_dim()) return false;
  for (int d = 0; d < 3; ++d)
    if (r.k.size(d) != r.v.size(d) || (r.k.size(d) > 1 && r.k.stride(d) != r.v.stride(d))) return false;
  return true;
}

}  // namespace attnscope::mla
