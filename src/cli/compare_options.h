#pragma once
// The command line of `compare`, turned into a request. Every mistake is one line with the values.

#include "compare/compare.h"

#include "cli/common.h"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace attnscope::cli {

// The options as they stood; empty: not given.
struct CompareOptions {
  std::string shape, dtype, causal, mask, window, scale, softcap, dropout, lengths, layout;
  std::string backends, device = "auto", guess, trace_dir, seed, threads, rounds, min_time;
  std::vector<std::string> sweep;  // axes, "seq=512..16384x2"
  std::string resume;              // the sweep's log
  std::string tune_output;         // where --tune writes; empty: the user's cache
  bool causal_given = false, train = false, ask = false, cold = false, tune = false;
  OutputFiles files;
  std::vector<std::string> given;  // the names of the options that stood there

  void add_to(CLI::App& app);
};

// "cpu", "cuda", "cuda:1", "auto" (a GPU when there is one).
[[nodiscard]] Result<std::unique_ptr<compare::BenchDevice>> open_device(const CompareOptions& options);
[[nodiscard]] Result<compare::CompareRequest> to_request(const CompareOptions& options, DeviceType device);
// Paths that cannot be written, found before anything runs: directories are made, files are tried.
[[nodiscard]] Status check_outputs(const CompareOptions& options);

}  // namespace attnscope::cli
