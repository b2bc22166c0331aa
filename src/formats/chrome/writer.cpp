#include "formats/chrome/writer.h"

#include "formats/chrome/strict.h"

#include <fmt/format.h>

#include <iterator>
#include <vector>

namespace attnscope::formats::chrome {
namespace {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoId;
using trace::Trace;

constexpr size_t kFlushBytes = size_t{1} << 20;

class Writer {
 public:
  Writer(const Trace& t, const trace::Links& links, Sink& sink) : t_(t), links_(links), sink_(sink) {}
  Status write();

 private:
  void header();
  void device(const trace::DeviceProperties& d);
  void rows();
  void metadata_event(std::string_view what, const trace::Thread& row, bool of_process, std::string_view key,
                      std::string_view json_value);
  void event(EventIndex i);
  void arguments(EventIndex i);
  void kernel_arguments(EventIndex i);
  void copy_arguments(EventIndex i);
  void work_arguments(EventIndex i);
  void flow(EventIndex i);
  Status flush(bool always);

  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  // Members of the object that is open: with their separator.
  void key(std::string_view name) {
    if (!first_) out_ += ", ";
    first_ = false;
    append_string(name, out_);
    out_ += ": ";
  }
  void member(std::string_view name, std::string_view text) {
    key(name);
    append_string(text, out_);
  }
  void raw_member(std::string_view name, std::string_view json) {
    key(name);
    out_.append(json);
  }
  template <typename T>
  void number(std::string_view name, T value) {
    key(name);
    put("{}", value);
  }
  template <typename T>
  void known(std::string_view name, T value) {  // −1: not recorded
    if (value != T{-1}) number(name, value);
  }
  void id(std::string_view name, uint64_t value) {
    if (value != kNoId) number(name, value);
  }
  void triple(std::string_view name, const std::array<int32_t, 3>& v) {
    if (v[0] < 0) return;
    key(name);
    out_ += '[';
    for (size_t d = 0; d < v.size() && v[d] >= 0; ++d) put("{}{}", d ? ", " : "", v[d]);
    out_ += ']';
  }
  // Nanoseconds as microseconds, exactly.
  void micros(std::string_view name, int64_t ns) {
    key(name);
    const bool negative = ns < 0;
    const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
    put("{}{}", negative ? "-" : "", magnitude / 1000);
    if (magnitude % 1000 != 0) put(".{:03}", magnitude % 1000);
  }
  void row(const trace::Thread& thread, bool whole_process = false) {
    const auto part = [&](std::string_view name, const std::string& text, bool is_number) {
      key(name);
      if (is_number) {
        out_ += text;
      } else {
        append_string(text, out_);
      }
    };
    part("pid", thread.pid, thread.pid_is_number);
    if (whole_process) {
      number("tid", 0);
    } else {
      part("tid", thread.tid, thread.tid_is_number);
    }
  }
  int64_t file_time(EventIndex i) const { return t_.ts_ns(i) + t_.clock().origin_ns; }
  void begin_event() {
    out_ += any_event_ ? ",\n{" : "\n{";
    any_event_ = true;
    first_ = true;
  }

  const Trace& t_;
  const trace::Links& links_;
  Sink& sink_;
  std::string out_;
  bool first_ = true;  // no member of the open object yet
  bool any_event_ = false;
  std::vector<bool> launches_work_;
};

void Writer::device(const trace::DeviceProperties& d) {
  out_ += '{';
  first_ = true;
  known("id", d.id);
  member("name", d.name);
  known("totalGlobalMem", d.total_memory_bytes);
  known("computeMajor", d.compute_major);
  known("computeMinor", d.compute_minor);
  known("maxThreadsPerBlock", d.max_threads_per_block);
  known("maxThreadsPerMultiprocessor", d.max_threads_per_sm);
  known("regsPerBlock", d.regs_per_block);
  known("warpSize", d.warp_size);
  known("sharedMemPerBlock", d.shared_per_block);
  known("numSms", d.num_sms);
  known("regsPerMultiprocessor", d.regs_per_sm);
  known("sharedMemPerBlockOptin", d.shared_per_block_optin);
  known("sharedMemPerMultiprocessor", d.shared_per_sm);
  out_ += '}';
}

void Writer::header() {
  const trace::Metadata& m = t_.metadata();
  out_ += "{\n";
  const auto optional = [&](std::string_view name, const std::optional<int64_t>& v) {
    if (v) number(name, *v);
  };
  const auto text = [&](std::string_view name, const std::string& v) {
    if (!v.empty()) member(name, v);
  };
  optional("schemaVersion", m.schema_version);
  number("attnscope_era", static_cast<int>(t_.era()));
  const bool ours = m.producer.substr(0, 10) == "attnscope ";
  if (!ours) text("attnscope_producer", m.producer);
  if (!t_.devices().empty()) {
    key("deviceProperties");
    out_ += '[';
    for (size_t d = 0; d < t_.devices().size(); ++d) {
      if (d) out_ += ",\n  ";
      device(t_.devices()[d]);
    }
    out_ += ']';
    first_ = false;
  }
  optional("cuda_driver_version", m.cuda_driver_version);
  optional("cuda_runtime_version", m.cuda_runtime_version);
  optional("cupti_version", m.cupti_version);
  optional("hip_driver_version", m.hip_driver_version);
  optional("hip_runtime_version", m.hip_runtime_version);
  const auto flag = [&](std::string_view name, bool v) {
    if (v) number(name, 1);
  };
  flag("record_shapes", m.record_shapes);
  flag("profile_memory", m.profile_memory);
  flag("with_stack", m.with_stack);
  flag("with_flops", m.with_flops);
  flag("with_modules", m.with_modules);
  if (!m.distributed_info.empty()) {
    key("distributedInfo");
    append_strict(m.distributed_info, out_);
  }
  text("trace_id", m.trace_id);
  text("host_name", m.host_name);
  text("traceName", m.trace_name);
  for (const auto& [name, raw] : m.other) {
    key(name);
    append_strict(raw, out_);
  }
  if (ours) member("attnscope", m.producer.substr(10));
  text("displayTimeUnit", m.display_time_unit);
  if (t_.clock().has_file_base) raw_member("baseTimeNanoseconds", t_.clock().file_base_ns);
  out_ += ",\n\"traceEvents\": [";
}

void Writer::metadata_event(std::string_view what, const trace::Thread& thread, bool of_process,
                            std::string_view name, std::string_view json_value) {
  begin_event();
  member("name", what);
  member("ph", "M");
  number("ts", 0);
  row(thread, of_process);
  key("args");
  out_ += '{';
  first_ = true;
  raw_member(name, json_value);
  out_ += "}}";
}

void Writer::rows() {
  std::vector<bool> named;
  const auto quoted = [&](trace::StringId id) {
    std::string s;
    append_string(t_.text(id), s);
    return s;
  };
  for (const trace::Thread& thread : t_.threads()) {
    if (thread.process >= named.size()) named.resize(thread.process + 1);
    if (!named[thread.process]) {
      named[thread.process] = true;
      if (thread.process_name)
        metadata_event("process_name", thread, true, "name", quoted(thread.process_name));
      if (thread.process_labels)
        metadata_event("process_labels", thread, true, "labels", quoted(thread.process_labels));
    }
    if (thread.name) metadata_event("thread_name", thread, false, "name", quoted(thread.name));
    if (thread.sort_index)
      metadata_event("thread_sort_index", thread, false, "sort_index", std::to_string(*thread.sort_index));
  }
}

void Writer::kernel_arguments(EventIndex i) {
  const trace::KernelInfo k = t_.kernel(i);
  const trace::KernelConfig& c = t_.kernel_config(i);
  known("registers per thread", c.registers);
  known("shared memory", c.shared_bytes);
  known("static shared memory", c.static_shared);
  known("dynamic shared memory", c.dynamic_shared);
  known("shared memory opt-in limit", c.shared_optin);
  known("local memory per thread", c.local_per_thread);
  known("blocks per SM", c.blocks_per_sm);
  known("warps per SM", c.warps_per_sm);
  triple("grid", c.grid);
  triple("block", c.block);
  triple("cluster", c.cluster);
  known("est. achieved occupancy %", c.reported_occupancy_pct);
  if (c.reported_active_blocks >= 0 || c.reported_limiter) {
    key("occupancy");
    out_ += '{';
    first_ = true;
    known("activeBlocksPerMultiprocessor", c.reported_active_blocks);
    if (c.reported_limiter) member("limitingFactors", t_.text(c.reported_limiter));
    out_ += '}';
    first_ = false;
  }
  id("graph id", k.graph_id);
  id("graph node id", k.graph_node_id);
}

void Writer::copy_arguments(EventIndex i) {
  const trace::CopyInfo c = t_.copy(i);
  known("bytes", c.bytes);
  if (c.bytes > 0 && t_.dur_ns(i) > 0)
    number("memory bandwidth (GB/s)", static_cast<double>(c.bytes) / static_cast<double>(t_.dur_ns(i)));
  known("fromDevice", c.from_device);
  known("toDevice", c.to_device);
}

void Writer::work_arguments(EventIndex i) {
  const trace::WorkInfo w = t_.work(i);
  known("bytes read", w.bytes_read);
  known("bytes written", w.bytes_written);
  known("flops", w.flops);
}

void Writer::arguments(EventIndex i) {
  switch (t_.cls(i)) {
    case EventClass::kOperator:
    case EventClass::kUserRange:
    case EventClass::kGpuAnnotation: {
      id("External id", t_.external_id(i));
      id("Sequence number", t_.sequence(i));
      id("Fwd thread id", t_.forward_thread(i));
      const trace::OperatorArgs a = t_.operator_args(i);
      const auto inputs = [&](std::string_view name, std::string_view raw) {
        if (raw.empty()) return;
        key(name);
        append_strict(raw, out_);
      };
      inputs("Concrete Inputs", a.concrete_inputs);
      inputs("Input type", a.input_types);
      inputs("Input Strides", a.input_strides);
      inputs("Input Dims", a.input_dims);
      work_arguments(i);
      break;
    }
    case EventClass::kRuntime:
    case EventClass::kDriver:
    case EventClass::kDeviceOther: id("correlation", t_.correlation(i)); break;
    case EventClass::kKernel:
    case EventClass::kMemcpy:
    case EventClass::kMemset: {
      const trace::Queue q = t_.queue(i);
      id("External id", t_.external_id(i));
      known("device", q.device);
      known("context", q.context);
      known("stream", q.stream);
      id("correlation", t_.correlation(i));
      t_.cls(i) == EventClass::kKernel ? kernel_arguments(i) : copy_arguments(i);
      work_arguments(i);
      break;
    }
    case EventClass::kPython: {
      const trace::PythonInfo p = t_.python(i);
      const auto python_id = [&](std::string_view name, uint32_t v) {
        if (v != UINT32_MAX) number(name, v);
      };
      python_id("Python parent id", p.parent_id);
      python_id("Python id", p.id);
      python_id("Python module id", p.module_id);
      break;
    }
    case EventClass::kMemory: {
      const trace::MemoryInfo m = t_.memory(i);
      known("Total Reserved", m.total_reserved);
      known("Total Allocated", m.total_allocated);
      number("Bytes", m.bytes);
      number("Addr", m.address);
      number("Device Id", m.device_id);
      known("Device Type", m.device_type);
      break;
    }
    case EventClass::kSync: {
      const trace::SyncInfo s = t_.sync(i);
      if (s.kind) member("cuda_sync_kind", t_.text(s.kind));
      number("stream", s.stream);
      known("wait_on_stream", s.wait_on_stream);
      known("device", s.device);
      break;
    }
    case EventClass::kCounter: number("value", t_.counter(i)); break;
    default: break;
  }
}

void Writer::event(EventIndex i) {
  const EventClass cls = t_.cls(i);
  const bool instant = cls == EventClass::kInstant || cls == EventClass::kMemory;
  const bool async = cls == EventClass::kAsyncSpan;
  begin_event();
  member("ph", instant ? "i" : async ? "b" : cls == EventClass::kCounter ? "C" : "X");
  if (!t_.category(i).empty()) member("cat", t_.category(i));
  if (instant) member("s", "t");
  if (async) number("id", i);
  member("name", t_.name(i));
  row(t_.thread_of(i));
  micros("ts", file_time(i));
  if (!instant && !async && cls != EventClass::kCounter) micros("dur", t_.dur_ns(i));
  key("args");
  out_ += '{';
  first_ = true;
  arguments(i);
  out_ += "}}";
  if (async) {
    begin_event();
    member("ph", "e");
    if (!t_.category(i).empty()) member("cat", t_.category(i));
    number("id", i);
    member("name", t_.name(i));
    row(t_.thread_of(i));
    micros("ts", file_time(i) + t_.dur_ns(i));
    out_ += '}';
  }
}

// The arrow's start at a launch that has work, its end at the work.
void Writer::flow(EventIndex i) {
  const bool starts = trace::is_launch_api(t_.cls(i)) && launches_work_[i];
  if (!starts && links_.launch(i) == trace::kNoEvent) return;
  begin_event();
  member("ph", starts ? "s" : "f");
  number("id", t_.correlation(i));
  row(t_.thread_of(i));
  micros("ts", file_time(i));
  member("cat", "ac2g");
  member("name", "ac2g");
  if (!starts) member("bp", "e");
  out_ += '}';
}

Status Writer::flush(bool always) {
  if (!always && out_.size() < kFlushBytes) return {};
  ATTNSCOPE_TRY(sink_.write(out_));
  out_.clear();
  return {};
}

Status Writer::write() {
  launches_work_.resize(t_.size());
  for (EventIndex i = 0; i < t_.size(); ++i)
    if (const EventIndex launch = links_.launch(i); launch != trace::kNoEvent) launches_work_[launch] = true;
  header();
  rows();
  for (EventIndex i = 0; i < t_.size(); ++i) {
    event(i);
    flow(i);
    ATTNSCOPE_TRY(flush(false));
  }
  out_ += "\n]}\n";
  return flush(true);
}

}  // namespace

Status write(const Trace& trace, const trace::Links& links, Sink& sink) {
  ATTNSCOPE_TRY(Writer(trace, links, sink).write());
  return sink.finish();
}

Status write_file(const Trace& trace, const trace::Links& links, const std::string& path) {
  ATTNSCOPE_ASSIGN(const std::unique_ptr<Sink> sink, create_file(path));
  return write(trace, links, *sink);
}

Result<std::string> gzip_bytes(const Trace& trace, const trace::Links& links) {
  std::string bytes;
  ATTNSCOPE_TRY(write(trace, links, *append_gzip_to(bytes)));
  return bytes;
}

}  // namespace attnscope::formats::chrome
