#pragma once
// What one launch passes to a fused kernel that is not tied to one architecture: the tensor-core kernel here
// and the f32 kernel of `efficient` take the same bytes, so that one host plan (plan.h) serves both.
//
// An image exports the entry `attention_forward(const __grid_constant__ Params)` and the int
// `attention_shared_bytes`. Offsets are in elements and 64 bits wide; the stride of a dimension of size 1 is
// passed as 0.

#include "cuda/kernels_tile/types.cuh"

namespace attnscope::mma {

using tile::i64;
using tile::u32;
using tile::u64;
using tile::u8;

struct Strided {  // [batch, heads, rows, columns]
  const void* data;
  i64 batch, head, row, column;
};

enum class LengthType : int { kNone, kI32, kI64 };
struct IndexVector {
  const void* data;
  i64 stride;
  LengthType type;  // kNone: there is none
};

// Which keys a row sees (device/geometry.cuh). A row of batch b: keys [0, kv_lengths[b]) or S; packed: those
// of its sequence. Then causal mode and window.
struct Geometry {
  int causal;              // 0 none, 1 top-left, 2 lower-right
  int left, right;         // window, −1 unbounded
  IndexVector kv_lengths;  // [B]
  IndexVector cu_q, cu_k;  // [sequences + 1]
  int sequences;
  int appended;  // keys to add to every kv length
};

enum class MaskType : int { kNone, kBool, kF32, kBf16, kF16, kF64 };
struct Mask {  // seen as [B, Hq, L, S], stride 0 where it broadcasts
  const void* data;
  i64 batch, head, row, column;
  MaskType type;
  int vector_bytes;  // 16, 8 or 4: every row of a tile can be copied in such pieces; 0: element by element
};

struct Vector {  // f32, bf16, f16 or f64 over heads (and batch); null data: none
  const void* data;
  i64 batch, head;
  MaskType type;
};

struct Dropout {
  u32 threshold;     // a weight is kept when its random word is ≥ this; 0: no dropout
  int drop_all;      // p = 1
  float keep_scale;  // 1 / (1 − p)
  u64 seed, offset;
  const u64* seed_offset;  // on the device, replaces the two, or null
};

struct Paging {
  const int* table;  // [B, max_pages] or null; k and v are then [pages, heads, page_size, columns]
  i64 table_batch, table_page;
  int page_size;
};

struct Params {
  Strided q, k, v;
  void* out;
  i64 out_batch, out_head, out_row, out_column;
  float* lse;  // or null
  i64 lse_batch, lse_head, lse_row;

  int heads, k_group, v_group;  // query heads; query heads per key head, per value head
  int rows, keys;               // L and S
  int columns, value_columns;   // E and Ev
  // q, k, v: every row is a whole number of 16-byte pieces at 16-byte boundaries; out likewise.
  int q_aligned, k_aligned, v_aligned, out_aligned;

  // Order of the blocks (device/geometry.cuh, Place): heads in groups; inside a group the last row blocks
  // first.
  int row_blocks;   // ⌈L / rows of a tile⌉
  int all_heads;    // batch · heads
  int group_heads;  // walked together, so that their K and V stay in L2

  // Scores: x = scale · q·k; softcap > 0: x = softcap · tanh(x / softcap); + bias; − slope·|d − j|.
  float scale;
  float softcap;
  // Without bias, softcap and slopes a positive scale is folded into the exponential:
  // weight = 2^(q·k · log2_per_score − …); else log2_per_score is log2(e) and scores are made natural first.
  float log2_per_score;
  int natural_scores;
  float natural_per_score;  // what the kernel's scores are multiplied with to be natural: scale, or 1 when
                            // they are
  int batches;  // > 0: the blocks of a head's batch entries are neighbours, for a mask that they share

  Geometry geometry;
  Mask mask;
  Vector sinks, slopes;
  Dropout dropout;
  Paging paging;
};

}  // namespace attnscope::mma
