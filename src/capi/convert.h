#pragma once
// Between the C ABI's structs and the library's values.

#include "attnscope/attention.h"
#include "attnscope/attnscope.h"

#include <string>
#include <vector>

namespace attnscope::capi {

// A view of a DLPack tensor: rank 1 to 4, one lane, a type and a device the library knows. `name` is for
// messages.
[[nodiscard]] Result<TensorView> to_view(const attnscope_tensor& tensor, const char* name);
[[nodiscard]] Result<Request> to_request(const attnscope_request* request);
[[nodiscard]] Result<Outputs> to_outputs(const attnscope_tensor* out, const attnscope_tensor* lse);
ChooseOptions to_choice(const char* backends);
// Is every pointer on the device its tensor names? Not asked for planned calls.
[[nodiscard]] Status check_places(const Request& request, const Outputs& outputs);

}  // namespace attnscope::capi
