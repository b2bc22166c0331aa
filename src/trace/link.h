#pragma once
// How events belong together: host nesting, device work → launch → ranges, steps. Computed once per trace.

#include "base/total.h"
#include "trace/trace.h"

#include <span>
#include <vector>

namespace attnscope::trace {

enum class LinkBasis : uint8_t {
  kNone,         // no launch in the file explains this work
  kCorrelation,  // one launch call, one piece of device work with its correlation
  kGraph,        // a graph launch: its correlation is shared by all the graph's nodes
  kCpu,          // our own CPU recording: the work ran inline on the host thread
};
enum class Confidence : uint8_t { kNone, kLow, kMedium, kHigh };
std::string_view basis_name(LinkBasis b);
std::string_view confidence_name(Confidence c);

struct DeviceLink {
  EventIndex launch = kNoEvent;  // the runtime or driver call
  LinkBasis basis = LinkBasis::kNone;
  Confidence confidence = Confidence::kNone;
};

// Why unlinked device work has no launch.
enum class Unlinked : uint8_t {
  kLinked,
  kEarlierWork,  // before the stream's first linked work: launched before the window, leaking in
  kUnknown,      // after it: the launch record was lost
};

struct Step {
  int64_t number = 0;           // n of ProfilerStep#n
  EventIndex event = kNoEvent;  // the host annotation; kNoEvent for the one whole-trace step
  int64_t begin_ns = 0, end_ns = 0;
};
enum class StepBasis : uint8_t { kProfilerStep, kWholeTrace };

// Work launched inside a set of spans.
struct WorkSum {
  uint64_t kernels = 0, copies = 0, fills = 0;
  Total device_ns;  // sum of durations, not wall time
  friend bool operator==(const WorkSum&, const WorkSum&) = default;
};
struct RangeSum {
  uint64_t calls = 0;  // outermost calls: one nested in another of the same name is no call of its own
  Total host_ns;       // summed over calls
  WorkSum own_thread;  // launched on the call's thread inside it
  WorkSum process;     // launched on any thread while it was open
};

class Links {
 public:
  // The trace must outlive the links. Adds nothing to the trace; its own diagnostics are in diagnostics().
  static Links build(const Trace& trace);

  // Enclosing host span on the same thread; kNoEvent at the top or for events that do not nest. Our own CPU
  // recordings' kernels, copies and fills run inline and nest like host spans.
  EventIndex parent(EventIndex i) const {
    return link_basis(i) == LinkBasis::kCpu || !on_device(i) ? up_[i] : kNoEvent;
  }
  // The launch call of device work; kNoEvent when unlinked or run inline.
  EventIndex launch(EventIndex i) const {
    return link_basis(i) != LinkBasis::kCpu && on_device(i) ? up_[i] : kNoEvent;
  }
  // The event that says where and when device work was launched: its launch call, or itself when run inline;
  // kNoEvent when unlinked.
  EventIndex launch_point(EventIndex i) const { return link_basis(i) == LinkBasis::kCpu ? i : launch(i); }
  LinkBasis link_basis(EventIndex i) const { return static_cast<LinkBasis>(flags_[i] & 7); }
  DeviceLink device_link(EventIndex i) const;
  Unlinked unlinked(EventIndex i) const { return static_cast<Unlinked>(flags_[i] >> 5); }
  // First host span above the launch that is not itself a launch call: the operator or range that launched
  // this device work; kNoEvent when unlinked or launched outside every span.
  EventIndex launched_by(EventIndex device_work) const;
  // Host spans (and inline work) of one thread in preorder: parents before children, siblings by time. A
  // subtree is contiguous.
  std::span<const EventIndex> preorder(uint32_t thread) const;
  // Device work in time order.
  std::span<const EventIndex> device_work() const { return device_work_.span(); }

  std::span<const Step> steps() const { return steps_; }
  StepBasis step_basis() const { return step_basis_; }
  // Index into steps() by where the event was launched (device work) or began (host); −1 outside all.
  int step_of(EventIndex i) const;
  int step_at(int64_t ts_ns) const;

  // Sums over the outermost calls of one operator or range name. O(events).
  RangeSum range_sum(StringId name) const;
  // Counts of unlinked work by kind; both reasons together.
  WorkSum unlinked_sum() const { return unlinked_sum_; }
  const Diagnostics& diagnostics() const { return diagnostics_; }

 private:
  friend struct LinkBuilder;
  bool on_device(EventIndex i) const {
    const EventClass c = trace_->cls(i);
    return is_device_work(c) || c == EventClass::kDeviceOther;
  }

  const Trace* trace_ = nullptr;
  Column<EventIndex> up_;             // parent of host spans, launch of device work
  Column<EventIndex> order_;          // host spans, thread by thread, preorder
  std::vector<size_t> thread_begin_;  // into order_, one more than threads
  Column<EventIndex> device_work_;
  Column<uint8_t> flags_;  // per event: basis | confidence << 3 | unlinked << 5
  std::vector<Step> steps_;
  StepBasis step_basis_ = StepBasis::kWholeTrace;
  WorkSum unlinked_sum_;
  Diagnostics diagnostics_;
};

}  // namespace attnscope::trace
