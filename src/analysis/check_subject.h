#pragma once
// The calls of one name, with the work of each: what check and write_guess look at. Part of check.h.

#include "analysis/guess.h"
#include "analysis/rule_facts.h"
#include "base/total.h"

#include <span>
#include <string>
#include <vector>

namespace attnscope {

// Work in the order of its launches, per process.
class WorkByLaunch {
 public:
  explicit WorkByLaunch(const RuleFacts& facts);
  // Work launched by the process within [begin, end] of host time.
  std::span<const Work> between(uint32_t process, int64_t begin_ns, int64_t end_ns) const;

 private:
  struct Process {
    std::vector<int64_t> at_ns;  // parallel to work
    std::vector<Work> work;
  };
  std::vector<Process> processes_;
};

struct GuessedCall {
  trace::EventIndex event = trace::kNoEvent;
  std::span<const Work> work;
  int64_t kernels = 0, copies = 0, fills = 0, host_ns = 0;
  Total device_ns;
};

struct GuessedCalls {
  std::vector<GuessedCall> calls;  // outermost ones, in time order
  int64_t median_device_ns() const;
  int64_t median_host_ns() const;
};

// Outermost calls of every host span whose name the table matches.
GuessedCalls find_calls(const RuleFacts& facts, const WorkByLaunch& work, const GuessTable& table);

// What can be said about a set of calls' kernels.
std::vector<KernelKind> sequence_of(const GuessedCall& call);
// Products and attention kernels whose unit is known: of them, those on tensor cores.
struct UnitCount {
  size_t known = 0, on_tensor_cores = 0, unknown = 0;
  std::string example;
  std::vector<trace::EventIndex> on, off;
};
UnitCount tensor_core_use(const GuessedCalls& calls);
// Distinct dtypes of products and attention, "bf16"; by kernel name, else by the attention call's inputs.
struct Named {
  std::vector<std::string> names;  // distinct, sorted
  std::vector<std::vector<trace::EventIndex>> events;
};
Named dtypes_of(const RuleFacts& facts, const GuessedCalls& calls);
// Distinct attention implementations, "flash", "math", "unfused".
Named backends_of(const RuleFacts& facts, const GuessedCalls& calls);
// Theoretical occupancy of the kernels whose resources are known.
struct OccupancyRange {
  size_t known = 0;
  double least = 0, most = 0;
  std::vector<std::pair<double, trace::EventIndex>> kernels;
};
OccupancyRange occupancy_of(const RuleFacts& facts, const GuessedCalls& calls);

}  // namespace attnscope
