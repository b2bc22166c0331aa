#pragma once
// Runs cases on every backend of a device and judges the results.

#include "verify/verify_case.h"

#include <functional>
#include <string>
#include <vector>

namespace attnscope::verify {

enum class Outcome : uint8_t {
  kOk,
  kRefused,   // with a reason
  kDeviates,  // wrong, as the case says this backend is
  kFailed,
};

struct BackendResult {
  std::string backend;
  Outcome outcome = Outcome::kOk;
  std::string code;    // of the refusal
  std::string detail;  // what differs, why refused, why it deviates
};

struct CaseResult {
  std::string id, source, fault;
  std::string skipped;  // why nothing ran; empty: it ran
  bool needs_backward = false;
  std::vector<BackendResult> backends;
  bool failed() const;
};

struct Options {
  std::vector<std::string> backends;  // empty: every one of the device
  DeviceType device = DeviceType::kCpu;
  bool large = false;         // also cases beyond a hundred million elements
  double oracle_flops = 4e8;  // beyond that the oracle checks evenly spaced rows
  // Tests plant faults: `before` changes the request a backend gets, `after` what it wrote. CPU only.
  std::function<void(Request&)> before;
  std::function<void(const Request&, const Outputs&)> after;
};

// kInvalidArgument for unknown backend names, kUnavailable when the device is not there.
[[nodiscard]] Status check_options(const Options& options);
CaseResult run_case(const Case& c, const Options& options);

}  // namespace attnscope::verify
