#pragma once
// Which tiles a block of the featured kernel works on, found on the device: sequence lengths lie in device
// memory and the host never reads them.
//
// Tiles in order: pairs of sequence and head in groups whose K and V fit L2; in a group the tiles with most
// key steps first, over all its sequences; of those, a sequence's row blocks, and for each block the heads.
// How many row blocks of a sequence have exactly c steps has a closed form, so that one warp walks the order
// 32 (steps, sequence) pairs at a time and needs no table: any number of sequences, no second kernel, no
// memory.

#include "backends/cuda_flash_sm90/featured/ranges.h"

namespace attnscope::flash_sm90 {

// Clamped to what the kernel's indices hold, so that no content of the vectors leads outside a tensor.
ATTNSCOPE_D int read_index(const IndexVector& v, int i, int limit) {
  const i64 value = v.wide ? static_cast<const i64*>(v.data)[i * v.stride]
                           : i64(static_cast<const int*>(v.data)[i * v.stride]);
  return int(min(max(value, i64(0)), i64(limit)));
}

ATTNSCOPE_D Sequence sequence_at(const FeaturedParams& p, int n) {
  if (p.cu_q.data == nullptr)
    return {0, p.rows, 0, p.kv_lengths.data ? read_index(p.kv_lengths, n, p.columns) : p.columns, n};
  const int q_begin = read_index(p.cu_q, n, p.rows);
  if (n == p.sequences - 1) return {q_begin, p.rows - q_begin, 0, 0, 0};
  const int k_begin = read_index(p.cu_k, n, p.columns);
  return {q_begin, max(0, read_index(p.cu_q, n + 1, p.rows) - q_begin), k_begin,
          max(0, read_index(p.cu_k, n + 1, p.columns) - k_begin), 0};
}

// In shared memory, since the producer warpgroup gives most of its registers away.
struct WalkState {
  int most_steps;  // of any tile
  int first_pair;  // of the current group; pair = sequence · heads + head
  int base;        // number of the first tile of the current window of 32 (steps, sequence)
};

// One warp. Tile numbers asked for must grow.
template <int kRows, int kColumns>
class Walk {
 public:
  ATTNSCOPE_D Walk(const FeaturedParams& params, WalkState& state)
      : p_(params), state_(state), lane_(int(threadIdx.x) % kWarp) {
    int most = 1;
    for (int n = lane_; n < p_.sequences; n += kWarp)
      most = max(most, (sequence_at(p_, n).keys + kColumns - 1) / kColumns);
    for (int bit = 16; bit > 0; bit /= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, bit));
    if (lane_ == 0) state_ = {most, 0, 0};
    __syncwarp();
    restart();
  }

  // Writes tile `t`; every lane gets whether there is one. The lane that wrote it gets true in `wrote`.
  ATTNSCOPE_D bool find(int t, TileInfo& to, bool& wrote) {
    wrote = false;
    for (;;) {
      const int pair = state_.first_pair, pairs = min(p_.group_heads, p_.sequences * p_.heads - pair);
      if (pairs <= 0) return false;
      Sequence s{};
      int before = 0, tiles = 0, first_head = 0, heads = 1;
      if (steps_ > 0) {
        s = sequence_at(p_, n_);
        first_head = max(0, pair - n_ * p_.heads);
        heads = min(p_.heads, pair + pairs - n_ * p_.heads) - first_head;
        before = blocks_within<kRows, kColumns>(p_, s, steps_ - 1);
        tiles = (blocks_within<kRows, kColumns>(p_, s, steps_) - before) * heads;
      }
      int up_to = tiles;  // over the lanes up to this one
#pragma unroll
      for (int d = 1; d < kWarp; d *= 2) {
        const int other = __shfl_up_sync(0xFFFFFFFFu, up_to, d);
        if (lane_ >= d) up_to += other;
      }
      const int total = __shfl_sync(0xFFFFFFFFu, up_to, kWarp - 1);
      const int in_window = t - state_.base;
      if (in_window < total) {
        const int mine = in_window - (up_to - tiles);
        if (mine >= 0 && mine < tiles) {
          to = tile_info<kRows, kColumns>(p_, s, before + mine / heads, first_head + mine % heads);
          wrote = true;
        }
        return true;
      }
      next_window(total);
    }
  }

 private:
  ATTNSCOPE_D void restart() {
    const int last_pair = min(state_.first_pair + p_.group_heads, p_.sequences * p_.heads) - 1;
    first_n_ = state_.first_pair / p_.heads;
    count_ = max(1, last_pair / p_.heads - first_n_ + 1);
    steps_ = state_.most_steps - lane_ / count_;
    n_ = first_n_ + lane_ % count_;
  }
  ATTNSCOPE_D void next_window(int tiles) {
    steps_ -= kWarp / count_;
    n_ += kWarp % count_;
    if (n_ >= first_n_ + count_) n_ -= count_, --steps_;
    const bool more = __any_sync(0xFFFFFFFFu, steps_ > 0);
    if (lane_ == 0) {
      state_.base += tiles;
      if (!more) state_.first_pair += p_.group_heads;
    }
    __syncwarp();
    if (!more) restart();
  }

  const FeaturedParams& p_;
  WalkState& state_;
  int lane_;
  int first_n_, count_;  // sequences of the group
  int steps_, n_;        // this lane's steps and sequence
};

}  // namespace attnscope::flash_sm90
