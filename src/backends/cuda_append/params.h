#pragma once
// What a launch of the appending kernel gets, the same bytes on host and device.

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::append {

// K or V, counted in pieces: 16 bytes where all rows are whole pieces at 16-byte boundaries, else one
// element.
struct Side {
  const void* rows;  // [batch, heads, appended, columns]
  tile::i64 row_strides[4];
  void* cache;  // [pages, heads, slots, columns]
  tile::i64 cache_strides[4];
  int heads, columns;
  int piece_bytes;  // 2, 4, 8 or 16
};

struct Params {
  Side k, v;
  const void* lengths;  // keys in the cache per batch entry, before the append
  tile::i64 lengths_stride;
  int lengths_wide;  // they are i64
  const int* table;  // [batch, pages of a sequence]
  tile::i64 table_strides[2];
  int page_size;
  int keys;  // that a batch entry has room for
  int appended;
};

}  // namespace attnscope::append
