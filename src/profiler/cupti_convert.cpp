#include "profiler/cupti_convert.h"

#include "cuda/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

namespace attnscope::profiler {
namespace {

class Converter {
 public:
  Converter(const NameTable& names, std::span<const cuda::DeviceInfo* const> devices, Recording& recording)
      : names_(names), devices_(devices), recording_(recording) {}

  int64_t relative(uint64_t ns) const { return static_cast<int64_t>(ns) - recording_.base_ns; }
  const cuda::DeviceInfo* device(uint32_t index) const {
    const auto at = std::find_if(devices_.begin(), devices_.end(), [index](const cuda::DeviceInfo* d) {
      return d->index == static_cast<int>(index);
    });
    return at == devices_.end() ? nullptr : *at;
  }
  template <typename R>
  DeviceEvent common(const R& r, RecordKind kind) const {
    DeviceEvent e;
    e.kind = kind;
    e.device = static_cast<int>(r.device);
    e.context = static_cast<int>(r.context);
    e.stream = r.stream;
    e.begin_ns = relative(r.begin_ns);
    e.end_ns = relative(r.end_ns);
    e.correlation = r.correlation;
    e.graph_id = r.graph;
    e.graph_node_id = r.graph_node;
    return e;
  }
  DeviceEvent kernel(const KernelRecord& r) const {
    DeviceEvent e = common(r, RecordKind::kKernel);
    e.name = names_.text(r.name);
    e.grid = r.grid;
    e.block = r.block;
    for (size_t i = 0; i < 3; ++i) e.cluster[i] = static_cast<int>(r.cluster[i]);
    e.registers_per_thread = static_cast<int>(r.registers_per_thread);
    e.static_shared_bytes = r.static_shared;
    e.dynamic_shared_bytes = r.dynamic_shared;
    e.shared_bytes = e.static_shared_bytes + e.dynamic_shared_bytes;
    e.shared_executed_bytes = r.shared_executed;
    e.local_bytes_per_thread = r.local_per_thread;
    if (const cuda::DeviceInfo* info = device(r.device))
      e.shared_limit_bytes = r.shared_optin ? info->shared_per_block_optin : info->shared_per_block;
    return e;
  }
  DeviceEvent copy(const CopyRecord& r) const {
    DeviceEvent e = common(r, RecordKind::kCopy);
    e.bytes = static_cast<int64_t>(r.bytes);
    e.copy_kind = copy_kind_text(r.kind);
    e.from_memory = memory_kind_text(r.from);
    e.to_memory = memory_kind_text(r.to);
    e.from_device = r.from_device;
    e.to_device = r.to_device;
    e.name = fmt::format("Memcpy {} ({} -> {})", e.copy_kind, e.from_memory, e.to_memory);
    return e;
  }
  DeviceEvent fill(const FillRecord& r) const {
    DeviceEvent e = common(r, RecordKind::kFill);
    e.bytes = static_cast<int64_t>(r.bytes);
    e.to_memory = memory_kind_text(r.memory);
    e.name = fmt::format("Memset ({})", e.to_memory);
    return e;
  }

 private:
  const NameTable& names_;
  std::span<const cuda::DeviceInfo* const> devices_;
  Recording& recording_;
};

void add_apis(const ActivityRecords& records, const NameTable& names, const Converter& convert,
              Recording& recording) {
  std::unordered_set<uint32_t> of_runtime;
  for (const ApiRecord& r : records.apis)
    if (!r.driver) of_runtime.insert(r.correlation);
  for (const ApiRecord& r : records.apis) {
    if (r.driver && of_runtime.contains(r.correlation)) continue;
    RuntimeEvent e;
    e.name = names.text(r.name);
    e.driver = r.driver;
    e.thread = r.thread;
    e.begin_ns = convert.relative(r.begin_ns);
    e.end_ns = convert.relative(r.end_ns);
    e.correlation = r.correlation;
    recording.runtime_events.push_back(std::move(e));
  }
}

}  // namespace

DeviceProperties properties_of(const cuda::DeviceInfo& info) {
  DeviceProperties p;
  p.id = info.index;
  p.name = info.name;
  p.values = {{"totalGlobalMem", info.memory_bytes},
              {"computeMajor", info.major},
              {"computeMinor", info.minor},
              {"maxThreadsPerBlock", info.max_threads_per_block},
              {"maxThreadsPerMultiprocessor", info.max_threads_per_sm},
              {"regsPerBlock", info.registers_per_block},
              {"regsPerMultiprocessor", info.registers_per_sm},
              {"warpSize", info.warp_size},
              {"sharedMemPerBlock", info.shared_per_block},
              {"sharedMemPerBlockOptin", info.shared_per_block_optin},
              {"sharedMemPerMultiprocessor", info.shared_per_sm},
              {"numSms", info.sm_count}};
  return p;
}

void add_activity(const ActivityRecords& records, const NameTable& names,
                  std::span<const cuda::DeviceInfo* const> devices, Recording& recording) {
  const Converter convert(names, devices, recording);
  for (const cuda::DeviceInfo* info : devices) recording.devices.push_back(properties_of(*info));
  for (const KernelRecord& r : records.kernels) recording.device_events.push_back(convert.kernel(r));
  for (const CopyRecord& r : records.copies) recording.device_events.push_back(convert.copy(r));
  for (const FillRecord& r : records.fills) recording.device_events.push_back(convert.fill(r));
  std::stable_sort(recording.device_events.begin(), recording.device_events.end(),
                   [](const DeviceEvent& a, const DeviceEvent& b) { return a.begin_ns < b.begin_ns; });
  add_apis(records, names, convert, recording);
  for (const SyncRecord& r : records.syncs)
    recording.sync_events.push_back({std::string(sync_type_text(r.type)), r.context, r.stream,
                                     convert.relative(r.begin_ns), convert.relative(r.end_ns),
                                     r.correlation});
  for (const OverheadRecord& r : records.overheads)
    recording.overhead_events.push_back(
        {std::string(overhead_kind_text(r.kind)), convert.relative(r.begin_ns), convert.relative(r.end_ns)});
  ActivityLoss& loss = recording.activity_loss;
  loss.dropped_records += static_cast<int64_t>(records.loss.dropped);
  loss.lost_buffers += static_cast<int64_t>(records.loss.lost_buffers + records.loss.broken_buffers);
  loss.unknown_records += static_cast<int64_t>(records.loss.unknown);
  loss.malformed_records += static_cast<int64_t>(records.loss.malformed);
}

}  // namespace attnscope::profiler
