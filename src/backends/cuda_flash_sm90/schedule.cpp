#include "backends/cuda_flash_sm90/schedule.h"

#include <algorithm>
#include <numeric>

namespace attnscope::flash_sm90 {
namespace {

constexpr double kTileOverhead = 0.7;         // of a step: first product, epilogue
constexpr double kL2Bytes = 40e6;             // of K and V that stay, of 60 MB
constexpr double kBytesPerMicrosecond = 4e6;  // device memory
constexpr int64_t kSimulatedTiles = 1 << 16;  // beyond, imbalance is lost in the average

int64_t row_blocks(const Problem& p, const TileShape& s) {
  return (p.rows + s.rows - 1) / s.rows;
}

// Largest load of a block, in steps.
double largest_load(const Problem& p, const TileShape& s, int64_t group, int64_t blocks,
                    const std::vector<double>& cost) {
  const int64_t per_head = row_blocks(p, s);
  std::vector<double> load(static_cast<size_t>(blocks), 0.0);
  int64_t i = 0;
  for (int64_t first = 0; first < p.heads; first += group) {
    const int64_t heads = std::min(group, p.heads - first);
    for (int64_t m = per_head - 1; m >= 0; --m)
      for (int64_t h = 0; h < heads; ++h, ++i) {
        const int64_t place = i % blocks;
        load[static_cast<size_t>(i / blocks % 2 == 0 ? place : blocks - 1 - place)] +=
            cost[static_cast<size_t>(m)];
      }
  }
  return *std::max_element(load.begin(), load.end());
}

std::vector<int64_t> candidate_groups(const Problem& p, int64_t per_head, int64_t blocks) {
  std::vector<int64_t> groups{p.heads, (p.heads + 1) / 2, (p.heads + 3) / 4};
  // A group that fills an even number of turns is balanced in itself.
  for (int64_t turns = 2; turns <= 8; turns += 2)
    groups.push_back(std::min(p.heads, std::max<int64_t>(1, (turns * blocks + per_head / 2) / per_head)));
  return groups;
}

}  // namespace

int64_t steps_of(const Problem& p, const TileShape& s, int64_t row_block) {
  const int64_t last = std::min((row_block + 1) * s.rows, p.rows);
  const int64_t end = p.causal ? std::min(p.columns, last + p.causal_offset) : p.columns;
  int64_t begin = 0;
  if (p.window_left >= 0)
    begin = std::max<int64_t>(0, row_block * s.rows + p.causal_offset - p.window_left) / s.keys;
  return std::max<int64_t>(1, end > 0 ? (end + s.keys - 1) / s.keys - begin : 0);
}

WalkedTile tile_of(const Problem& p, const TileShape& s, int64_t group_heads, int64_t blocks, int64_t block,
                   int64_t turn) {
  const int64_t per_head = row_blocks(p, s);
  const int64_t t = turn * blocks + (turn % 2 == 0 ? block : blocks - 1 - block);
  if (t >= per_head * p.heads) return {-1, -1};
  const int64_t group = t / (group_heads * per_head);
  const int64_t in_group = t % (group_heads * per_head);
  const int64_t heads = std::min(group_heads, p.heads - group * group_heads);
  return {group * group_heads + in_group % heads, per_head - 1 - in_group / heads};
}

Schedule choose_schedule(const Problem& p, const TileShape& s, int64_t blocks) {
  const int64_t per_head = row_blocks(p, s), tiles = per_head * p.heads;
  Schedule best;
  if (tiles == 0) return best;
  blocks = std::min(blocks, tiles);
  std::vector<double> cost(static_cast<size_t>(per_head));
  for (int64_t m = 0; m < per_head; ++m)
    cost[static_cast<size_t>(m)] = static_cast<double>(steps_of(p, s, m)) + kTileOverhead;
  const double steps = std::accumulate(cost.begin(), cost.end(), 0.0) * static_cast<double>(p.heads);
  const double mean = steps / static_cast<double>(blocks);
  if (!p.causal) {  // equal tiles: head after head keeps K and V in L2, and nothing is unbalanced
    const auto turns = static_cast<double>((tiles + blocks - 1) / blocks);
    best.balance = mean / (turns * cost[0]);
    best.expected_us = turns * cost[0] * s.step_us;
    return best;
  }
  best.expected_us = -1;
  for (const int64_t group : candidate_groups(p, per_head, blocks)) {
    const double load = tiles > kSimulatedTiles ? mean : largest_load(p, s, group, blocks, cost);
    // Blocks that work on the same head read the same keys at about the same time.
    const bool fits = static_cast<double>(group) * p.kv_bytes_per_head <= kL2Bytes;
    const double sharing = std::max(1.0, static_cast<double>(blocks) / static_cast<double>(group));
    const double read =
        steps * s.keys * p.kv_bytes_per_head / static_cast<double>(std::max<int64_t>(p.columns, 1));
    const double bytes = fits ? static_cast<double>(p.heads) * p.kv_bytes_per_head : read / sharing;
    const double compute_us = load * s.step_us, memory_us = bytes / kBytesPerMicrosecond;
    const double us = std::max(compute_us, memory_us) + 0.2 * std::min(compute_us, memory_us);
    if (best.expected_us < 0 || us < best.expected_us) best = {group, mean / load, us};
  }
  return best;
}

}  // namespace attnscope::flash_sm90
