#pragma once
// Attention calls found in a trace: which operator, which implementation, at what shape, at what cost.

#include "analysis/kernel_name.h"
#include "base/total.h"
#include "trace/link.h"
#include "trace/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace attnscope {

struct Metrics;

// What an attention call computed, as far as the trace recorded it. −1: not known.
struct AttentionShape {
  int64_t batch = -1, heads = -1, kv_heads = -1, length = -1, kv_length = -1, head_dim = -1, value_dim = -1;
  bool known() const { return batch >= 0; }
  std::string text() const;  // "8×16×1024×64", with kv parts where they differ
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

enum class MaskUse : uint8_t { kUnknown, kNone, kCausal, kTensor, kBlock };
std::string_view mask_name(MaskUse mask);

// One call (an outermost attention operator), or one attention kernel outside every such operator.
struct AttentionCall {
  trace::EventIndex event = trace::kNoEvent;  // the operator; for a bare kernel the kernel itself
  std::string op;  // "aten::scaled_dot_product_attention"; kernel's short name when bare
  bool bare_kernel = false;
  bool hand_written = false;  // matmul, softmax, matmul found by their shapes, not one operator
  AttentionImpl implementation = AttentionImpl::kNone;
  AttentionPass pass = AttentionPass::kForward;
  uint32_t kernels = 0, copies = 0, fills = 0;  // launched inside the call on its own thread
  Total device_ns;
  Total attention_kernel_ns;  // of that, in kernels that are attention themselves
  int64_t host_ns = 0;
  NumericType dtype = NumericType::kUnknown;
  AttentionShape shape;
  MaskUse mask = MaskUse::kUnknown;
  // Useful work by the shape: 2 GEMMs (5 in backward), causal counted as half; and the least traffic: every
  // input read once, every output written once. Empty when shape, dtype or mask is not known.
  double mask_bytes = 0;  // of a tensor mask, read once
  std::optional<double> flops, bytes;
  std::vector<trace::EventIndex> work;  // device events, in time order
};

// Equal calls folded together.
struct AttentionGroup {
  std::vector<uint32_t> calls;  // indices into Metrics::attention_calls
  Total device_ns;
  int64_t median_device_ns = 0;
  uint64_t kernels = 0;
};

std::vector<AttentionCall> find_attention_calls(const trace::Trace& trace, const trace::Links& links,
                                                const Metrics& metrics);
std::vector<AttentionGroup> group_attention_calls(const std::vector<AttentionCall>& calls);

}  // namespace attnscope
