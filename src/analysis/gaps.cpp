#include "analysis/gaps.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;
using trace::Links;
using trace::Trace;

namespace {

// Two kernels queued one behind the other are this far apart at most.
constexpr int64_t kSmallGapNs = 5'000;
// A launch that ended this shortly before the device ran dry had no chance to be queued in time.
constexpr int64_t kLatencyNs = 10'000;
// An operator's own cost between two launches, under the profiler; beyond it the host did something else.
constexpr int64_t kLaunchPauseNs = 200'000;
// Host and device clocks agree to about this.
constexpr int64_t kClockSlackNs = 2'000;
constexpr size_t kLongest = 100;

bool is_synchronising(std::string_view name) {
  return name.find("Synchronize") != std::string_view::npos || name == "cudaMemcpy" || name == "hipMemcpy" ||
         name.starts_with("cuMemcpyDtoH_v2") || name.starts_with("cuMemcpyHtoD_v2");
}

struct HostCall {
  int64_t begin_ns, end_ns;
};

// What the hosts' threads did, for questions about a moment.
class HostCalls {
 public:
  HostCalls(const Trace& trace, const Links& links) : trace_(trace) {
    for (EventIndex i = 0; i < trace.size(); ++i)
      if (trace::is_launch_api(trace.cls(i)) && is_synchronising(trace.name(i)))
        syncs_[trace.thread_of(i).process].push_back({trace.ts_ns(i), trace.end_ns(i)});
    EventIndex last = kNoEvent;
    for (EventIndex work : links.device_work()) {
      const EventIndex launch = links.launch(work);
      if (launch == kNoEvent || launch == last) continue;
      last = launch;
      launches_[trace.thread(launch)].push_back({trace.ts_ns(launch), trace.end_ns(launch)});
    }
    for (auto& [process, calls] : syncs_)
      std::sort(calls.begin(), calls.end(),
                [](const HostCall& a, const HostCall& b) { return a.end_ns < b.end_ns; });
    for (auto& [thread, calls] : launches_)
      std::sort(calls.begin(), calls.end(),
                [](const HostCall& a, const HostCall& b) { return a.begin_ns < b.begin_ns; });
  }

  // A synchronising call that was waiting at `idle_from_ns` and returned before `launch_ns`.
  bool synchronised(EventIndex launch, int64_t idle_from_ns, int64_t launch_ns) const {
    const auto calls = syncs_.find(trace_.thread_of(launch).process);
    if (calls == syncs_.end()) return false;
    for (auto at = std::lower_bound(calls->second.begin(), calls->second.end(), idle_from_ns - kClockSlackNs,
                                    [](const HostCall& c, int64_t t) { return c.end_ns < t; });
         at != calls->second.end() && at->end_ns <= launch_ns; ++at)
      if (at->begin_ns <= idle_from_ns) return true;
    return false;
  }

  // Host time between this launch and the one before it on its thread; −1 when it is the thread's first.
  int64_t pause_before(EventIndex launch) const {
    const std::vector<HostCall>& calls = launches_.at(trace_.thread(launch));
    const auto at = std::lower_bound(calls.begin(), calls.end(), trace_.ts_ns(launch),
                                     [](const HostCall& c, int64_t t) { return c.begin_ns < t; });
    return at == calls.begin() ? -1 : trace_.ts_ns(launch) - (at - 1)->end_ns;
  }

 private:
  const Trace& trace_;
  std::map<uint32_t, std::vector<HostCall>> syncs_;     // by process, sorted by end
  std::map<uint32_t, std::vector<HostCall>> launches_;  // by thread, sorted by begin
};

GapCause cause_of(const Trace& trace, const Links& links, const HostCalls& host, const Gap& gap) {
  const EventIndex launch = links.launch(gap.after);
  if (launch == kNoEvent) return GapCause::kUnlinked;
  const int64_t launch_begin = trace.ts_ns(launch);
  if (launch_begin > gap.begin_ns) {
    if (host.synchronised(launch, gap.begin_ns, launch_begin)) return GapCause::kSync;
    const int64_t pause = host.pause_before(launch);
    return pause >= 0 && pause <= kLaunchPauseNs ? GapCause::kLaunch : GapCause::kHost;
  }
  if (gap.end_ns - gap.begin_ns <= kSmallGapNs) return GapCause::kSmall;
  return trace.end_ns(launch) + kLatencyNs >= gap.begin_ns ? GapCause::kLatency : GapCause::kWaiting;
}

// Sweeps one device's work, which comes in time order.
class Sweep {
 public:
  Sweep(const Trace& trace, const Links& links, const HostCalls& host, int32_t device)
      : trace_(trace), links_(links), host_(host) {
    timeline_.device = device;
  }

  void add(EventIndex work, std::vector<Gap>& gaps) {
    const int64_t begin = trace_.ts_ns(work), end = trace_.end_ns(work);
    if (!started_) {
      if (links_.launch(work) == kNoEvent) return;  // earlier work: what came before it was not recorded
      started_ = true;
      timeline_.begin_ns = busy_until_ = second_until_ = begin;
    }
    if (begin > busy_until_) {
      Gap gap{timeline_.device, busy_until_, begin, GapCause::kUnlinked, last_, work};
      gap.cause = cause_of(trace_, links_, host_, gap);
      timeline_.idle_ns[static_cast<size_t>(gap.cause)] += begin - busy_until_;
      ++timeline_.gaps[static_cast<size_t>(gap.cause)];
      gaps.push_back(gap);
    }
    timeline_.summed_ns += end - begin;
    timeline_.busy_ns += std::max<int64_t>(0, end - std::max(begin, busy_until_));
    timeline_.overlap_ns += std::max<int64_t>(0, std::min(end, busy_until_) - std::max(begin, second_until_));
    if (end > busy_until_) {
      second_until_ = busy_until_;
      busy_until_ = end;
      last_ = work;
    } else {
      second_until_ = std::max(second_until_, end);
    }
    timeline_.end_ns = busy_until_;
  }

  const DeviceTimeline* timeline() const { return started_ ? &timeline_ : nullptr; }

 private:
  const Trace& trace_;
  const Links& links_;
  const HostCalls& host_;
  DeviceTimeline timeline_;
  bool started_ = false;
  int64_t busy_until_ = 0, second_until_ = 0;  // ends of the two longest-running pieces of work so far
  EventIndex last_ = kNoEvent;
};

}  // namespace

std::string_view gap_cause_name(GapCause cause) {
  switch (cause) {
    case GapCause::kSync: return "sync";
    case GapCause::kHost: return "host-wait";
    case GapCause::kLaunch: return "launch-bound";
    case GapCause::kLatency: return "launch-latency";
    case GapCause::kSmall: return "between-kernels";
    case GapCause::kWaiting: return "waiting";
    case GapCause::kUnlinked: return "unlinked";
  }
  return "unlinked";
}

std::string_view gap_cause_meaning(GapCause cause) {
  switch (cause) {
    case GapCause::kSync: return "the host waited for the device, then had to refill its queue";
    case GapCause::kHost: return "more than 200 µs went by on the host between two launches";
    case GapCause::kLaunch: return "the host was launching all the time and could not launch fast enough";
    case GapCause::kLatency: return "the launch was under way when the device ran dry";
    case GapCause::kSmall: return "the usual pause of up to 5 µs between two queued kernels";
    case GapCause::kWaiting:
      return "queued in time but started late: it waited for another queue or an event";
    case GapCause::kUnlinked: return "the next work has no launch record, so the cause cannot be told";
  }
  return "";
}

int64_t DeviceTimeline::idle_total_ns() const {
  return std::accumulate(idle_ns.begin(), idle_ns.end(), Total());
}

GapReport find_gaps(const Trace& trace, const Links& links) {
  GapReport report;
  if (links.device_work().empty()) return report;
  const HostCalls host(trace, links);
  std::map<int32_t, Sweep> sweeps;
  std::vector<Gap> gaps;
  for (EventIndex work : links.device_work()) {
    if (links.link_basis(work) == trace::LinkBasis::kCpu)
      continue;  // ran on the host thread: no queue to run dry
    const int32_t device = trace.queue(work).device;
    sweeps.try_emplace(device, trace, links, host, device).first->second.add(work, gaps);
  }
  for (const auto& [device, sweep] : sweeps)
    if (const DeviceTimeline* timeline = sweep.timeline()) report.devices.push_back(*timeline);
  const size_t keep = std::min(gaps.size(), kLongest);
  std::partial_sort(gaps.begin(), gaps.begin() + static_cast<ptrdiff_t>(keep), gaps.end(),
                    [](const Gap& a, const Gap& b) { return a.end_ns - a.begin_ns > b.end_ns - b.begin_ns; });
  gaps.resize(keep);
  report.longest = std::move(gaps);
  return report;
}

}  // namespace attnscope
