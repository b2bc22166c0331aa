#pragma once
// The oracle: attention in float64, one row at a time, straight from the definition. It decides with its own
// code which keys a row sees and which weights dropout removes, so that a fault in src/attention cannot hide.

#include "attnscope/attention.h"

#include <cstdint>
#include <mutex>
#include <vector>

namespace attnscope {

struct ReferenceRow {
  double lse = 0.0;         // −inf for a row without keys, NaN where a kept score is NaN
  std::vector<double> out;  // [Ev]
};

// Host tensors only. Rows may be asked for from many threads. K and V of a batch entry and head are widened
// when the first row asks for them: a few rows of a tensor of gigabytes cost little.
class Reference {
 public:
  // request has passed validate(). For a paged request with an append the caller's cache is not changed: the
  // oracle reads the appended rows from the request.
  explicit Reference(const Request& request);
  void row(int64_t b, int64_t h, int64_t i, ReferenceRow& result) const;
  // Which key positions row (b, h, i) sees; the first key of a packed sequence is cu_k[n].
  bool sees(int64_t b, int64_t h, int64_t i, int64_t j) const;

 private:
  struct Range {
    int64_t q_begin = 0, q_end = 0, k_begin = 0, k_end = 0;
  };
  Range range_of(int64_t b, int64_t i) const;
  double mask_value(int64_t b, int64_t h, int64_t i, int64_t j) const;
  // [S, E] of one batch entry and head.
  struct Panel {
    std::once_flag made;
    std::vector<double> values;
  };
  using Panels = std::vector<Panel>;  // [B, heads]; never resized
  const double* widened(Panels& panels, const TensorView& cache, const TensorView& appended, int64_t b,
                        int64_t h) const;
  void widen(const TensorView& cache, const TensorView& appended, int64_t b, int64_t h,
             std::vector<double>& into) const;

  Request request_;
  int64_t kv_len_ = 0;
  mutable Panels k_, v_;
};

struct ReferenceResult {
  std::vector<double> out;  // [B, Hq, L, Ev], dense
  std::vector<double> lse;  // [B, Hq, L]
};
// Every row, in parallel. Costs 2·B·Hq·L·S·(E + Ev) flops in float64.
ReferenceResult reference_attention(const Request& request);

}  // namespace attnscope
