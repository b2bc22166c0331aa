#pragma once
// Writes a trace as strict Kineto-compatible Chrome JSON: chrome://tracing, Perfetto and HTA load it, and
// reading it back gives the same trace.

#include "attnscope/result.h"
#include "formats/sink.h"
#include "trace/link.h"
#include "trace/trace.h"

#include <string>

namespace attnscope::formats::chrome {

// path: "-" for standard output; .gz and .zst compress; the file appears only when it is complete. Every
// event that the trace keeps is written, with flow arrows from launches to device work. Errors: kIo.
Status write_file(const trace::Trace& trace, const trace::Links& links, const std::string& path);
Status write(const trace::Trace& trace, const trace::Links& links, Sink& sink);
// The whole file as .json.gz bytes, for embedding.
Result<std::string> gzip_bytes(const trace::Trace& trace, const trace::Links& links);

}  // namespace attnscope::formats::chrome
