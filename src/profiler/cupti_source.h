#pragma once
// Puts GPU activity into profiler sessions.

namespace attnscope::profiler {

// Makes Activity::kCuda available to Session::start(). Called once by the program's main (and by the C ABI);
// loads nothing until a session asks.
void enable_cuda_activity();

}  // namespace attnscope::profiler
