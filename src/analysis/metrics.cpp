#include "analysis/metrics.h"

#include "analysis/ranges.h"
#include "analysis/steps.h"

#include <algorithm>
#include <tuple>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;
using trace::Links;
using trace::StringId;
using trace::Trace;

namespace {

struct GroupKey {
  StringId name, launched_by;
  uint32_t config;
  EventClass cls;
  bool operator==(const GroupKey&) const = default;
};
struct GroupKeyHash {
  size_t operator()(const GroupKey& key) const {
    uint64_t h = key.name;
    for (uint64_t part : {uint64_t{key.launched_by}, uint64_t{key.config}, static_cast<uint64_t>(key.cls)})
      h = (h ^ part) * 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(h ^ (h >> 29));
  }
};

// What grouping needs besides the group itself.
struct Samples {
  std::vector<int64_t> durations, delays;
};

class KernelGrouping {
 public:
  KernelGrouping(const Trace& trace, const Links& links) : trace_(trace), links_(links) {}

  // The groups, longest first.
  std::vector<KernelGroup> finish() {
    for (size_t i = 0; i < groups_.size(); ++i) {
      groups_[i].median_ns = median_of(samples_[i].durations);
      groups_[i].median_launch_delay_ns = median_of(samples_[i].delays);
    }
    std::stable_sort(groups_.begin(), groups_.end(),
                     [](const KernelGroup& a, const KernelGroup& b) { return a.device_ns > b.device_ns; });
    return std::move(groups_);
  }
  int64_t median_kernel_ns() { return median_of(all_kernels_); }
  int64_t median_launch_delay_ns() { return median_of(all_delays_); }

  void add(EventIndex work) {
    const EventClass cls = trace_.cls(work) == EventClass::kOperator ? EventClass::kKernel : trace_.cls(work);
    const bool leaf = !trace::is_device_work(trace_.cls(work));
    const EventIndex by = leaf ? links_.parent(work) : links_.launched_by(work);
    const bool is_kernel = cls == EventClass::kKernel && !leaf;
    GroupKey key{trace_.name_id(work), by == kNoEvent ? trace::kEmptyString : trace_.name_id(by),
                 is_kernel ? trace_.kernel(work).config : 0, cls};
    const auto [at, fresh] = index_.try_emplace(key, groups_.size());
    if (fresh) begin_group(key, work);
    KernelGroup& group = groups_[at->second];
    Samples& samples = samples_[at->second];
    const int64_t dur = trace_.dur_ns(work);
    ++group.count;
    group.device_ns += dur;
    group.min_ns = std::min(group.min_ns, dur);
    group.max_ns = std::max(group.max_ns, dur);
    samples.durations.push_back(dur);
    if (cls == EventClass::kKernel) all_kernels_.push_back(dur);
    if (!leaf) {
      const trace::DeviceLink link = links_.device_link(work);
      group.confidence = fresh ? link.confidence : std::min(group.confidence, link.confidence);
      if (fresh) group.basis = link.basis;
      // Some device work starts inside its launch call, and clocks differ by a little: counted from the
      // call's begin, and never negative.
      if (link.launch != kNoEvent) {
        const int64_t delay = std::max<int64_t>(0, trace_.ts_ns(work) - trace_.ts_ns(link.launch));
        samples.delays.push_back(delay);
        if (is_kernel) all_delays_.push_back(delay);
      }
    }
    if (!is_kernel && !leaf) {
      const int64_t bytes = trace_.copy(work).bytes;
      group.bytes = bytes < 0 || group.bytes < 0 ? Total(-1) : group.bytes + bytes;
    }
  }

 private:
  void begin_group(const GroupKey& key, EventIndex work) {
    KernelGroup group;
    group.name = key.name;
    group.cls = key.cls;
    group.config = key.config;
    group.launched_by = key.launched_by;
    group.first = work;
    group.min_ns = INT64_MAX;
    group.bytes = key.cls == EventClass::kKernel ? -1 : 0;
    groups_.push_back(group);
    samples_.emplace_back();
  }

  const Trace& trace_;
  const Links& links_;
  std::vector<KernelGroup> groups_;
  std::unordered_map<GroupKey, size_t, GroupKeyHash> index_;
  std::vector<Samples> samples_;
  std::vector<int64_t> all_kernels_, all_delays_;
};

void group_kernels(const Trace& trace, const Links& links, Metrics& metrics) {
  KernelGrouping grouping(trace, links);
  for (EventIndex work : links.device_work()) grouping.add(work);
  for (EventIndex leaf : metrics.cpu_leaves) grouping.add(leaf);
  metrics.median_kernel_ns = grouping.median_kernel_ns();
  metrics.median_launch_delay_ns = grouping.median_launch_delay_ns();
  metrics.kernels = grouping.finish();
  for (const KernelGroup& group : metrics.kernels)
    if (group.cls == EventClass::kKernel && !metrics.names.contains(group.name))
      metrics.names.emplace(group.name, trace::is_device_work(trace.cls(group.first)) && !metrics.cpu_only
                                            ? decode_kernel_name(trace.text(group.name))
                                            : decode_operator_name(trace.text(group.name)));
}

void compute_totals(const Trace& trace, const Links& links, Metrics& metrics) {
  for (EventIndex work : links.device_work()) {
    add_work(metrics.total, trace.cls(work), trace.dur_ns(work));
    if (trace.cls(work) != EventClass::kMemcpy) continue;
    const trace::CopyInfo copy = trace.copy(work);
    CopyTotals& kind = metrics.copies_by_kind[static_cast<size_t>(copy.kind)];
    ++kind.count;
    kind.bytes += std::max<int64_t>(0, copy.bytes);
    kind.device_ns += trace.dur_ns(work);
  }
}

// cudaLaunchKernel, hipModuleLaunchKernel, cudaMemcpyAsync, cuMemsetD32Async …, not cudaDeviceSynchronize.
bool starts_device_work(std::string_view call) {
  for (std::string_view part : {"aunch", "Memcpy", "Memset"})
    if (call.find(part) != std::string_view::npos) return true;
  return false;
}

bool is_cpu_only(const Trace& trace, const Links& links) {
  if (!links.device_work().empty()) return false;
  // A file that describes a device and was cut lost the device's events.
  if (trace.truncated() && !trace.devices().empty()) return false;
  bool operators = false;
  for (EventIndex i = 0; i < trace.size(); ++i) {
    const EventClass cls = trace.cls(i);
    // Launch calls or other device events: the trace saw a device, its work was just not captured.
    if (cls == EventClass::kDeviceOther || (trace::is_launch_api(cls) && starts_device_work(trace.name(i))))
      return false;
    if (cls != EventClass::kOperator) continue;
    operators = true;
    // An operator of a device's library: a profiler of the host alone looked at a program that used a device.
    for (std::string_view library : {"cudnn", "miopen", "cuda_"})
      if (trace.name(i).find(library) != std::string_view::npos) return false;
  }
  return operators;
}

}  // namespace

const KernelName& Metrics::decoded(StringId name) const {
  static const KernelName kNothing;
  const auto at = names.find(name);
  return at == names.end() ? kNothing : at->second;
}

const RangeStats* Metrics::range(std::string_view name) const {
  const StringId id = trace->find_text(name);
  const auto at = id == trace::kEmptyString ? range_index.end() : range_index.find(id);
  return at == range_index.end() ? nullptr : &ranges[at->second];
}

std::vector<KernelGroup> kernels_inside(const Metrics& metrics, StringId range) {
  const Trace& trace = *metrics.trace;
  const Links& links = *metrics.links;
  // Calls by process, overlaps merged; work counts where it was launched.
  struct Call {
    uint32_t process;
    int64_t begin_ns, end_ns;
  };
  std::vector<Call> calls;
  for (uint32_t thread = 0; thread < trace.threads().size(); ++thread)
    for (EventIndex event : links.preorder(thread))
      if (trace.name_id(event) == range)
        calls.push_back({trace.thread_of(event).process, trace.ts_ns(event), trace.end_ns(event)});
  std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
    return std::tuple(a.process, a.begin_ns, -a.end_ns) < std::tuple(b.process, b.begin_ns, -b.end_ns);
  });
  size_t kept = 0;
  for (const Call& call : calls) {
    if (kept > 0 && calls[kept - 1].process == call.process && call.begin_ns <= calls[kept - 1].end_ns)
      calls[kept - 1].end_ns = std::max(calls[kept - 1].end_ns, call.end_ns);
    else
      calls[kept++] = call;
  }
  calls.resize(kept);
  const auto inside = [&](EventIndex host) {
    const std::pair at(trace.thread_of(host).process, trace.ts_ns(host));
    const auto after = std::upper_bound(calls.begin(), calls.end(), at, [](const auto& t, const Call& c) {
      return t < std::pair(c.process, c.begin_ns);
    });
    return after != calls.begin() && (after - 1)->process == at.first && at.second <= (after - 1)->end_ns;
  };
  KernelGrouping grouping(trace, links);
  for (EventIndex work : links.device_work())
    if (const EventIndex launch = links.launch_point(work); launch != kNoEvent && inside(launch))
      grouping.add(work);
  for (EventIndex leaf : metrics.cpu_leaves)
    if (inside(leaf)) grouping.add(leaf);
  return grouping.finish();
}

Metrics compute_metrics(const Trace& trace, const Links& links) {
  Metrics metrics;
  metrics.trace = &trace;
  metrics.links = &links;
  metrics.cpu_only = is_cpu_only(trace, links);
  compute_totals(trace, links, metrics);
  compute_ranges(trace, links, metrics);
  metrics.launches = LaunchedWork(trace, links).launches().size();
  if (metrics.cpu_only)
    for (EventIndex leaf : metrics.cpu_leaves)
      add_work(metrics.total, EventClass::kKernel, trace.dur_ns(leaf));
  group_kernels(trace, links, metrics);
  compute_steps(trace, links, metrics);
  metrics.gaps = find_gaps(trace, links);
  metrics.attention_calls = find_attention_calls(trace, links, metrics);
  metrics.attention_groups = group_attention_calls(metrics.attention_calls);
  return metrics;
}

}  // namespace attnscope
