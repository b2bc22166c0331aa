#include "profiler/injection/assemble.h"

#include "cuda/device.h"
#include "profiler/cupti_convert.h"

#include <algorithm>
#include <deque>

namespace attnscope::profiler::spool {
namespace {

cuda::DeviceInfo device_info(const DeviceRecord& r) {
  cuda::DeviceInfo info;
  info.index = r.index;
  info.name = r.name;
  info.major = r.major;
  info.minor = r.minor;
  info.sm_count = r.sm_count;
  info.warp_size = r.warp_size;
  info.max_threads_per_block = r.max_threads_per_block;
  info.max_threads_per_sm = r.max_threads_per_sm;
  info.registers_per_block = r.registers_per_block;
  info.registers_per_sm = r.registers_per_sm;
  info.shared_per_block = r.shared_per_block;
  info.shared_per_block_optin = r.shared_per_block_optin;
  info.shared_per_sm = r.shared_per_sm;
  info.memory_bytes = r.memory_bytes;
  return info;
}

uint64_t last_time(const Content& content) {
  uint64_t last = content.started_ns;
  for (const RangeRecord& r : content.ranges) last = std::max({last, r.begin_ns, r.end_ns});
  for (const KernelRecord& r : content.records.kernels) last = std::max(last, r.end_ns);
  for (const CopyRecord& r : content.records.copies) last = std::max(last, r.end_ns);
  for (const FillRecord& r : content.records.fills) last = std::max(last, r.end_ns);
  for (const ApiRecord& r : content.records.apis) last = std::max(last, r.end_ns);
  return last;
}

// "aten::mm, seq = 3, sizes = [[2, 2]]" → "aten::mm"; empty when the name is no operator's.
std::string_view operator_name(std::string_view name) {
  const std::string_view head = name.substr(0, name.find(','));
  const size_t colons = head.find("::");
  const bool plain =
      colons != std::string_view::npos && colons > 0 && head.find(' ') == std::string_view::npos;
  return plain ? head : std::string_view{};
}

RecordedEvent event_of(const RangeRecord& range, const Content& content, int64_t base, uint64_t last) {
  RecordedEvent e;
  const std::string_view name = content.names.text(range.name);
  const std::string_view op = operator_name(name);
  e.kind = op.empty() ? RecordKind::kRange : RecordKind::kOperator;
  e.name = op.empty() ? name : op;
  e.thread = range.thread;
  e.complete = range.end_ns != 0;
  e.begin_ns = static_cast<int64_t>(range.begin_ns) - base;
  e.end_ns = static_cast<int64_t>(e.complete ? range.end_ns : last) - base;
  return e;
}

// By thread, then begin, outer first; parents by a stack of what is open.
void nest(std::vector<RecordedEvent>& events) {
  std::stable_sort(events.begin(), events.end(), [](const RecordedEvent& a, const RecordedEvent& b) {
    if (a.thread != b.thread) return a.thread < b.thread;
    if (a.begin_ns != b.begin_ns) return a.begin_ns < b.begin_ns;
    return a.end_ns > b.end_ns;
  });
  std::vector<int32_t> open;
  for (size_t i = 0; i < events.size(); ++i) {
    if (i > 0 && events[i].thread != events[i - 1].thread) open.clear();
    while (!open.empty() && events[static_cast<size_t>(open.back())].end_ns < events[i].end_ns)
      open.pop_back();
    events[i].parent = open.empty() ? -1 : open.back();
    open.push_back(static_cast<int32_t>(i));
  }
}

}  // namespace

Recording assemble(const Content& content, const AssembleOptions& options) {
  Recording recording;
  recording.base_ns = static_cast<int64_t>(content.started_ns);
  recording.process = content.process;
  recording.has_device_activity = true;
  const uint64_t last = last_time(content);
  recording.duration_ns = static_cast<int64_t>(last - content.started_ns);
  for (const RangeRecord& range : content.ranges) {
    RecordedEvent e = event_of(range, content, recording.base_ns, last);
    if (!options.step_range.empty() && e.name == options.step_range)
      recording.steps.push_back(
          {static_cast<int64_t>(recording.steps.size()), e.thread, e.begin_ns, e.end_ns});
    else
      recording.events.push_back(std::move(e));
  }
  nest(recording.events);
  std::stable_sort(recording.steps.begin(), recording.steps.end(),
                   [](const RecordedStep& a, const RecordedStep& b) { return a.begin_ns < b.begin_ns; });
  for (size_t i = 0; i < recording.steps.size(); ++i) recording.steps[i].index = static_cast<int64_t>(i);
  std::deque<cuda::DeviceInfo> infos;
  std::vector<const cuda::DeviceInfo*> devices;
  for (const DeviceRecord& r : content.devices) {
    const bool known =
        std::any_of(infos.begin(), infos.end(), [&](const auto& i) { return i.index == r.index; });
    if (known) continue;
    infos.push_back(device_info(r));
    devices.push_back(&infos.back());
  }
  add_activity(content.records, content.names, devices, recording);
  recording.activity_loss.notes = content.notes;
  return recording;
}

}  // namespace attnscope::profiler::spool
