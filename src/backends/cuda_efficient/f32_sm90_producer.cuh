#pragma once
// The producer warpgroup of the f32 kernel for Hopper.

#include "backends/cuda_efficient/f32_sm90_rows.cuh"

namespace attnscope::efficient_f32 {

// 64 bytes of a row of a bool mask as bits; bytes past the last key count as masked.
struct MaskBytes {
  u32 words[16];

  ATTNSCOPE_D void load(const Params& p, const u8* row, int first) {
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      const int key = first + 16 * piece;
      u32* w = words + 4 * piece;
      if (p.mask.vector_bytes == 16 && key + 16 <= p.keys) {
        const uint4 x = *reinterpret_cast<const uint4*>(row + key);
        w[0] = x.x, w[1] = x.y, w[2] = x.z, w[3] = x.w;
        continue;
      }
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        const u32 byte = key + n < p.keys ? row[(key + n) * p.mask.column] : 0;
        w[n / 4] = n % 4 == 0 ? byte : w[n / 4] | byte << (8 * (n % 4));
      }
    }
  }
  ATTNSCOPE_D u64 bits() const {
    u64 all = 0;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const u32 x = words[n];
      const u32 set =
          (((x & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) | x) >> 7 & 0x01010101u;  // 1 in a byte that is not 0
      all |= u64((set * 0x10204080u) >> 28) << (4 * n);
    }
    return all;
  }
};

// Who sees what: each of the producer's threads knows one row or two of the block.
template <class C>
struct Sight {
  const Params& p;
  HopperStorage<C>& shared;
  const int thread, warp;
  Interval keys[C::kRowsEach];
  bool exists[C::kRowsEach];
  int begin, end, all_from, all_to;  // keys that some row sees; that all see
  const u8* mask[C::kRowsEach];
  MaskBytes ahead[C::kRowsEach];  // of the tile that is looked at next
  u64 kept[C::kRowsEach];
  u32 seen = 0;  // of the tile found: TileInfo::seen
  int turn = 0;

  ATTNSCOPE_D bool bool_mask() const { return C::kFeatured && p.mask.type == MaskType::kBool; }

  ATTNSCOPE_D Sight(const Params& params, HopperStorage<C>& storage, const Place& place)
      : p(params), shared(storage), thread(int(threadIdx.x) % kWarpgroup), warp(thread / 32) {
    int seen_from = mma::kFar, seen_to = 0, full_from = 0, full_to = mma::kFar;
#pragma unroll
    for (int r = 0; r < C::kRowsEach; ++r) {
      const int local = thread + r * kWarpgroup, row = place.row_block * C::kRows + local;
      exists[r] = local < C::kRows && row < p.rows;
      int diagonal;
      keys[r] = mma::visible(p, place.batch, min(row, p.rows - 1), diagonal);
      if (local < C::kRows) shared.diagonals[local] = diagonal;
      if (bool_mask())
        mask[r] = static_cast<const u8*>(p.mask.data) + place.batch * p.mask.batch +
                  place.head * p.mask.head + min(row, p.rows - 1) * p.mask.row;
      if (!exists[r]) continue;
      if (keys[r].begin < keys[r].end)
        seen_from = min(seen_from, keys[r].begin), seen_to = max(seen_to, keys[r].end);
      full_from = max(full_from, keys[r].begin), full_to = min(full_to, keys[r].end);
    }
    int(&mine)[4] = shared.bounds[warp];
    mine[0] = __reduce_min_sync(0xFFFFFFFFu, seen_from), mine[1] = __reduce_max_sync(0xFFFFFFFFu, seen_to);
    mine[2] = __reduce_max_sync(0xFFFFFFFFu, full_from), mine[3] = __reduce_min_sync(0xFFFFFFFFu, full_to);
    sync_warpgroup(0);
    begin = mma::kFar, end = 0, all_from = 0, all_to = mma::kFar;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int(&b)[4] = shared.bounds[w];
      begin = min(begin, b[0]), end = max(end, b[1]), all_from = max(all_from, b[2]),
      all_to = min(all_to, b[3]);
    }
    begin = begin / C::kKeys * C::kKeys;
    if (begin < end) look_ahead(begin);
  }

  ATTNSCOPE_D void look_ahead(int first) {
    if (!bool_mask()) return;
#pragma unroll
    for (int r = 0; r < C::kRowsEach; ++r)
      if (exists[r]) ahead[r].load(p, mask[r], first);
  }

  // The first tile at or after `first` of which some row sees a key; `end` or more: none.
  ATTNSCOPE_D int find(int first) {
    for (; first < end; first += C::kKeys) {
      if (!bool_mask() && first >= all_from && first + C::kKeys <= all_to) {
        seen = (1u << C::kConsumers) - 1;
        return first;
      }
      u32 vote = 0;
#pragma unroll
      for (int r = 0; r < C::kRowsEach; ++r) {
        kept[r] = interval_bits(keys[r], first);
        if (bool_mask()) kept[r] &= ahead[r].bits();
        const u32 consumer = u32(thread / kTileRows + 2 * r);
        if (exists[r])
          vote |= (kept[r] != 0 ? 1u : 0u) << consumer | (~kept[r] != 0 ? 0x100u : 0u) << consumer;
      }
      if (first + C::kKeys < end) look_ahead(first + C::kKeys);
      vote = __reduce_or_sync(0xFFFFFFFFu, vote);
      u32(&votes)[4] = shared.votes[turn++ % 2];
      if (thread % 32 == 0) votes[warp] = vote;
      sync_warpgroup(0);
      seen = votes[0] | votes[1] | votes[2] | votes[3];
      if ((seen & 0xFF) != 0) return first;
    }
    return first;
  }

  ATTNSCOPE_D void write_kept(TileInfo<C>& info) const {
    if (seen < 0x100) return;
#pragma unroll
    for (int r = 0; r < C::kRowsEach; ++r)
      if (thread + r * kWarpgroup < C::kRows) info.kept[thread + r * kWarpgroup] = kept[r];
  }
};

template <class C>
ATTNSCOPE_D void produce(const Params& p, HopperStorage<C>& shared, const Place& place) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) % kWarpgroup / 32;
  const Source k = keys_of<C, false>(p, place), v = keys_of<C, true>(p, place);
  Sight<C> sight(p, shared, place);
  const auto publish = [&](Barrier& full) {
    tile::fence_to_async_proxy();
    __syncwarp();
    if (lane == 0) tile::barrier_arrive(full);
  };
  int n = 0;
  for (int first = sight.find(sight.begin); first < sight.end; first = sight.find(first + C::kKeys), ++n) {
    const int stage = n % C::kStages;
    const u32 parity = (n / C::kStages) & 1;
    TileInfo<C>& info = shared.info[n % C::kInfos];
    const u32 largest = copy_rows<C>(k, first, sight.end, shared.k[stage], [&] {
      tile::barrier_wait(shared.k_empty[stage], parity ^ 1);
      if (threadIdx.x % kWarpgroup == 0) info.first_key = first, info.end = sight.end, info.seen = sight.seen;
      sight.write_kept(info);
    });
    if (lane == 0) info.largest[warp] = largest;
    publish(shared.k_full[stage]);
    const u32 largest_v = copy_rows<C>(v, first, sight.end, shared.v[stage],
                                       [&] { tile::barrier_wait(shared.v_empty[stage], parity ^ 1); });
    if (lane == 0) info.largest_v[warp] = largest_v;
    publish(shared.v_full[stage]);
  }
  tile::barrier_wait(shared.k_empty[n % C::kStages], ((n / C::kStages) & 1) ^ 1);
  if (threadIdx.x % kWarpgroup == 0) shared.info[n % C::kInfos].first_key = -1;
  publish(shared.k_full[n % C::kStages]);
}

}  // namespace attnscope::efficient_f32
