#pragma once
// What one launch passes to the kernels, the same bytes on host and device.

#include "backends/cuda_decode/schedule.h"

namespace attnscope::decode {

// How the parts of a tile of rows are brought together.
enum class Join : int {
  kNone,       // one part each: no joining
  kWorkspace,  // parts go to memory; the second kernel joins them
  kCluster,    // the parts of one tile are one thread-block cluster and read each other's shared memory
};

enum class SinkType : int { kNone, kF32, kBf16, kF16 };

struct Params {
  Problem problem;
  const tile::u16 *q, *k, *v;
  tile::i64 q_strides[4];                // elements: batch, head, row, column
  tile::i64 k_strides[3], v_strides[3];  // batch (or page), head, key; columns are contiguous
  tile::u16* out;
  tile::i64 out_strides[4];
  float* lse;  // or null; batch, head, row
  tile::i64 lse_strides[3];
  const int* table;  // block table [batch, pages of a sequence], or null
  tile::i64 table_strides[2];
  const void* sinks;  // [heads]
  tile::i64 sink_stride;
  SinkType sink_type;
  const float* alibi;  // slopes [batch, heads], or null: slope · |diagonal − key| is taken from a score
  tile::i64 alibi_strides[2];
  int page_size;      // keys; 0: not paged
  int spare_l2;       // K and V are small beside L2: they give way there first
  int page_shift;     // page_size = 2^page_shift, or −1
  int e, ev;          // head sizes of this request, multiples of 8, at most those of the image
  int q_vectors;      // rows of Q are 16-byte aligned and contiguous
  float log2_scale;   // score · log2_scale is the exponent in base 2 …
  float softcap_in;   // … or, with a softcap: softcap_out · tanh, of which softcap_in · score = 2 log2(e) ·
  float softcap_out;  // argument; 0: none
  Join join;
  float* partial;        // kWorkspace: [slot][rows of a tile][ev] sums of weight · value
  float* partial_state;  // kWorkspace: [slot][rows of a tile][2] maximum (base 2), sum of weights
};

// Nothing that the main loop would have to ask for again and again: whole pages of a power of two keys, at
// least 16, or none; the image's own head sizes; scores that are only scaled.
ATTNSCOPE_HD constexpr bool is_plain(const Params& p, int image_e, int image_ev) {
  return (p.page_size == 0 || p.page_shift >= 4) && p.e == image_e && p.ev == image_ev &&
         p.softcap_out == 0.0f && p.alibi == nullptr;
}
// Also even parts, K and V with the same heads, rows of Q that vectors read, and every row sees all keys of
// its batch entry: decode_forward_simple takes it.
ATTNSCOPE_HD constexpr bool is_simple(const Params& p, int image_e, int image_ev) {
  const Problem& m = p.problem;
  const bool causal = m.causal != 0 && (m.length > 1 || m.lower_right == 0);
  return is_plain(p, image_e, image_ev) && p.q_vectors != 0 && m.quick != 0 && m.pack == m.k_group &&
         m.pack == m.v_group && !causal && m.window_left < 0 && m.window_right < 0;
}

}  // namespace attnscope::decode
