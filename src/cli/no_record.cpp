// record in a build without CUDA: the command is there, and says why it cannot.
#include "cli/common.h"
#include "cli/record_options.h"

namespace attnscope::cli {
namespace {

int run_record(Context& context, const Arguments& arguments) {
  RecordOptions options;
  if (const auto done = options.parse(context, arguments)) return *done;
  return print_error(context,
                     Error{ErrorCode::kUnavailable,
                           "this build cannot record: it was made without CUDA, whose CUPTI sees what runs",
                           "build where CUDA 13 with CUPTI is installed (-DATTNSCOPE_CUDA=ON); traces of "
                           "torch.profiler can be explained here"});
}

}  // namespace

extern const Command record_command;
const Command record_command{"record", kRecordSummary, kRecordExample, run_record};

}  // namespace attnscope::cli
