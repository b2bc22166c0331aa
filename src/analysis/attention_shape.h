#pragma once
// Shapes, masks and costs of attention calls from recorded inputs. Part of attention.h.

#include "analysis/attention.h"
#include "analysis/op_inputs.h"

#include <optional>
#include <string_view>
#include <vector>

namespace attnscope {

// Fills shape, dtype and mask of a call from its operator's inputs, as far as they were recorded and the
// operator's signature is known.
void read_attention_inputs(std::string_view op, const std::vector<OpInput>& inputs, AttentionCall& call);

// Fills flops and bytes when shape, dtype and mask allow it.
void estimate_attention_work(AttentionCall& call);

// What an operator can be in attention written out by hand.
enum class HandWrittenPart : uint8_t { kOther, kMatmul, kMask, kSoftmax };
HandWrittenPart hand_written_part(std::string_view op);

// Fed with the parts of one thread in time order; gives a call when a second matmul completes one. The
// shapes must chain: [n, L, D] · [n, D, S], softmax over n·L·S with last dimension S, [n, L, S] · [n, S, Dv].
class HandWrittenFinder {
 public:
  std::optional<AttentionCall> add(HandWrittenPart part, trace::EventIndex event, std::string_view op,
                                   const std::vector<OpInput>& inputs);

 private:
  struct Scores {
    trace::EventIndex event = trace::kNoEvent;
    int64_t n = 0, length = 0, kv_length = 0, head_dim = 0;
    NumericType dtype = NumericType::kUnknown;
    int64_t batch = -1, heads = -1;
    bool masked = false, normalised = false;
  };
  std::optional<Scores> scores_;
};

}  // namespace attnscope
