#pragma once
// Runs every variant of one attention call on a device, checks it, times it, counts what really ran, and
// returns all of it as one value. Timing passes run without the profiler, counting passes with it.

#include "compare/accuracy.h"
#include "compare/counts.h"
#include "compare/device.h"
#include "compare/guess.h"
#include "compare/machine.h"
#include "compare/problem.h"

#include "analysis/finding.h"
#include "attnscope/attention.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::compare {

struct MeasureOptions {
  int rounds = 0;           // timed calls per variant; 0 = as many as min_time_s gives, 5 to 300
  double min_time_s = 0.5;  // per variant
  bool cold = false;        // caches are flushed before each timed call
  bool peaks = true;        // measure what the machine reaches; else that stays unknown
  bool record = true;       // the counting passes; without them there are no counts and no findings
  double check_flops = kFullCheckFlops;  // what the expected rows may cost
};

struct CompareRequest {
  Problem problem;
  std::vector<std::string> variants;  // empty: every backend of the device
  MeasureOptions measure;
  GuessSheet guess;
  bool keep_recordings = false;
};

enum class VariantStatus : uint8_t { kOk, kRefused, kFailed };
std::string_view status_name(VariantStatus status);

struct VariantResult {
  std::string name;
  std::string description;
  VariantStatus status = VariantStatus::kOk;
  std::vector<Refusal> reasons;    // refused or failed: all of them
  std::vector<std::string> steps;  // Plan's, as it describes itself
  CostModel cost;                  // what the plan expects
  Guess guess;
  std::vector<GuessBreak> breaks;
  CallCounts counts;
  Distribution device_us;  // per call, unrecorded
  Distribution host_us;
  Accuracy accuracy;
  std::vector<Finding> findings;
  profiler::Recording recording;  // of the counting passes, when kept
  bool ok() const { return status == VariantStatus::kOk; }
  double flops_per_s() const { return device_us.p50 > 0 ? cost.flops / (device_us.p50 * 1e-6) : 0; }
};

// What the hardware allows for this call, from its measured peaks.
struct Expectation {
  double flops = 0, min_bytes = 0;
  double compute_us = -1, memory_us = -1;  // −1: the peak is not known
  double floor_us() const { return compute_us > memory_us ? compute_us : memory_us; }
};

struct CompareResult {
  Machine machine;
  std::string device_note;  // why this device and not another; empty: it was asked for, or is the obvious one
  std::string device_name;
  DeviceType device = DeviceType::kCpu;
  int device_index = 0;
  Problem problem;
  MeasureOptions measure;
  Peaks peaks;
  Expectation expectation;
  std::string automatic;     // what sdpa() would choose; empty: nobody takes it
  std::string guess_source;  // empty: the formula
  std::string guessed_fastest;
  std::vector<VariantResult> variants;   // fastest first, then failed, then refused
  const VariantResult* fastest() const;  // null when none ran
  const VariantResult* find(std::string_view name) const;
};

// Share of the whole work that is done, and on what.
using Progress = std::function<void(double done, std::string_view what)>;

// The variants a device knows, in order of preference.
std::vector<std::string> known_variants(DeviceType device);

// Everything that can be wrong with the request, found before memory is taken: kInvalidArgument for options
// and unknown variants, kOutOfMemory (both sizes) when the tensors themselves do not fit.
[[nodiscard]] Status check(const BenchDevice& device, const CompareRequest& request);

// A variant that refuses or fails is a result, not an error.
[[nodiscard]] Result<CompareResult> compare(BenchDevice& device, const CompareRequest& request,
                                            const Progress& progress = {});

}  // namespace attnscope::compare
