#pragma once
// What a launch of the featured kernel passes beyond the plain one's parameters, the same bytes on host and
// device.

#include "backends/cuda_flash_sm90/params.h"

namespace attnscope::flash_sm90 {

// "No bound" of a window side: farther than any key, small enough to add to a row number.
inline constexpr int kUnbounded = 1 << 30;

// An i32 or i64 vector on the device; null when the request has none.
struct IndexVector {
  const void* data;
  tile::i64 stride;  // elements
  int wide;          // i64
};

struct FeaturedParams : Params {
  // Sequences. Dense: one per batch entry, all rows, the keys of `kv_lengths`. Packed: `sequences` counts one
  // more than the request, for the rows past the last offset, which see nothing.
  int sequences;
  IndexVector kv_lengths, cu_q, cu_k;
  // Row i of a sequence sees keys from i + shift − left to i + shift + right; shift is 0, or keys − rows of
  // its sequence. kUnbounded: no bound on that side.
  int left, right, lower_right;
  const tile::u16* v_at;   // V again, for what is not finite in it
  tile::i64 v_strides[4];  // elements: batch, head, row, column
  const void* sinks;       // or null: one logit per head
  tile::i64 sink_stride;
  int sink_type;  // 0 f32, 1 f16, 2 bf16, 3 f64
  // Only in images that transform scores.
  int scores_in_log2;          // the products are scaled to log2 units before everything else
  float softcap_log2;          // softcap · log2(e), or 0
  float score_to_twice_tanh;   // product → 2 · score / softcap, in log2 units: the exponent of tanh
  const float* slopes;         // ALiBi, or null
  tile::i64 slope_strides[2];  // batch, head
  int dropout;                 // 0 none, 1 by bits, 2 everything
  tile::u32 dropout_threshold;
  float keep_scale;  // 1 / (1 − p)
  tile::u64 seed, offset;
  const tile::u64* seed_on_device;  // or null: two words
};

// What an image adds to, or takes from, the scores.
enum class Masking { kNone, kBool, kBias };  // a bias is of the inputs' type

// Of images with a mask.
struct MaskedParams : FeaturedParams {
  tile::TensorMap mask;                 // 4-D {key, row, head, batch}; a dimension that broadcasts has size 1
  const void* mask_at;                  // the mask again, for what is not finite
  tile::i64 mask_strides[3];            // elements: batch, head, row; 0 where it broadcasts
  int mask_batch, mask_head, mask_row;  // 0 where it broadcasts, else 1
  float bias_scale;                     // softmax scale: a score is product · bias_scale + bias
  // The walk's "sequences" are heads and its "heads" batch entries, so that the entries that share a head's
  // mask follow each other.
  int heads_first;
  // Of a bool mask, or null: one byte for every tile of rows × keys, 0 where the mask removes all of it.
  const tile::u8* kept;
  tile::i64 kept_strides[3];  // bytes: batch, head, row block; 0 where the mask broadcasts
};

// What finds them (kept.cu): one warp a tile.
struct KeptParams {
  const tile::u8* mask;
  tile::i64 mask_strides[3];            // batch, head, row
  int heads, row_blocks, steps, tiles;  // of the mask: a dimension that broadcasts counts 1
  int rows, keys;                       // of the mask
  int tile_rows, tile_keys;
  tile::u8* kept;  // [batch, head, row block, step]
};

}  // namespace attnscope::flash_sm90
