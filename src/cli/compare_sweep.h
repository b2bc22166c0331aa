#pragma once
// `compare --sweep`: the comparison at every point of a grid, resumable.

#include "cli/compare_options.h"

namespace attnscope::cli {

// Progress over the whole sweep: share done, and what runs.
using SweepProgress = compare::Progress;

// Runs what the log does not hold yet and writes the results. The exit code.
[[nodiscard]] Result<int> run_sweep(Context& context, const CompareOptions& options,
                                    const SweepProgress& progress);

}  // namespace attnscope::cli
