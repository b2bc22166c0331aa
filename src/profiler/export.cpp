#include "profiler/export.h"

#include "trace/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

namespace attnscope::profiler {
namespace {

// Kineto's names of element types.
std::string_view kineto_type(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "double";
    case DType::kF32: return "float";
    case DType::kF16: return "c10::Half";
    case DType::kBF16: return "c10::BFloat16";
    case DType::kBool: return "bool";
    case DType::kI32: return "int";
    case DType::kI64: return "long int";
  }
  return "";
}

std::string int_list(const std::array<int64_t, 4>& values, int rank) {
  return fmt::format("[{}]", fmt::join(values.begin(), values.begin() + rank, ", "));
}

trace::EventClass class_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kRange: return trace::EventClass::kUserRange;
    case RecordKind::kOperator:
    case RecordKind::kRuntime: return trace::EventClass::kOperator;
    case RecordKind::kKernel: return trace::EventClass::kKernel;
    case RecordKind::kCopy: return trace::EventClass::kMemcpy;
    case RecordKind::kFill: return trace::EventClass::kMemset;
    case RecordKind::kAllocation:
    case RecordKind::kFree: return trace::EventClass::kMemory;
  }
  return trace::EventClass::kOther;
}

// "Memcpy DtoD (Device -> Device)", "Memset (Device)": Kineto's names, from which readers take the kinds.
std::string transfer_name(const DeviceEvent& event) {
  if (event.kind == RecordKind::kFill)
    return event.to_memory.empty() ? "Memset" : fmt::format("Memset ({})", event.to_memory);
  if (event.copy_kind.empty()) return event.name;
  if (event.from_memory.empty() || event.to_memory.empty()) return fmt::format("Memcpy {}", event.copy_kind);
  return fmt::format("Memcpy {} ({} -> {})", event.copy_kind, event.from_memory, event.to_memory);
}

// Work that ran inline on a host thread has categories of its own; a viewer that does not know them shows
// spans of that thread.
std::string_view inline_category(trace::EventClass cls) {
  switch (cls) {
    case trace::EventClass::kKernel: return "cpu_kernel";
    case trace::EventClass::kMemcpy: return "cpu_copy";
    case trace::EventClass::kMemset: return "cpu_fill";
    default: return "";  // the class's usual one
  }
}

class Exporter {
 public:
  Exporter(const Recording& recording, const ExportOptions& options) : recording_(recording) {
    trace::Metadata& metadata = builder_.metadata();
    metadata.producer = options.producer;
    metadata.trace_name = options.trace_name;
    metadata.schema_version = 1;
    metadata.record_shapes = recording.record_shapes;
    metadata.profile_memory = true;
    metadata.display_time_unit = "ms";
    builder_.clock().file_base_ns = fmt::format("{}", recording.base_ns);
    builder_.clock().has_file_base = true;
    builder_.set_era(trace::Era::kAttnscope);
  }

  trace::Trace run() {
    for (const DeviceProperties& device : recording_.devices) add_device(device);
    add_host_events();
    for (const RuntimeEvent& event : recording_.runtime_events) add_runtime(event);
    for (const DeviceEvent& event : recording_.device_events) add_device_event(event);
    for (const DeviceEvent& event : recording_.device_events)
      device_of_context_.try_emplace(event.context, event.device);
    for (const SyncEvent& event : recording_.sync_events) add_sync(event);
    for (const OverheadEvent& event : recording_.overhead_events) add_overhead(event);
    return builder_.finish();
  }

 private:
  void add(const trace::EventInput& event) {
    builder_.add(event);
    if (event.cls != trace::EventClass::kMemory) ++builder_.totals().complete_events;
  }
  uint32_t host_thread(uint64_t thread) {
    const auto [at, fresh] = threads_.try_emplace(thread, 0u);
    if (fresh) {
      at->second = builder_.thread(static_cast<int64_t>(recording_.process), static_cast<int64_t>(thread));
      builder_.name_thread(at->second, fmt::format("thread {}", thread));
    }
    return at->second;
  }

  void add_host_events();
  void add_step(const RecordedStep& step);
  void add_event(const RecordedEvent& event);
  void add_runtime(const RuntimeEvent& event);
  void add_device_event(const DeviceEvent& event);
  void add_sync(const SyncEvent& event);
  void add_overhead(const OverheadEvent& event);
  void add_device(const DeviceProperties& device);

  const Recording& recording_;
  trace::TraceBuilder builder_;
  std::map<uint64_t, uint32_t> threads_;
  std::map<int64_t, int> device_of_context_;  // waits name their context only
  int64_t allocated_ = 0;                     // running total at the event being added
};

// In time order, so that the running total of allocated bytes is right across threads; steps come before
// what they hold, and Recording's own order keeps outer events before inner ones.
void Exporter::add_host_events() {
  std::vector<size_t> order(recording_.events.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return recording_.events[a].begin_ns < recording_.events[b].begin_ns;
  });
  size_t next_step = 0;
  for (const size_t i : order) {
    const RecordedEvent& event = recording_.events[i];
    while (next_step < recording_.steps.size() && recording_.steps[next_step].begin_ns <= event.begin_ns)
      add_step(recording_.steps[next_step++]);
    add_event(event);
  }
  while (next_step < recording_.steps.size()) add_step(recording_.steps[next_step++]);
}

void Exporter::add_step(const RecordedStep& step) {
  trace::EventInput input;
  input.cls = trace::EventClass::kUserRange;
  input.name = builder_.intern(fmt::format("ProfilerStep#{}", step.index));
  input.ts_ns = step.begin_ns;
  input.dur_ns = step.end_ns - step.begin_ns;
  input.thread = host_thread(step.thread);
  add(input);
}

void Exporter::add_event(const RecordedEvent& event) {
  trace::EventInput input;
  input.cls = class_of(event.kind);
  if (recording_.has_device_activity && trace::is_device_work(input.cls))
    input.cls = trace::EventClass::kOperator;  // the launch; the work itself is a device event
  input.ts_ns = event.begin_ns;
  input.dur_ns = event.end_ns - event.begin_ns;
  input.thread = host_thread(event.thread);
  if (input.cls == trace::EventClass::kMemory) {
    const int64_t bytes = event.kind == RecordKind::kFree ? -event.bytes_written : event.bytes_written;
    allocated_ += bytes;
    trace::MemoryInfo memory;
    memory.address = event.address;
    memory.bytes = bytes;
    memory.total_allocated = allocated_;
    memory.device_type = 0;
    memory.device_id = -1;
    input.name = builder_.intern("[memory]");
    input.memory = &memory;
    add(input);
    return;
  }
  input.name = builder_.intern(event.name);
  input.category = builder_.intern(inline_category(input.cls));
  if (input.cls == trace::EventClass::kMemcpy || input.cls == trace::EventClass::kMemset)
    input.bytes = event.bytes_written;
  input.work = {event.bytes_read, event.bytes_written, event.flops};
  if (!event.inputs.empty()) input.operator_args = builder_.intern(kineto_input_args(event.inputs));
  add(input);
}

void Exporter::add_runtime(const RuntimeEvent& event) {
  trace::EventInput input;
  input.cls = event.driver ? trace::EventClass::kDriver : trace::EventClass::kRuntime;
  input.name = builder_.intern(event.name);
  input.ts_ns = event.begin_ns;
  input.dur_ns = event.end_ns - event.begin_ns;
  input.thread = host_thread(event.thread);
  input.correlation = event.correlation;
  add(input);
}

void Exporter::add_device_event(const DeviceEvent& event) {
  trace::EventInput input;
  input.cls = class_of(event.kind);
  input.name = builder_.intern(event.name);
  input.ts_ns = event.begin_ns;
  input.dur_ns = event.end_ns - event.begin_ns;
  input.thread = builder_.thread(event.device, event.stream);
  input.correlation = event.correlation;
  input.queue = {event.device, event.context, event.stream};
  trace::KernelConfig config;
  if (input.cls == trace::EventClass::kKernel) {
    config.registers = event.registers_per_thread;
    config.shared_bytes = event.shared_bytes;
    config.static_shared = event.static_shared_bytes;
    config.dynamic_shared = event.dynamic_shared_bytes;
    config.shared_optin = event.shared_limit_bytes;
    config.local_per_thread = event.local_bytes_per_thread;
    config.grid = event.grid;
    config.block = event.block;
    config.cluster = event.cluster;
    input.config = &config;
    if (event.graph_id != 0) input.graph_id = event.graph_id;
    if (event.graph_id != 0) input.graph_node_id = event.graph_node_id;
  } else {
    input.name = builder_.intern(transfer_name(event));
    input.bytes = event.bytes;
    input.from_device = event.from_device;
    input.to_device = event.to_device;
  }
  add(input);
}

void Exporter::add_sync(const SyncEvent& event) {
  trace::SyncInfo sync;
  sync.kind = builder_.intern(event.name);
  sync.stream = event.stream;
  trace::EventInput input;
  input.cls = trace::EventClass::kSync;
  input.name = sync.kind;
  input.ts_ns = event.begin_ns;
  input.dur_ns = event.end_ns - event.begin_ns;
  const auto device = device_of_context_.find(event.context);
  input.thread = builder_.thread(device == device_of_context_.end() ? 0 : device->second, event.stream);
  input.correlation = event.correlation;
  input.sync = &sync;
  add(input);
}

void Exporter::add_overhead(const OverheadEvent& event) {
  trace::EventInput input;
  input.cls = trace::EventClass::kOverhead;
  input.name = builder_.intern(event.name);
  input.ts_ns = event.begin_ns;
  input.dur_ns = event.end_ns - event.begin_ns;
  input.thread = builder_.thread(-1, 0);  // Kineto's row for overhead
  add(input);
}

void Exporter::add_device(const DeviceProperties& device) {
  trace::DeviceProperties out;
  out.id = device.id;
  out.name = device.name;
  const auto value = [&](std::string_view name, int64_t missing = -1) {
    const auto at = std::find_if(device.values.begin(), device.values.end(),
                                 [name](const auto& pair) { return pair.first == name; });
    return at == device.values.end() ? missing : at->second;
  };
  out.total_memory_bytes = value("totalGlobalMem");
  out.compute_major = static_cast<int>(value("computeMajor"));
  out.compute_minor = static_cast<int>(value("computeMinor"));
  out.max_threads_per_block = value("maxThreadsPerBlock");
  out.max_threads_per_sm = value("maxThreadsPerMultiprocessor");
  out.regs_per_block = value("regsPerBlock");
  out.regs_per_sm = value("regsPerMultiprocessor");
  out.warp_size = value("warpSize");
  out.shared_per_block = value("sharedMemPerBlock");
  out.shared_per_block_optin = value("sharedMemPerBlockOptin");
  out.shared_per_sm = value("sharedMemPerMultiprocessor");
  out.num_sms = value("numSms");
  builder_.add_device(out);
}

}  // namespace

std::string kineto_input_args(const std::vector<RecordedInput>& inputs) {
  std::vector<std::string> dims, strides, types;
  for (const RecordedInput& input : inputs) {
    dims.push_back(int_list(input.sizes, input.rank));
    strides.push_back(int_list(input.strides, input.rank));
    types.push_back(fmt::format("\"{}\"", kineto_type(input.dtype)));
  }
  return fmt::format(R"("Input Dims": [{}], "Input Strides": [{}], "Input type": [{}])",
                     fmt::join(dims, ", "), fmt::join(strides, ", "), fmt::join(types, ", "));
}

trace::Trace to_trace(const Recording& recording, const ExportOptions& options) {
  return Exporter(recording, options).run();
}

}  // namespace attnscope::profiler
