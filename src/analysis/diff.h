#pragma once
// Two recordings of the same thing, held against each other.

#include "analysis/metrics.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// A mean of repeated measurements, in µs.
struct Estimate {
  int64_t samples = 0;
  double mean = 0;
  double deviation = 0;  // sample standard deviation; 0 with fewer than two samples
};
Estimate estimate_of(const std::vector<double>& values);

enum class DiffVerdict : uint8_t {
  kSame,    // within the threshold, and the interval leaves no doubt that it is
  kFaster,  // beyond it, and the interval excludes 1
  kSlower,
  kUnsure,  // the interval includes both 1 and a change beyond the threshold: repeat more often
  kNew,     // only in B
  kGone,    // only in A
};
std::string_view diff_verdict_name(DiffVerdict verdict);

enum class DiffKind : uint8_t { kStep, kRange, kAttention, kKernel, kVariant };
std::string_view diff_kind_name(DiffKind kind);

struct DiffRow {
  DiffKind kind = DiffKind::kRange;
  std::string name;
  std::string figure;  // "device time per call", "device time per step", "host time per call"
  Estimate a, b;
  double ratio = 0;                 // b ÷ a; 0 when one side is missing
  std::optional<double> low, high;  // 95 % interval of the ratio; empty with fewer than two samples a side
  DiffVerdict verdict = DiffVerdict::kSame;
  double share_percent = 0;  // of all time of its side, the larger of the two
  std::string note;          // "kernels per call 5 -> 6", "refused: …"
};

struct DiffOptions {
  double threshold = 0.05;  // ratio beyond 1 + threshold is a change
  double least_share = 1;   // percent: kernels below it on both sides are left out
};

struct Diff {
  std::vector<DiffRow> rows;  // steps first, then ranges, attention, kernels; by share within a kind
  uint64_t left_out = 0;      // kernel groups below least_share
  bool regressed() const;
};

// Fills ratio, interval and verdict of a row from its two estimates. The interval is Welch's on the
// logarithm of the ratio.
void judge(DiffRow& row, const DiffOptions& options);

// Per step, user range, attention operator and kernel group. In CPU-only traces times are the host's.
Diff diff_traces(const Metrics& a, const Metrics& b, const DiffOptions& options);

}  // namespace attnscope
