#pragma once
// Traces named on the command line.

#include "attnscope/result.h"
#include "trace/link.h"
#include "trace/trace.h"

#include <memory>
#include <string>
#include <vector>

namespace attnscope::cli {

// A trace and its links, which point into it; the pair may be moved.
class LoadedTrace {
 public:
  explicit LoadedTrace(trace::Trace trace)
      : trace_(std::make_unique<trace::Trace>(std::move(trace))),
        links_(std::make_unique<trace::Links>(trace::Links::build(*trace_))) {}
  const trace::Trace& trace() const { return *trace_; }
  const trace::Links& links() const { return *links_; }

 private:
  std::unique_ptr<trace::Trace> trace_;
  std::unique_ptr<trace::Links> links_;
};

// Reads and links one file ("-": stdin).
Result<LoadedTrace> load_trace(const std::string& path);

// Refuses "-" twice: the second read would find nothing.
Status one_stdin(const std::vector<std::string>& inputs);

// Folders become the trace files directly in them (.json, .json.gz, .json.zst, .tmp), sorted so that rank 2
// comes before rank 10; files stay as they are. A folder without any is an error.
Result<std::vector<std::string>> expand_inputs(const std::vector<std::string>& inputs);

}  // namespace attnscope::cli
