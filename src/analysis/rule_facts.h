#pragma once
// What rules ask of a trace: device work with the operators and ranges above it, whatever the producer
// (a GPU trace, our CPU recording, or a CPU-only trace whose leaf operators are the kernels).

#include "analysis/finding.h"
#include "analysis/metrics.h"
#include "analysis/op_inputs.h"
#include "base/total.h"

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attnscope {

// Host spans above a piece of work, innermost first.
struct Above {
  std::vector<trace::EventIndex> operators;   // ATen and other operators; autograd's wrappers left out
  trace::EventIndex range = trace::kNoEvent;  // innermost user range that is not a ProfilerStep
  trace::EventIndex autograd = trace::kNoEvent;
  bool in_optimizer = false;
};

// One piece of work of a trace.
struct Work {
  trace::EventIndex event = trace::kNoEvent;
  trace::EventClass cls = trace::EventClass::kKernel;
  int64_t ns = 0;
  const KernelName* name = nullptr;  // decoded
};

class RuleFacts {
 public:
  explicit RuleFacts(const Metrics& metrics);

  const Metrics& metrics() const { return metrics_; }
  const trace::Trace& trace() const { return *metrics_.trace; }
  const trace::Links& links() const { return *metrics_.links; }

  // All work in time order: kernels, copies, fills; leaf operators in a CPU-only trace.
  std::span<const Work> work() const { return work_; }
  int64_t work_ns() const { return work_ns_; }
  double share(int64_t ns) const {
    return work_ns_ > 0 ? 100.0 * static_cast<double>(ns) / static_cast<double>(work_ns_) : 0;
  }
  Above above(trace::EventIndex event) const;
  // The operator that asked for the work: the outermost one above it, below ranges and autograd.
  trace::EventIndex top_operator(const Above& above) const;
  // The range that a finding names: the innermost user range, else the top operator's name, else "".
  std::string where(const Above& above) const;
  bool on_gpu() const { return on_gpu_; }  // the work ran on a device, not on the host
  bool own_recording() const;              // recorded by attnscope

  // Recorded inputs of an operator, parsed once per distinct text.
  const std::vector<OpInput>& inputs(trace::EventIndex op) const;
  // The type of the first floating-point tensor among an operator's inputs.
  NumericType first_float(trace::EventIndex op) const;
  // Bytes that a copy moved: recorded, or from the shapes of the copying operator; −1 when not known.
  int64_t copied_bytes(const Work& work, const Above& above) const;
  // Cast, copy, or not told: kernels named direct_copy do either; the operator's types decide.
  enum class CopyNature : uint8_t { kNotACopy, kCopy, kUpcast, kDowncast, kOtherCast, kUnknown };
  CopyNature copy_nature(const Work& work, const Above& above) const;

  // The attention call that a piece of work belongs to, as an index into Metrics::attention_calls; −1: none.
  int attention_of(trace::EventIndex event) const;
  // Compute capability of the device of a piece of work; 0 when not known. 80 for sm_80.
  int capability_of(trace::EventIndex event) const;
  const trace::DeviceProperties* device_of(trace::EventIndex event) const;
  // Host events recorded inside a span; each costs the profiler time.
  uint64_t host_events_in(trace::EventIndex span) const;
  // What recording itself costs per host event, estimated, in ns: measured on calls run with and without it.
  int64_t profiler_ns_per_event() const;

  Evidence evidence(trace::EventIndex event) const;
  // Evidence for at most kMostEvidence events, and their number.
  void cite(Finding& finding, std::span<const trace::EventIndex> events) const;
  static constexpr size_t kMostEvidence = 16;

 private:
  const Metrics& metrics_;
  std::vector<Work> work_;
  int64_t work_ns_ = 0;
  bool on_gpu_ = false;
  std::unordered_map<trace::EventIndex, int> attention_of_;
  mutable std::unordered_map<trace::StringId, std::vector<OpInput>> inputs_;
};

// Work of one cause in one place, gathered for one finding.
struct Gathered {
  std::string where;  // range or operator
  std::string what;   // whatever distinguishes causes in one place
  std::vector<trace::EventIndex> events;
  std::vector<trace::EventIndex> calls;  // distinct enclosing calls, to divide by
  Total ns;
  Total bytes;
};
using GatheredMap = std::map<std::pair<std::string, std::string>, Gathered>;
Gathered& gather(GatheredMap& map, std::string where, std::string what, const Work& work,
                 trace::EventIndex call);

double us(int64_t ns);  // nanoseconds as microseconds
// "127 µs per call × 3 calls" or "127 µs".
std::string per_call(int64_t total_ns, size_t calls);
std::string counted(size_t n, std::string_view noun);  // "1 call", "3 calls"
std::string percent_text(double percent);              // "12 %", two significant digits

bool is_sdpa_operator(std::string_view name);        // any aten::…scaled_dot_product… operator
bool promises_copy(std::string_view operator_name);  // aten::clone, contiguous, cat, to …
size_t numeric_bytes(NumericType type);              // 0 when unknown
int64_t element_count(const OpInput& input);

}  // namespace attnscope
