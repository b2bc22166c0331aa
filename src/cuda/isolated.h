#pragma once
// Work that may crash, in a child process.

#include "attnscope/result.h"

#include <functional>
#include <string>
#include <string_view>

namespace attnscope::cuda {

// Forks, runs `work` in the child and returns its bytes or its error. `what` names it in the errors of this
// function itself, all kInternal: the child died ("the compiler crashed with signal 11"), or it took longer
// than timeout_ms and was ended. `work` uses no GPU and no lock that another thread of this process may hold;
// what it changes in memory is lost.
[[nodiscard]] Result<std::string> run_isolated(std::string_view what, int timeout_ms,
                                               const std::function<Result<std::string>()>& work);

}  // namespace attnscope::cuda
