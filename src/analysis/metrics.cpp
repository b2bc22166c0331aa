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
  KernelGrouping(const Trace& trace, const Links& links, Metrics& metrics)
      : trace_(trace), links_(links), metrics_(metrics) {}

  void run() {
    for (EventIndex work : links_.device_work()) add(work);
    for (EventIndex leaf : metrics_.cpu_leaves) add(leaf);
    for (size_t i = 0; i < metrics_.kernels.size(); ++i) {
      metrics_.kernels[i].median_ns = median_of(samples_[i].durations);
      metrics_.kernels[i].median_launch_delay_ns = median_of(samples_[i].delays);
    }
    metrics_.median_kernel_ns = median_of(all_kernels_);
    metrics_.median_launch_delay_ns = median_of(all_delays_);
    std::stable_sort(metrics_.kernels.begin(), metrics_.kernels.end(),
                     [](const KernelGroup& a, const KernelGroup& b) { return a.device_ns > b.device_ns; });
  }

 private:
  void add(EventIndex work) {
    const EventClass cls = trace_.cls(work) == EventClass::kOperator ? EventClass::kKernel : trace_.cls(work);
    const bool leaf = !trace::is_device_work(trace_.cls(work));
    const EventIndex by = leaf ? links_.parent(work) : links_.launched_by(work);
    const bool is_kernel = cls == EventClass::kKernel && !leaf;
    GroupKey key{trace_.name_id(work), by == kNoEvent ? trace::kEmptyString : trace_.name_id(by),
                 is_kernel ? trace_.kernel(work).config : 0, cls};
    const auto [at, fresh] = index_.try_emplace(key, metrics_.kernels.size());
    if (fresh) begin_group(key, work);
    KernelGroup& group = metrics_.kernels[at->second];
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
      group.bytes = bytes < 0 || group.bytes < 0 ? -1 : group.bytes + bytes;
    }
  }

  void begin_group(const GroupKey& key, EventIndex work) {
    KernelGroup group;
    group.name = key.name;
    group.cls = key.cls;
    group.config = key.config;
    group.launched_by = key.launched_by;
    group.first = work;
    group.min_ns = INT64_MAX;
    group.bytes = key.cls == EventClass::kKernel ? -1 : 0;
    metrics_.kernels.push_back(group);
    samples_.emplace_back();
    if (key.cls == EventClass::kKernel && !metrics_.names.contains(key.name))
      metrics_.names.emplace(key.name, metrics_.cpu_only ? decode_operator_name(trace_.text(key.name))
                                                         : decode_kernel_name(trace_.text(key.name)));
  }

  const Trace& trace_;
  const Links& links_;
  Metrics& metrics_;
  std::unordered_map<GroupKey, size_t, GroupKeyHash> index_;
  std::vector<Samples> samples_;
  std::vector<int64_t> all_kernels_, all_delays_;
};

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
  bool operators = false;
  for (EventIndex i = 0; i < trace.size(); ++i) {
    const EventClass cls = trace.cls(i);
    // Launch calls or other device events: the trace saw a device, its work was just not captured.
    if (cls == EventClass::kDeviceOther || (trace::is_launch_api(cls) && starts_device_work(trace.name(i))))
      return false;
    operators |= cls == EventClass::kOperator;
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
  KernelGrouping(trace, links, metrics).run();
  compute_steps(trace, links, metrics);
  metrics.gaps = find_gaps(trace, links);
  metrics.attention_calls = find_attention_calls(trace, links, metrics);
  metrics.attention_groups = group_attention_calls(metrics.attention_calls);
  return metrics;
}

}  // namespace attnscope
