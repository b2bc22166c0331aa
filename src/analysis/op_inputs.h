#pragma once
// An operator's recorded inputs (record_shapes=True) as values.

#include "trace/trace.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// One argument of an operator. A TensorList's members are flattened into consecutive `members`.
struct OpInput {
  std::vector<int64_t> dims;     // empty for scalars and absent arguments
  std::vector<int64_t> strides;  // in elements; empty when not recorded
  std::string type;              // "c10::BFloat16", "Scalar", "" for an absent argument
  std::string concrete;          // "0.125", "[8, 16]", "" when not recorded
  std::vector<OpInput> members;  // of a TensorList
  bool is_tensor() const {
    return !type.empty() && type != "Scalar" && type != "ScalarList" && !dims.empty();
  }
};

// Parses the raw JSON text; lenient: what cannot be read is left empty. Arguments past 256 are dropped.
std::vector<OpInput> parse_op_inputs(const trace::OperatorArgs& args);

}  // namespace attnscope
