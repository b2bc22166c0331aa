#pragma once
// A spool → a Recording.

#include "attnscope/profiler.h"
#include "profiler/injection/spool.h"

#include <string>

namespace attnscope::profiler::spool {

struct AssembleOptions {
  std::string step_range;  // ranges of this name become ProfilerStep#n; empty: none
};

// NVTX ranges named like an operator ("aten::mm, seq = 3, sizes = …", as torch's emit_nvtx writes them)
// become operators of that name, all others ranges. Nesting is found from the times of each thread.
Recording assemble(const Content& content, const AssembleOptions& options = {});

}  // namespace attnscope::profiler::spool
