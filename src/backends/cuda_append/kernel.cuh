#pragma once
// Writes new keys and values behind those of a paged cache, ahead of the attention that reads them: row i of
// batch entry b goes to slot length_b + i. Bound by moving the rows once.

#include "backends/cuda_append/params.h"
#include "backends/cuda_decode/device.cuh"

namespace attnscope::append {

using namespace attnscope::tile;

inline constexpr int kThreads = 128;

template <class Piece>
ATTNSCOPE_D void copy_rows(const Side& side, int batch, int i, int page, int slot) {
  const Piece* from =
      static_cast<const Piece*>(side.rows) + batch * side.row_strides[0] + i * side.row_strides[2];
  Piece* to = static_cast<Piece*>(side.cache) + page * side.cache_strides[0] + slot * side.cache_strides[2];
  for (int at = int(threadIdx.x); at < side.heads * side.columns; at += kThreads) {
    const int head = at / side.columns, column = at % side.columns;
    to[head * side.cache_strides[1] + column * side.cache_strides[3]] =
        from[head * side.row_strides[1] + column * side.row_strides[3]];
  }
}

ATTNSCOPE_D void copy_side(const Side& side, int batch, int i, int page, int slot) {
  switch (side.piece_bytes) {
    case 16: return copy_rows<uint4>(side, batch, i, page, slot);
    case 8: return copy_rows<u64>(side, batch, i, page, slot);
    case 4: return copy_rows<u32>(side, batch, i, page, slot);
    default: return copy_rows<u16>(side, batch, i, page, slot);
  }
}

// One block per new key and batch entry. What a length holds never leads outside the cache.
ATTNSCOPE_D void cache_append(const Params& p) {
  decode::let_next_kernel_start();
  const int batch = int(blockIdx.x) / p.appended, i = int(blockIdx.x) % p.appended;
  const i64 stored = p.lengths_wide ? static_cast<const i64*>(p.lengths)[batch * p.lengths_stride]
                                    : i64(static_cast<const int*>(p.lengths)[batch * p.lengths_stride]);
  const i64 key = max(i64(0), min(stored, i64(p.keys))) + i;
  if (key >= p.keys) return;  // no room
  const int page = p.table[batch * p.table_strides[0] + key / p.page_size * p.table_strides[1]];
  const int slot = int(key % p.page_size);
  copy_side(p.k, batch, i, page, slot);
  copy_side(p.v, batch, i, page, slot);
}

}  // namespace attnscope::append
