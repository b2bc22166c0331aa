#pragma once
// The command line of `warm`, the same in a build that cannot compile kernels.

#include "cli/common.h"

#include <optional>
#include <string>
#include <vector>

namespace attnscope::cli {

inline constexpr const char* kWarmSummary = "Compile kernels for shapes ahead of their first use";
inline constexpr const char* kWarmExample =
    "attnscope warm 2,16,4096,80 1,32,2048,112 --causal --arch sm_90a";

struct WarmOptions {
  std::vector<std::string> shapes;
  std::string dtypes = "bf16", arch, backends, features;
  bool causal = false, all = false;
  OutputFiles files;

  // As cli::parse().
  std::optional<int> parse(Context& context, const Arguments& arguments);
};

}  // namespace attnscope::cli
