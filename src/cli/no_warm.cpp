// warm in a build without CUDA: the command is there, and says why it cannot.
#include "cli/common.h"
#include "cli/warm_options.h"

namespace attnscope::cli {
namespace {

int run_warm(Context& context, const Arguments& arguments) {
  WarmOptions options;
  if (const auto done = options.parse(context, arguments)) return *done;
  return print_error(context, Error{ErrorCode::kUnavailable, "this build has no CUDA kernels to compile",
                                    "build where CUDA 13 is installed (-DATTNSCOPE_CUDA=ON)"});
}

}  // namespace

extern const Command warm_command;
const Command warm_command{"warm", kWarmSummary, kWarmExample, run_warm};

}  // namespace attnscope::cli
