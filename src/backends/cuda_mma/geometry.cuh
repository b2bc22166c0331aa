#pragma once
// Which block works on what, and which keys a row sees: shared by the kernels that take Params.

#include "backends/cuda_mma/params.h"

namespace attnscope::mma {

inline constexpr int kFar = 1 << 30;  // past every row and key

struct Place {
  int row_block, batch, head;
};

// Heads in groups whose K and V fit L2; inside a group all heads' last row blocks first, which under a causal
// mask are the longest.
ATTNSCOPE_HD Place place_of(const Params& p, int block) {
  const int group_blocks = p.group_heads * p.row_blocks;
  const int group = block / group_blocks;
  const int in_group = block - group * group_blocks;
  const int left = p.all_heads - group * p.group_heads;
  const int heads = left < p.group_heads ? left : p.group_heads;
  const int flat = group * p.group_heads + in_group % heads;
  if (p.batches > 0) return {p.row_blocks - 1 - in_group / heads, flat % p.batches, flat / p.batches};
  const int batch = flat / p.heads;
  return {p.row_blocks - 1 - in_group / heads, batch, flat - batch * p.heads};
}

ATTNSCOPE_HD int read_index(const IndexVector& v, i64 i) {
  return v.type == LengthType::kI64 ? int(static_cast<const i64*>(v.data)[i * v.stride])
                                    : static_cast<const int*>(v.data)[i * v.stride];
}

struct Interval {
  int begin, end;  // keys; packed: positions in the packed k
};

// The keys that row `row` of batch entry `batch` sees, and the key on its diagonal (for slopes).
ATTNSCOPE_HD Interval visible(const Params& p, int batch, int row, int& diagonal_key) {
  const Geometry& g = p.geometry;
  int q_begin = 0, q_end = p.rows, k_begin = 0, k_end = p.keys;
  if (g.cu_q.type != LengthType::kNone) {
    int low = 0, high = g.sequences;  // the first sequence that ends past the row
    while (low < high) {
      const int middle = (low + high) / 2;
      if (read_index(g.cu_q, middle + 1) > row)
        high = middle;
      else
        low = middle + 1;
    }
    diagonal_key = 0;
    if (low == g.sequences) return {0, 0};
    q_begin = read_index(g.cu_q, low), q_end = read_index(g.cu_q, low + 1);
    k_begin = read_index(g.cu_k, low), k_end = read_index(g.cu_k, low + 1);
    if (k_end > p.keys) k_end = p.keys;
    if (k_begin > k_end) k_begin = k_end;
  } else if (g.kv_lengths.type != LengthType::kNone) {
    k_end = read_index(g.kv_lengths, batch) + g.appended;
    k_end = k_end < 0 ? 0 : k_end > p.keys ? p.keys : k_end;
  }
  const int keys = k_end - k_begin;
  int diagonal = row - q_begin;
  if (g.causal == 2) diagonal += keys - (q_end - q_begin);
  int begin = 0, end = keys;
  if (g.left >= 0 && diagonal > g.left) begin = diagonal - g.left;
  if (g.right >= 0 && g.right < keys - 1 - diagonal) end = diagonal + g.right + 1;
  if (g.causal != 0 && diagonal + 1 < end) end = diagonal + 1;
  if (end < 0) end = 0;
  if (begin > keys) begin = keys;
  if (end < begin) end = begin;
  diagonal_key = k_begin + diagonal;
  return {k_begin + begin, k_begin + end};
}

}  // namespace attnscope::mma
