#include "backends/cpu_common/threads.h"

#include <algorithm>

namespace attnscope::cpu {

int process_threads() {
  static const int threads = std::max(1, omp_get_max_threads());
  return threads;
}

int plan_threads(const Limits& limits) {
  const int all = process_threads();
  return limits.threads > 0 ? std::min(limits.threads, all) : all;
}

}  // namespace attnscope::cpu
