#pragma once
// Which keys a query row sees. Causal mode, window, lengths and packed sequences together always leave one
// contiguous interval of keys per row; only a bool mask or a bias of −inf makes holes in it.

#include "attnscope/attention.h"

#include <cstdint>
#include <vector>

namespace attnscope {

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;  // end ≤ begin: the row sees nothing
  bool empty() const { return end <= begin; }
};

// One packed sequence, or one batch entry of dense tensors.
struct Sequence {
  int64_t q_begin = 0, q_end = 0;
  int64_t k_begin = 0, k_end = 0;
};

// Reads the lengths once (host tensors), so rows are answered without touching them again.
class Geometry {
 public:
  explicit Geometry(const Request& request);
  // Keys that query row i of batch b sees, as positions in k (packed: in the packed k).
  KeyRange visible(int64_t b, int64_t i) const { return visible_in(sequence_of(b, i), i); }
  KeyRange visible_in(const Sequence& s, int64_t i) const;
  // The sequence of row (b, i); a packed row past the last offset has an empty one.
  Sequence sequence_of(int64_t b, int64_t i) const;
  // Dense: one per batch entry; packed: one per sequence.
  const std::vector<Sequence>& sequences() const { return sequences_; }
  bool packed() const { return packed_; }
  // Is every row's interval all of [0, kv_len)?
  bool full() const { return full_; }
  // Does the interval of a row differ between batch entries?
  bool per_batch() const { return per_batch_; }

 private:
  CausalMode causal_;
  Window window_;
  bool packed_ = false, full_ = true, per_batch_ = false;
  std::vector<Sequence> sequences_;
};

// A mask or bias seen as [B, Hq, L, S] with stride 0 where it broadcasts.
struct MaskAccess {
  const void* data = nullptr;
  DType dtype = DType::kBool;
  int64_t stride_b = 0, stride_h = 0, stride_i = 0, stride_j = 0;
  explicit MaskAccess(const TensorView& mask);
  int64_t row_offset(int64_t b, int64_t h, int64_t i) const {
    return b * stride_b + h * stride_h + i * stride_i;
  }
};

// Element `i` of an i32 or i64 vector on the host.
int64_t read_index(const TensorView& v, int64_t i);
// Keys of batch b that are stored before this call appends; kv_len() when there are no lengths.
int64_t stored_keys(const Request& request, int64_t b);
int64_t appended_keys(const Request& request);

}  // namespace attnscope
