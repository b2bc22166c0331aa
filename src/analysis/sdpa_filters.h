#pragma once
// PyTorch's conditions for its fused attention backends, applied to inputs that a trace recorded. They are
// those of PyTorch 2.5 to 2.11; older and newer ones differ in details, which the findings say.

#include "analysis/kernel_name.h"
#include "analysis/op_inputs.h"

#include <optional>
#include <string>
#include <vector>

namespace attnscope {

// One call of scaled_dot_product_attention as recorded.
struct SdpaRequest {
  OpInput query, key, value, mask;  // mask: empty dims when there is none
  NumericType dtype = NumericType::kUnknown;
  double dropout = 0;
  bool causal = false;
  bool enable_gqa = false;
  bool training = false;  // a backward pass of it is in the trace
  int capability = 0;     // 90 for sm_90; 0 when not known
  bool amd = false;
  bool has_strides = false;
  bool has_mask() const { return !mask.type.empty(); }
};

// From the operator's recorded inputs; nothing when shapes were not recorded or the operator is another.
std::optional<SdpaRequest> read_sdpa_request(std::string_view op, const std::vector<OpInput>& inputs);

// Every condition that refuses these inputs, with its values; empty: nothing recorded refuses them.
std::vector<std::string> flash_refusals(const SdpaRequest& request);
std::vector<std::string> efficient_refusals(const SdpaRequest& request);
std::vector<std::string> cudnn_refusals(const SdpaRequest& request);

}  // namespace attnscope
