#pragma once
// A correctness case: one reported fault (or a sibling of one) as a request with explicit contents and what
// must come out. The format is described in tests/cases/README.md.

#include "attnscope/attention.h"
#include "tensor/tensor.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::verify {

// Value of the element at a logical index [b, h, row, column] (masks: aligned at the right) with that linear
// position.
using Content = std::function<double(const std::array<int64_t, 4>& index, int64_t linear)>;

struct TensorSpec {
  DType dtype = DType::kF32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // empty: dense
  int64_t offset = 0;            // elements before the first one
  Content content;
};

struct MergeState {
  std::vector<double> out;
  double lse = 0;
};

struct Case {
  std::string id, source, fault, rule;
  std::string note;  // what this form of the case leaves out, if anything
  // Cases about threads, streams, caches or capture are tests, not requests: the name of the test, or why
  // there is none.
  std::string machinery;
  TensorSpec q, k, v;
  MaskKind mask_kind = MaskKind::kNone;
  TensorSpec mask;
  CausalMode causal = CausalMode::kNone;
  Window window;
  std::optional<double> scale;
  double softcap = 0;
  Dropout dropout;
  std::vector<int64_t> kv_lengths, cu_q, cu_k;
  int64_t page_size = 0;
  std::vector<int64_t> pages;  // [B, max_pages]
  std::vector<MergeState> merge;
  // What must come out, beside agreeing with the oracle.
  bool expect_error = false;
  std::vector<double> expect_out, expect_lse;  // row-major; empty: the oracle alone
  double expect_tolerance = 0;                 // added to the derived one
  // Backends whose known limits show on this case, each with the reason: "naive": "scores overflow in f16";
  // "cuda:naive" is that backend on a GPU only.
  std::map<std::string, std::string> deviates;
  bool needs_backward = false;  // the report is about gradients: the forward part alone does not close it
};

// A case's tensors and the request over them. Movable; the request's views point into it.
struct CaseTensors {
  Tensor q, k, v, mask, kv_lengths, cu_q, cu_k, block_table;
  Request request;
};

// Elements that are generated and read, and bytes of storage: what a case costs before it runs.
double touched_elements(const Case& c);
double storage_bytes(const Case& c);
// dense: without the case's strides and offsets, the same logical values.
[[nodiscard]] Result<std::unique_ptr<CaseTensors>> materialise(const Case& c, bool dense);

// JSON lines; kBadInput names the line. `where` is for messages.
[[nodiscard]] Result<std::vector<Case>> parse_cases(std::string_view text, const std::string& where);
// The set in this binary (tests/cases/*.jsonl, embedded).
std::string_view builtin_cases();

}  // namespace attnscope::verify
