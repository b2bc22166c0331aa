#pragma once
// A consumer warpgroup of the f32 kernel for Hopper: 64 query rows.

#include "backends/cuda_efficient/f32_sm90_rows.cuh"

namespace attnscope::efficient_f32 {

template <class C>
struct HopperConsumer {
  const Params& p;
  HopperStorage<C>& shared;
  const Place& place;
  const int warpgroup;
  float o[C::kHalves][32];  // [half][i]: column 64·half + accumulator_column(thread, i)
  Softmax<C> softmax;
  bool large_q;

  using Tile = float[32];  // an accumulator of 64 × 64
  ATTNSCOPE_D static Tile& flat(Scores<C>& s) { return *reinterpret_cast<Tile*>(&s); }

  ATTNSCOPE_D HopperConsumer(const Params& params, HopperStorage<C>& storage, const Place& where, int w)
      : p(params), shared(storage), place(where), warpgroup(w) {
#pragma unroll
    for (int half = 0; half < C::kHalves; ++half)
#pragma unroll
      for (int i = 0; i < 32; ++i) o[half][i] = 0;
    softmax.start();
    load_queries();
  }

  // The thread's place, found anew wherever it is asked for: kept from tile to tile it and what follows from
  // it would cost registers.
  struct Lane {
    int t;    // of its quad
    int row;  // its first row of the warpgroup's; the other is 8 further
  };
  ATTNSCOPE_D static Lane lane_again() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return {thread % 4, thread % kWarpgroup / 32 * 16 + thread % 32 / 4};
  }
  ATTNSCOPE_D Rows<C> rows_of_lane(const Lane& lane) const {
    Rows<C> rows;
    rows.first = place.row_block * C::kRows + kTileRows * warpgroup + lane.row;
    rows.end = p.rows;
    return rows;
  }

  ATTNSCOPE_D void load_queries() {
    const Source from = queries_of<C>(p, place);
    const u32 largest = copy_rows<C>(from, place.row_block * C::kRows + kTileRows * warpgroup, p.rows,
                                     shared.q[warpgroup], [] {});
    if (threadIdx.x % 32 == 0) shared.largest_q[warpgroup][threadIdx.x % kWarpgroup / 32] = largest;
    tile::fence_to_async_proxy();
    sync_warpgroup(1 + warpgroup);
    large_q = largest_of(shared.largest_q[warpgroup]) >= kLargestFactor;
  }

  // The consumers take turns at issuing products, so that one's run under the other's softmax.
  ATTNSCOPE_D void take_turn() { tile::named_sync(5 + warpgroup, 2 * kWarpgroup); }
  ATTNSCOPE_D void pass_turn() { tile::named_arrive(5 + (warpgroup + 1) % C::kConsumers, 2 * kWarpgroup); }

  ATTNSCOPE_D void arrive(Barrier& b) {
    if (threadIdx.x % 32 == 0) tile::barrier_arrive(b);
  }

  // S = Q·Kᵀ in one sum.
  ATTNSCOPE_D void score_tile(Scores<C>& s, int stage) {
    using Product = tile::Wgmma<64, tile::Type16::kBf16>;
    const u64 q = tile::k_major_descriptor(tile::shared_address(shared.q[warpgroup])),
              k = tile::k_major_descriptor(tile::shared_address(shared.k[stage]));
    tile::wgmma_fence();
#pragma unroll
    for (int product = 0; product < kProducts; ++product)
#pragma unroll
      for (int k16 = 0; k16 < C::kE / 16; ++k16) {
        const int step = tile::k_major_step_bytes(kTileRows, k16);
        Product::shared_a(flat(s), q + u64((piece_pair(product).a * C::kPieceBytes + step) >> 4),
                          k + u64((piece_pair(product).b * C::kPieceBytes + step) >> 4), product + k16 != 0);
      }
    tile::wgmma_commit();
    pass_turn();
    tile::wgmma_wait<0>();
    tile::pin_registers(flat(s));
  }

  // The same by FMA, already scaled (f32_products.cuh says why both sides are).
  ATTNSCOPE_D void score_tile_exactly(Scores<C>& s, int first_key, int end) {
    const float root = sqrtf(fabsf(p.scale)), signed_root = p.scale < 0 ? -root : root;
    const Source q = queries_of<C>(p, place), k = keys_of<C, false>(p, place);
    const Lane lane = lane_again();
    const Rows<C> rows = rows_of_lane(lane);
    const float* const q0 = q.row_at(rows.row(0, 0));
    const float* const q1 = q.row_at(rows.row(0, 1));
    float sums[4 * C::kNTiles];  // in memory: their indices are not constant
#pragma unroll 1
    for (int i = 0; i < 2 * C::kNTiles; ++i) {
      const int key = first_key + i / 2 * 8 + 2 * lane.t + i % 2;
      const float* const at = k.row_at(min(key, end - 1));
      float upper = 0, lower = 0;
#pragma unroll 4
      for (int e = 0; e < p.columns; ++e) {
        const float y = at[e * p.k.column] * root;
        upper = fmaf(q0[e * p.q.column] * signed_root, y, upper);
        lower = fmaf(q1[e * p.q.column] * signed_root, y, lower);
      }
      sums[i / 2 * 4 + i % 2] = upper, sums[i / 2 * 4 + i % 2 + 2] = lower;
    }
#pragma unroll
    for (int i = 0; i < 4 * C::kNTiles; ++i) s[0][i / 4][i % 4] = sums[i];
  }

  ATTNSCOPE_D const char* mask_rows() const {
    return static_cast<const char*>(p.mask.data) +
           (place.batch * p.mask.batch + place.head * p.mask.head) * element_bytes(p.mask.type);
  }
  // A tile of the bias, on its way while the scores are computed.
  struct Bias {
    float2 pair[2][C::kNTiles];
  };
  template <MaskType kType>
  ATTNSCOPE_D void load_bias_as(Bias& b, int first_key) const {
    const Lane lane = lane_again();
    for_global_pairs<C, kType>(p, rows_of_lane(lane), mask_rows(), element_bytes(kType), first_key, lane.t,
                               [&](int, int h, int j, float2 pair) {
                                 b.pair[h][j] = pair;
                                 if (j % 4 == 3) asm volatile("" ::: "memory");  // no more loads at a time
                               });
  }
  ATTNSCOPE_D void load_bias(Bias& b, int first_key) const {
    if (p.mask.type == MaskType::kF32 && p.mask.vector_bytes < 8)
      return load_bias_as<MaskType::kF32>(b, first_key);
    switch (p.mask.type) {
      case MaskType::kBf16: return load_bias_as<MaskType::kBf16>(b, first_key);
      case MaskType::kF16: return load_bias_as<MaskType::kF16>(b, first_key);
      case MaskType::kF64: return load_bias_as<MaskType::kF64>(b, first_key);
      case MaskType::kF32: break;
      default:  // not left as it is: that would be kept through the loop
#pragma unroll
        for (int i = 0; i < 2 * C::kNTiles; ++i) b.pair[i / C::kNTiles][i % C::kNTiles] = make_float2(0, 0);
        return;
    }
    // Past the last key anything will do: it is masked.
    const Lane lane = lane_again();
    const Rows<C> rows = rows_of_lane(lane);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* at = reinterpret_cast<const float*>(mask_rows()) + rows.row(0, h) * p.mask.row;
#pragma unroll
      for (int j = 0; j < C::kNTiles; ++j)
        asm volatile("ld.global.nc.L2::256B.v2.f32 {%0, %1}, [%2];"
                     : "=f"(b.pair[h][j].x), "=f"(b.pair[h][j].y)
                     : "l"(at + min(first_key + 8 * j + 2 * lane.t, p.keys - 2)));
    }
  }

  // Scores as the products left them to masked natural scores.
  ATTNSCOPE_D void finish(Scores<C>& s, const Bias& bias, const TileInfo<C>& info, float factor, bool full) {
    const int first_key = info.first_key;
    const Lane lane = lane_again();
    const int t = lane.t, row = kTileRows * warpgroup + lane.row;  // of the block
#pragma unroll
    for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) s[0][j][c] *= factor;
    if constexpr (C::kFeatured) {
      if (p.softcap > 0) {
#pragma unroll
        for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c) s[0][j][c] = p.softcap * tanhf(s[0][j][c] / p.softcap);
      }
      if (has_bias(p)) {
#pragma unroll
        for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const float b = c % 2 == 0 ? bias.pair[c / 2][j].x : bias.pair[c / 2][j].y;
            s[0][j][c] = b == minus_infinity() ? b : s[0][j][c] + b;
          }
      }
      if (p.slopes.data != nullptr) {
        const float slope = vector_value(p.slopes, place.batch * p.slopes.batch + place.head * p.slopes.head);
        const int* const diagonals = shared.diagonals + row;
#pragma unroll
        for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c)
            s[0][j][c] =
                fmaf(-slope, fabsf(float(diagonals[8 * (c / 2)] - (first_key + 8 * j + 2 * t + c % 2))),
                     s[0][j][c]);
      }
    }
    if (full) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const u64 kept = info.kept[row + 8 * h] >> (2 * t);
#pragma unroll
      for (int j = 0; j < C::kNTiles; ++j)
#pragma unroll
        for (int n = 0; n < 2; ++n)
          if ((kept >> (8 * j + n) & 1) == 0) s[0][j][2 * h + n] = minus_infinity();
    }
  }

  ATTNSCOPE_D void add_half(int half, const Tile& sum) {
#pragma unroll
    for (int i = 0; i < 32; ++i) o[half][i] = fmaf(o[half][i], softmax.rescale[0][i / 2 % 2], sum[i]);
  }

  // O = α·O + P·V.
  ATTNSCOPE_D void value_tile(const Scores<C>& s, int stage) {
    using Product = tile::Wgmma<64, tile::Type16::kBf16>;
    u32 weights[kPieces][16];
#pragma unroll
    for (int w = 0; w < 16; ++w) {
      const int i = tile::operand_first_accumulator(w / 4, w % 4);
      const Pieces two = cut(s[0][i / 4][i % 4], s[0][i / 4][i % 4 + 1]);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) weights[piece][w] = two.word[piece];
    }
    const u64 v =
        tile::mn_major_descriptor(tile::shared_address(shared.v[stage]), tile::panel_bytes(kTileRows));
#pragma unroll
    for (int half = 0; half < C::kHalves; ++half) {
      Tile sum;
      tile::wgmma_fence();
#pragma unroll
      for (int product = 0; product < kProducts; ++product)
#pragma unroll
        for (int k16 = 0; k16 < C::kKeys / 16; ++k16) {
          const int at = piece_pair(product).b * C::kPieceBytes + half * tile::panel_bytes(kTileRows) +
                         tile::mn_major_step_bytes(k16);
          const u32(&a)[16] = weights[piece_pair(product).a];
          Product::register_a(sum, a[4 * k16], a[4 * k16 + 1], a[4 * k16 + 2], a[4 * k16 + 3],
                              v + u64(at >> 4), product + k16 != 0);
        }
      tile::wgmma_commit();
      if (half == C::kHalves - 1) pass_turn();
      tile::wgmma_wait<0>();
      tile::pin_registers(sum);
      if (half == C::kHalves - 1) arrive(shared.v_empty[stage]);
      add_half(half, sum);
    }
  }

  // The same by FMA. A masked key's weight is −0: what its value holds is not looked at.
  ATTNSCOPE_D void value_tile_exactly(const Scores<C>& s, int first_key) {
    const int t = lane_again().t;
    float weights[4 * C::kNTiles], sums[C::kE / 2];  // in memory: their indices are not constant
#pragma unroll
    for (int i = 0; i < 4 * C::kNTiles; ++i) weights[i] = s[0][i / 4][i % 4];
    const Source v = keys_of<C, true>(p, place);
#pragma unroll 1
    for (int i = 0; i < C::kE / 8; ++i) {
      const int column = 8 * i + 2 * t;
      float sum[4] = {};
#pragma unroll 1
      for (int key = 0; key < C::kKeys; ++key) {
        const int at = key / 8 * 4 + key % 2, lane = key / 2 % 4;
        const float upper = __shfl_sync(0xFFFFFFFFu, weights[at], lane, 4),
                    lower = __shfl_sync(0xFFFFFFFFu, weights[at + 2], lane, 4);
        const bool up = __float_as_uint(upper) != 0x80000000u, low = __float_as_uint(lower) != 0x80000000u;
        if (!up && !low) continue;
        const float* const value = v.row_at(first_key + key) + column * p.v.column;
        const float x = column < v.columns ? value[0] : 0.0f,
                    y = column + 1 < v.columns ? value[p.v.column] : 0.0f;
        if (up) sum[0] = fmaf(upper, x, sum[0]), sum[1] = fmaf(upper, y, sum[1]);
        if (low) sum[2] = fmaf(lower, x, sum[2]), sum[3] = fmaf(lower, y, sum[3]);
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[4 * i + c] = sum[c];
    }
#pragma unroll
    for (int half = 0; half < C::kHalves; ++half)
#pragma unroll
      for (int i = 0; i < 32; ++i)
        o[half][i] = fmaf(o[half][i], softmax.rescale[0][i / 2 % 2], sums[32 * half + i]);
  }

  ATTNSCOPE_D void step(const TileInfo<C>& info, int stage, u32 parity) {
    const bool full = (info.seen >> (8 + warpgroup) & 1) == 0;
    Scores<C> s;
    Bias bias;
    float factor = p.scale;
    if constexpr (C::kFeatured) load_bias(bias, info.first_key);
    take_turn();
    if (large_q || largest_of(info.largest) >= kLargestFactor) {
      pass_turn();
      arrive(shared.k_empty[stage]);
      score_tile_exactly(s, info.first_key, info.end);
      factor = 1;
    } else {
      score_tile(s, stage);
      arrive(shared.k_empty[stage]);
    }
    finish(s, bias, info, factor, full);
    if (full && !(C::kFeatured && has_bias(p)))
      softmax.template step<false>(s);
    else
      softmax.template step<true>(s);
    if constexpr (C::kDropout)
      if (p.dropout.threshold != 0) {
        const Lane lane = lane_again();
        drop<C>(p, s, rows_of_lane(lane), (i64(place.batch) * p.heads + place.head) * p.rows, info.first_key,
                lane.t);
      }
    tile::barrier_wait(shared.v_full[stage], parity);
    take_turn();
    const u32 largest = largest_of(info.largest_v);
    if (largest >= kLargestValue || (largest != 0 && largest < kSmallestValue)) {
      value_tile_exactly(s, info.first_key);
      pass_turn();
      arrive(shared.v_empty[stage]);
    } else {
      value_tile(s, stage);
    }
  }

  ATTNSCOPE_D void run() {
    if (warpgroup == C::kConsumers - 1) pass_turn();  // to the first; one turn is left over at the end
    for (int n = 0;; ++n) {
      const int stage = n % C::kStages;
      const u32 parity = (n / C::kStages) & 1;
      tile::barrier_wait(shared.k_full[stage], parity);
      const TileInfo<C>& info = shared.info[n % C::kInfos];
      if (info.first_key < 0) {
        if (warpgroup == 0) take_turn();
        return;
      }
      if ((info.seen >> warpgroup & 1) != 0) {
        step(info, stage, parity);
        continue;
      }
      __syncwarp();
      arrive(shared.k_empty[stage]);
      take_turn(), pass_turn();
      tile::barrier_wait(shared.v_full[stage], parity);
      take_turn(), pass_turn();
      __syncwarp();
      arrive(shared.v_empty[stage]);
    }
  }

  ATTNSCOPE_D void write() {
    const Lane lane = lane_again();
    const int t = lane.t, first = rows_of_lane(lane).first;
    const bool has_sinks = p.sinks.data != nullptr;
    const float sink = has_sinks ? vector_value(p.sinks, place.head * p.sinks.head) : minus_infinity();
    float* const out = static_cast<float*>(p.out) + place.batch * p.out_batch + place.head * p.out_head;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = tile::quad_sum(softmax.sum[0][h]), max = softmax.max[0][h], scale = 1;
      const bool empty = sum == 0.0f;  // a NaN is not
      if (has_sinks && !empty) {
        const float top = fmaxf(max, sink);
        scale = tile::exp2_unit((max - top) * kLog2E);
        sum = fmaf(sum, scale, tile::exp2_unit((sink - top) * kLog2E));
        max = top;
      }
      const int at = first + 8 * h;
      if (at >= p.rows) continue;
      if (p.lse != nullptr && t == 0)
        p.lse[place.batch * p.lse_batch + place.head * p.lse_head + at * p.lse_row] =
            empty ? minus_infinity() : max + logf(sum);
      scale = scale / sum;
      if (C::kDropout) scale *= p.dropout.threshold != 0 ? p.dropout.keep_scale : 1.0f;
      const bool nothing = empty || p.dropout.drop_all != 0;
      float* const to = out + at * p.out_row;
#pragma unroll
      for (int half = 0; half < C::kHalves; ++half)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int column = 64 * half + 8 * j + 2 * t;
          const float x = nothing ? 0.0f : o[half][4 * j + 2 * h] * scale,
                      y = nothing ? 0.0f : o[half][4 * j + 2 * h + 1] * scale;
          if (p.out_aligned) {
            if (column < p.value_columns) *reinterpret_cast<float2*>(to + column) = make_float2(x, y);
          } else {
            if (column < p.value_columns) to[column * p.out_column] = x;
            if (column + 1 < p.value_columns) to[(column + 1) * p.out_column] = y;
          }
        }
    }
  }
};

}  // namespace attnscope::efficient_f32
