#pragma once
// A test request with everything it owns: tensors in a chosen layout, outputs in poisoned, guarded memory.

#include "attnscope/attention.h"
#include "tensor/reference.h"
#include "tensor/tensor.h"
#include "tensor/tolerance.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnscope::testing {

// How q, k, v and out lie in memory.
enum class Layout : uint8_t {
  kDense,         // [B,H,L,E]
  kSeqMajor,      // [B,L,H,E] seen as [B,H,L,E]
  kOddOffset,     // dense, starting one element into the storage
  kLastStride2,   // every other element
  kInterleaved,   // k and v rows alternate in one buffer's spacing: row stride 2·D
  kHeadStride0,   // k and v: all heads are one (q and out dense)
  kBatchStride0,  // k and v: all batches are one (q and out dense)
};

enum class MaskSpec : uint8_t {
  kNone,
  kBoolFull,       // [B,Hq,L,S]
  kBoolKeys,       // [B,1,1,S]
  kBoolRows,       // [1,1,L,S], with one fully masked row
  kBool2d,         // [L,S]
  kBiasHeads,      // [1,Hq,L,S] in q's dtype
  kBiasF32,        // [B,1,L,S] f32
  kBiasNegInf,     // [L,S] with −inf holes and a row of −inf
  kBiasTransposed  // [1,1,L,S] f32 with last stride ≠ 1
};

struct CaseSpec {
  DType dtype = DType::kF32;
  int64_t B = 1, Hq = 1, Hk = 1, Hv = 1, L = 1, S = 1, E = 1, Ev = 1;
  CausalMode causal = CausalMode::kNone;
  Window window;
  MaskSpec mask = MaskSpec::kNone;
  Layout layout = Layout::kDense;
  std::optional<double> scale;
  double softcap = 0, dropout = 0;
  bool kv_lengths = false, packed = false, paged = false, append = false, lse = true;
  int64_t page_size = 4, appended = 3;  // of a paged case; keys that an append brings, if there are so many
  bool poison_masked = false;           // NaN in keys and values past the lengths
  uint64_t seed = 1;
  std::string name() const;
};

// Memory with guard bands: anything written outside the elements of the view is noticed.
class GuardedOutput {
 public:
  GuardedOutput() = default;
  GuardedOutput(DType dtype, const std::vector<int64_t>& sizes, Layout layout);
  const TensorView& view() const { return view_; }
  void poison();
  // Elements outside the view that changed, as text; empty when none did.
  std::string damage() const;

 private:
  HostBuffer buffer_;
  TensorView view_;
  std::vector<uint8_t> owned_;  // 1 for bytes that belong to the view
};

class AttentionCase {
 public:
  explicit AttentionCase(const CaseSpec& spec);
  const CaseSpec& spec() const { return spec_; }
  Request& request() { return request_; }
  const Request& request() const { return request_; }
  const Outputs& outputs();
  GuardedOutput& out() { return out_; }
  GuardedOutput& lse() { return lse_; }
  const ReferenceResult& reference();
  // Undoes what an append wrote, so that the next backend starts from the same cache.
  void restore_cache();

 private:
  void make_inputs();
  void make_mask();
  void make_lengths();

  CaseSpec spec_;
  Request request_;
  Tensor q_, k_, v_, mask_, lengths_, cu_q_, cu_k_, table_, append_k_, append_v_;
  std::vector<std::byte> k_before_, v_before_;
  GuardedOutput out_, lse_;
  Outputs outputs_;
  std::optional<ReferenceResult> reference_;
};

// Tensor of a layout; sizes are [B,H,N,D].
Tensor make_tensor(DType dtype, std::array<int64_t, 4> sizes, Layout layout, bool may_expand);

// Compares what a backend wrote with the oracle, every element, NaN and infinities by position. Empty =
// equal. empty_rows_are_nan: the backend is allowed (and expected) to write NaN in rows without keys.
std::string compare(const TensorView& out, const std::vector<double>& expected, double tolerance,
                    const std::vector<double>* lse_for_empty_rows = nullptr);

}  // namespace attnscope::testing
