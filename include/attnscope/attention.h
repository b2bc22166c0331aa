#pragma once
// Attention: a request, the decision which backend takes it (with every refusal), a plan, a run.
//
//   sdpa() = validate → choose → plan (cached) → run
//
// Every arrow is a value that can be looked at. A plan holds no state between calls and no buffer of its
// own, so one plan runs from many threads and streams at once. Semantics are those of PyTorch's
// scaled_dot_product_attention, with the differences stated on each field.

#include "attnscope/result.h"
#include "attnscope/tensor_view.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

enum class CausalMode : uint8_t {
  kNone,
  kTopLeft,     // key j is seen by query i when j ≤ i (PyTorch's is_causal, also when L ≠ S)
  kLowerRight,  // key j is seen by query i when j ≤ i + S − L (decoding with a cache; FlashAttention's
                // meaning)
};

enum class MaskKind : uint8_t {
  kNone,
  kBool,  // true = keep. A select: what a masked key or value holds never matters, NaN included
  kBias,  // added to the scaled scores; −inf masks (a select too), a finite minimum does not
};

// Sliding window around the diagonal that the causal mode defines (top-left when it is none): key j is seen
// when d − left ≤ j ≤ d + right, with d = i (or i + S − L for kLowerRight). −1 = unbounded on that side.
struct Window {
  int64_t left = -1;
  int64_t right = -1;
  constexpr bool active() const { return left >= 0 || right >= 0; }
};

// Dropout on the normalised weights, drawn from a counter-based generator (src/attention/dropout_bits.h), so
// the same (seed, offset) drops the same weights on every backend. The LSE is that of the undropped weights.
struct Dropout {
  double p = 0.0;  // in [0, 1]; 1 gives output 0
  uint64_t seed = 0;
  uint64_t offset = 0;
  const uint64_t* seed_on_device = nullptr;  // two words (seed, offset) read by the kernel when not null: a
                                             // fresh mask per replay of a captured graph
};

// Lengths of the sequences in a batch. Either per-batch lengths of dense tensors, or packed sequences.
struct Lengths {
  // kv_lengths: i32 or i64 [B]. Keys at and past the length are masked (never read into arithmetic).
  TensorView kv_lengths;
  // cu_q, cu_k: i32 or i64 [N+1] non-decreasing cumulative offsets, first 0. q is then [1, Hq, T_q, E] and k,
  // v are [1, Hk, T_k, E]; sequence n holds query rows cu_q[n] … cu_q[n+1]−1. Rows past cu_q[N] are written
  // 0, LSE −inf.
  TensorView cu_q;
  TensorView cu_k;
  bool has_kv_lengths() const { return kv_lengths.data != nullptr; }
  bool packed() const { return cu_q.data != nullptr; }
};

// Paged K/V cache: k is [pages, Hk, page_size, E] and v [pages, Hv, page_size, Ev] (any strides); batch b's
// key j is page block_table[b][j / page_size], slot j mod page_size. kv_lengths is then required and S =
// max_pages·page_size.
struct Paging {
  TensorView block_table;  // i32 [B, max_pages]; entries past the length are not read
  int64_t page_size = 0;
  // Optional: new keys and values [B, Hk, N, E] / [B, Hv, N, Ev] written to the cache at kv_lengths[b] …
  // before the attention; kv_lengths then holds the lengths before the append.
  TensorView append_k;
  TensorView append_v;
  bool active() const { return block_table.data != nullptr; }
};

// What the caller wants beyond the output; a backend that cannot refuses.
struct Wants {
  bool lse = false;            // log-sum-exp of the scaled, masked scores (natural log), f32 [B, Hq, L]
  bool gradients = false;      // a backward pass will follow: nothing it needs may be overwritten
  bool deterministic = false;  // bitwise equal results from run to run
};

struct Limits {
  int sm_count = 0;  // 0 = all; else use at most so many multiprocessors
  int splits = 0;    // 0 = choose; 1 = never split the keys; n = exactly n parts
  int threads = 0;   // CPU: 0 = all that the process may use
  int64_t memory_bytes =
      0;  // 0 = what is free; a request whose intermediates exceed it is refused with both sizes
};

// One attention call: out = dropout(softmax(softcap(scale · q kᵀ) + bias, masked)) v.
struct Request {
  TensorView q;                           // [B, Hq, L, E]
  TensorView k;                           // [B, Hk, S, E];  Hq % Hk == 0 (head h reads h / (Hq / Hk))
  TensorView v;                           // [B, Hv, S, Ev]; Hq % Hv == 0, Hv may differ from Hk
  CausalMode causal = CausalMode::kNone;  // with a mask as well, both apply (PyTorch refuses the pair)
  Window window;
  MaskKind mask_kind = MaskKind::kNone;  // with kNone a mask that has data is an error
  TensorView
      mask;  // rank 1–4, right-aligned, each dimension 1 or that of [B, Hq, L, S]; bool, or any float dtype
  std::optional<double> scale;  // none = 1/√E; negative, 0 and huge are legal
  double softcap = 0.0;         // 1e-30 … 1e30: scores become softcap·tanh(score/softcap) before the bias
  Dropout dropout;
  Lengths lengths;
  Paging paging;
  TensorView sinks;  // optional float [Hq]: one more logit per head that takes weight and gives no value
  // Optional f32 [Hq] or [B, Hq]: slope · −|d − j| is added to the score of query i and key j after softcap,
  // with d the diagonal that the causal mode defines (i + S − L for kLowerRight, else i; within the sequence
  // when packed). ALiBi as FlashAttention adds it.
  TensorView alibi_slopes;
  std::string score_program;  // reserved: an expression over (score, b, h, i, j)
  Wants wants;
  Limits limits;

  int64_t batch() const { return paging.active() ? paging.block_table.size(0) : q.size(0); }
  int64_t heads() const { return q.size(1); }
  int64_t q_len() const { return q.size(2); }
  // Keys per batch entry as far as shapes tell: max_pages·page_size when paged.
  int64_t kv_len() const {
    return paging.active() ? paging.block_table.size(1) * paging.page_size : k.size(2);
  }
  int64_t head_dim() const { return q.size(3); }
  int64_t value_dim() const { return v.size(3); }
  double effective_scale() const;
};

struct Outputs {
  // Neither shares memory with an input or with the other: they are written while inputs are read.
  TensorView out;  // [B, Hq, L, Ev], q's dtype, any strides except 0 on a size > 1; every element is written
  TensorView
      lse;  // f32 [B, Hq, L] (rank 3) when wants.lse; −inf for an empty row, NaN where a kept score is NaN
};

// Why a backend does not take a request. Codes are stable: tests, JSON and docs name them.
struct Refusal {
  std::string backend;
  std::string code;     // kebab-case, e.g. "head-dim-too-large"
  std::string message;  // with the values
  std::string remedy;
};

// The figures a plan expects, before anything ran: the guess of "guess first, then look".
struct CostModel {
  double flops = 0;               // 4·L·S·… over the kept part of the score matrix
  double min_bytes = 0;           // each input read once, each output written once
  double moved_bytes = 0;         // what this backend's steps read and write in total
  double intermediate_bytes = 0;  // peak memory beyond inputs and outputs
  int kernels = 0;                // per forward
  int copies = 0;
  int fills = 0;
};

class Backend;      // src/attention/backend.h
class BackendPlan;  // src/attention/backend.h

// Immutable, shareable between threads. Obtained from plan().
class Plan {
 public:
  Plan(const Backend& backend, std::shared_ptr<const BackendPlan> impl, CostModel cost,
       std::vector<Refusal> refusals, std::string key = {}, std::string why = {});
  std::string_view backend_name() const;
  const CostModel& cost() const { return cost_; }
  size_t workspace_bytes() const;
  // What will run, step by step, copies and casts included, and why other backends were refused.
  std::string describe() const;
  const std::vector<Refusal>& refusals() const { return refusals_; }
  const BackendPlan& impl() const { return *impl_; }
  const Backend& backend() const { return *backend_; }
  // Key of the request it was made for (empty: any); run() refuses a request of another key.
  const std::string& key() const { return key_; }
  // Why this backend: Decision::why.
  const std::string& why() const { return why_; }

 private:
  const Backend* backend_;
  std::shared_ptr<const BackendPlan> impl_;
  CostModel cost_;
  std::vector<Refusal> refusals_;
  std::string key_;
  std::string why_;
};

// The winner and every refusal of every other backend, also when there is a winner.
struct Decision {
  const Backend* winner = nullptr;  // null: nobody takes it
  std::string winner_name;
  std::string why;  // one line: order, forced, measured
  std::vector<Refusal> refusals;
};

struct ChooseOptions {
  // Names in order of preference; empty = automatic for the tensors' device. A forced backend that refuses is
  // an error that carries its reasons: there is no silent fallback.
  std::vector<std::string> backends;
};

struct RunOptions {
  void* stream = nullptr;     // cudaStream_t; ignored on the CPU
  void* workspace = nullptr;  // caller's, of at least Plan::workspace_bytes(), aligned to 64 bytes (CUDA:
                              // 256); null = taken from the allocator, visibly
  size_t workspace_bytes = 0;
};

// Checks what no backend could take: shapes, dtypes, heads, mask broadcast, lengths, dropout range.
[[nodiscard]] Status validate(const Request& request);
[[nodiscard]] Decision choose(const Request& request, const ChooseOptions& options = {});
// Uses only dtypes, sizes, strides, alignment and flags of the request, never the data (lengths' contents
// excepted by no backend): cached under exactly those.
[[nodiscard]] Result<std::shared_ptr<const Plan>> plan(const Request& request,
                                                       const ChooseOptions& options = {});
[[nodiscard]] Status run(const Plan& plan, const Request& request, const Outputs& outputs,
                         const RunOptions& options = {});
[[nodiscard]] Status sdpa(const Request& request, const Outputs& outputs, const ChooseOptions& choose = {},
                          const RunOptions& run = {});

// Combines partial attentions over disjoint key sets: out[i] = Σ_p w_p out_p, w_p = exp(lse_p − lse). Parts
// with LSE −inf contribute nothing; all empty gives (0, −inf). All views as in Outputs, same shapes and
// device.
[[nodiscard]] Status merge_states(const std::vector<Outputs>& parts, const Outputs& merged);

struct BackendInfo {
  std::string name;
  std::string description;
  DeviceType device = DeviceType::kCpu;
  bool available = false;
  std::string why_not;  // when not available on this machine
};
// Every backend compiled in, in order of preference.
[[nodiscard]] std::vector<BackendInfo> backends();

}  // namespace attnscope
