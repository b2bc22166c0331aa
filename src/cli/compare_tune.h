#pragma once
// compare --tune: measures the order of the backends over a grid and keeps it for `auto`.

#include "cli/compare_sweep.h"

namespace attnscope::cli {

// The exit code: 0, or 4 when nothing ran anywhere.
[[nodiscard]] Result<int> run_tune(Context& context, const CompareOptions& options,
                                   const SweepProgress& progress);

}  // namespace attnscope::cli
