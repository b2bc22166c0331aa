#pragma once
// The rows of a tile that a warpgroup holds O of: loading Q, what masked values must not do, writing the
// result.

#include "backends/cuda_mla/tile.cuh"

namespace attnscope::mla {

template <class C>
struct RowTile {
  const decode::Params& p;
  const Params& launch;
  SharedStorage<C>& shared;
  const int half;    // of O's columns; parity of the tiles whose scores this warpgroup makes
  const int thread;  // in the warpgroup
  Piece piece;
  int before = 0;  // key tiles of the block before this piece
  int turn = 0;    // pieces before this one
  float o[C::kHalf / 2];
  float reference[2], sum[2];  // of rows r and r + 8; this thread's part of this warpgroup's sum
  float factor[2];             // that O is still to be multiplied with
  int all_begin, all_end;      // keys that every row of the tile sees

  ATTNSCOPE_D RowTile(const Params& params, SharedStorage<C>& storage, int w)
      : p(params.rest), launch(params), shared(storage), half(w), thread(int(threadIdx.x) % kWarpgroup) {}

  ATTNSCOPE_D int lane() const { return thread % 32; }
  ATTNSCOPE_D int row() const { return accumulator_row(thread, 0); }  // the other one is 8 below
  ATTNSCOPE_D int packed_row(int h) const { return piece.row_tile * C::kRows + row() + 8 * h; }
  ATTNSCOPE_D int column(int i) const { return C::kHalf * half + accumulator_column(thread, i); }
  // Is there a row of the tile that does not see all keys of tile t?
  ATTNSCOPE_D bool partial(int t) const {
    const int first = (piece.first + t) * C::kKeys;
    return first < all_begin || first + C::kKeys > all_end;
  }
  ATTNSCOPE_D void scale_output() {
#pragma unroll
    for (int i = 0; i < C::kHalf / 2; ++i) o[i] *= factor[(i / 2) % 2];
  }

  // 16 bytes of the packed row; zeros where the row or the columns do not exist.
  ATTNSCOPE_D void read_q(u32 (&words)[4], int packed, int chunk) const {
#pragma unroll
    for (u32& w : words) w = 0;
    if (packed >= p.problem.rows() || 8 * chunk >= p.e) return;
    const decode::Row of = row_of(p.problem, piece.pack, packed);
    const u16* from = p.q + piece.batch * p.q_strides[0] + of.head * p.q_strides[1] + of.i * p.q_strides[2] +
                      8 * chunk * p.q_strides[3];
    if (p.q_vectors) {
      const uint4 v = *reinterpret_cast<const uint4*>(from);
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    } else {
#pragma unroll
      for (int c = 0; c < 8; ++c) words[c / 2] |= u32(from[c * p.q_strides[3]]) << (16 * (c % 2));
    }
  }
  // Q's rows to shared memory: half of a thread's chunks are under way at a time.
  ATTNSCOPE_D void load_q() {
    constexpr int kChunks = C::kE / 8, kBatch = C::kRows * kChunks / C::kConsumerThreads / 2;
    static_assert(2 * kBatch * C::kConsumerThreads == C::kRows * kChunks, "every thread loads as much");
#pragma unroll 1
    for (int at = int(threadIdx.x) - kWarpgroup; at < C::kRows * kChunks;
         at += kBatch * C::kConsumerThreads) {
      u32 words[kBatch][4];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int n = at + b * C::kConsumerThreads;
        read_q(words[b], piece.row_tile * C::kRows + n / kChunks, n % kChunks);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int n = at + b * C::kConsumerThreads;
        store_shared(shared_address(shared.q) + swizzled_offset(C::kRows, n / kChunks, 8 * (n % kChunks)),
                     words[b]);
      }
    }
    fence_to_async_proxy();
  }

  ATTNSCOPE_D void start(int n) {
    piece = piece_of(p.problem, n);
    const decode::Problem& problem = p.problem;
    all_begin = visible(problem, piece.keys, problem.length - 1).begin;
    all_end = visible(problem, piece.keys, 0).end;
    load_q();
#pragma unroll
    for (int h = 0; h < 2; ++h) reference[h] = -infinity(), sum[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < C::kHalf / 2; ++i) o[i] = 0.0f;
    named_sync(3, C::kConsumerThreads);
  }

  // ---- Masked values ----
  // Of a tile that not every row sees whole: keys that no row sees become zeros, and so do values that are
  // not finite of keys that only some rows see; 0 · NaN must not reach the others. The scores have been made.
  ATTNSCOPE_D void clean(int t) {
    if constexpr (!C::kAlias) {
      const u32 parity = parity_of<C>(before + t);
      barrier_wait(shared.v_full[0], parity), barrier_wait(shared.v_full[1], parity);
    }
    named_sync(1 + half, kWarpgroup);  // all warps' scores are made
    const decode::Problem& problem = p.problem;
    const int at = thread / 2, key = (piece.first + t) * C::kKeys + at;
    const bool seen = key >= visible(problem, piece.keys, 0).begin &&
                      key < visible(problem, piece.keys, problem.length - 1).end;
    const bool by_all = key >= all_begin && key < all_end;
    u8* from = shared.values(before + t) + (thread % 2) * 4 * C::kPanelBytes + at * kPanelRowBytes;
    bool found = false;
    if (!by_all)
#pragma unroll 1
      for (int chunk = 0; chunk < 4 * 8; ++chunk) {
        uint4* place =
            reinterpret_cast<uint4*>(from + chunk / 8 * C::kPanelBytes + ((chunk % 8) ^ (at % 8)) * 16);
        if (!seen) {
          *place = make_uint4(0, 0, 0, 0);
        } else {
          uint4 v = *place;
          if (not_finite(v.x) | not_finite(v.y) | not_finite(v.z) | not_finite(v.w)) {
            v.x = without(v.x), v.y = without(v.y), v.z = without(v.z), v.w = without(v.w);
            *place = v;
            found = true;
          }
        }
      }
    if (found) shared.noted[turn & 1] = 1;
    fence_to_async_proxy();
    named_sync(1 + half, kWarpgroup);
  }
  static constexpr u32 kExponent = C::kType == Type16::kBf16 ? 0x7F80u : 0x7C00u;
  ATTNSCOPE_D static bool half_not_finite(u32 bits) { return (bits & kExponent) == kExponent; }
  ATTNSCOPE_D static bool not_finite(u32 word) {
    return half_not_finite(word) || half_not_finite(word >> 16);
  }
  ATTNSCOPE_D static u32 without(u32 word) {
    return (half_not_finite(word) ? 0 : word & 0xFFFFu) |
           (half_not_finite(word >> 16) ? 0 : word & 0xFFFF0000u);
  }
  // They are added to the rows that see their keys: what such a sum is does not depend on the weights. V is
  // read again, from where it still is whole.
  ATTNSCOPE_D void add_not_finite() {
    const decode::Problem& problem = p.problem;
    const int begin = max(piece.first * C::kKeys, visible(problem, piece.keys, 0).begin);
    const int end = min(piece.last * C::kKeys, visible(problem, piece.keys, problem.length - 1).end);
    Interval seen[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) seen[h] = visible(problem, piece.keys, packed_row(h) % problem.length);
#pragma unroll 1
    for (int key = begin; key < end; ++key) {
      if (key >= all_begin && key < all_end) {
        key = all_end - 1;
        continue;
      }
      const KeyTile at = key_tile(p, piece, key);
      const u16* v = p.v + at.batch * p.v_strides[0] +
                     piece.pack * problem.pack / problem.v_group * p.v_strides[1] + at.row * p.v_strides[2];
      const bool sees[2] = {key >= seen[0].begin && key < seen[0].end,
                            key >= seen[1].begin && key < seen[1].end};
#pragma unroll
      for (int i = 0; i < C::kHalf / 2; i += 4) {
        const u32 word = column(i) < p.ev ? *reinterpret_cast<const u32*>(v + column(i)) : 0;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const u32 bits = word >> (16 * (c % 2)) & 0xFFFFu;
          if (sees[c / 2] && half_not_finite(bits)) o[i + c] += decode::to_float<C::kType>(u16(bits));
        }
      }
    }
  }

  // ---- The end ----
  ATTNSCOPE_D void finish() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float mine = quad_sum(sum[h]);
      if (lane() % 4 == 0) shared.sums[half][row() + 8 * h] = mine;
    }
    named_sync(3, C::kConsumerThreads);
    if (shared.noted[turn & 1] != 0) add_not_finite();
    if (thread == 0) shared.noted[(turn + 1) & 1] = 0;
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = shared.sums[0][row() + 8 * h] + shared.sums[1][row() + 8 * h];
    if (piece.whole)
      write();
    else
      leave();
  }

  // The piece's result for the second kernel.
  ATTNSCOPE_D void leave() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (packed_row(h) >= p.problem.rows()) continue;
      const i64 at = piece.slot * C::kRows + row() + 8 * h;
      if (half == 0 && lane() % 4 == 0)
        *reinterpret_cast<float2*>(p.partial_state + 2 * at) = make_float2(reference[h], sum[h]);
      float* to = p.partial + at * p.ev;
#pragma unroll
      for (int i = 2 * h; i < C::kHalf / 2; i += 4) {
        if (column(i) < p.ev) *reinterpret_cast<float2*>(to + column(i)) = make_float2(o[i], o[i + 1]);
      }
    }
  }

  ATTNSCOPE_D void write() {
    decode::Row at[2];
    bool there[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      there[h] = packed_row(h) < p.problem.rows();
      at[h] = row_of(p.problem, piece.pack, there[h] ? packed_row(h) : 0);
      State state{reference[h], sum[h]};
      factor[h] = finish_row(p, at[h].head, state);
      if (there[h] && p.lse != nullptr && half == 0 && lane() % 4 == 0)
        store_lse(p, piece.batch, at[h], state);
    }
    scale_output();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      u16* to =
          p.out + piece.batch * p.out_strides[0] + at[h].head * p.out_strides[1] + at[h].i * p.out_strides[2];
      if (launch.out_vectors != 0)
        write_vectors(to, there[h], h);
      else
        write_elements(to, there[h], h);
    }
  }
  // Four lanes that share a row trade words, so that each holds 8 neighbouring columns.
  ATTNSCOPE_D void write_vectors(u16* to, bool there, int h) {
#pragma unroll
    for (int c = 0; c < C::kHalf / 32; ++c) {
      u32 w[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        const int i = 16 * c + 4 * b + 2 * h;
        w[b] = pack16<C::kType>(o[i], o[i + 1]);
      }
      quad_transpose(w);
      const int first = C::kHalf * half + 32 * c + 8 * (lane() % 4);
      if (there && first < p.ev) *reinterpret_cast<uint4*>(to + first) = make_uint4(w[0], w[1], w[2], w[3]);
    }
  }
  ATTNSCOPE_D void write_elements(u16* to, bool there, int h) {
#pragma unroll
    for (int i = 2 * h; i < C::kHalf / 2; i += 4) {
      const u32 pair = pack16<C::kType>(o[i], o[i + 1]);
      if (!there || column(i) >= p.ev) continue;
      to[column(i) * p.out_strides[3]] = u16(pair);
      to[(column(i) + 1) * p.out_strides[3]] = u16(pair >> 16);
    }
  }
};

}  // namespace attnscope::mla
