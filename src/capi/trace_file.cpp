#include "capi/trace_file.h"

#include "formats/chrome/writer.h"
#include "profiler/export.h"
#include "trace/link.h"

namespace attnscope::capi {

Status write_trace_file(const profiler::Recording& recording, const std::string& path) {
  const trace::Trace trace = profiler::to_trace(recording);
  return formats::chrome::write_file(trace, trace::Links::build(trace), path);
}

}  // namespace attnscope::capi
