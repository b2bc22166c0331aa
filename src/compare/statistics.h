#pragma once
// What a set of timings says.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace attnscope::compare {

struct Distribution {
  int64_t samples = 0;  // 0: not measured, the rest means nothing
  double mean = 0, p10 = 0, p50 = 0, p90 = 0, p99 = 0, min = 0, max = 0;
};

// Percentiles interpolate between neighbours.
inline Distribution distribution_of(std::vector<double> values) {
  Distribution d;
  d.samples = static_cast<int64_t>(values.size());
  if (values.empty()) return d;
  std::sort(values.begin(), values.end());
  for (const double v : values) d.mean += v;
  d.mean /= static_cast<double>(values.size());
  const auto at = [&](double fraction) {
    const double place = fraction * static_cast<double>(values.size() - 1);
    const auto low = static_cast<size_t>(place);
    const size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (place - static_cast<double>(low)) * (values[high] - values[low]);
  };
  d.p10 = at(0.10);
  d.p50 = at(0.50);
  d.p90 = at(0.90);
  d.p99 = at(0.99);
  d.min = values.front();
  d.max = values.back();
  return d;
}

}  // namespace attnscope::compare
