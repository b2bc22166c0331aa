#include "report/json/explain_json.h"

#include "analysis/occupancy.h"
#include "report/json/json_out.h"

#include <fmt/format.h>

namespace attnscope::report {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;
using trace::Trace;
using trace::WorkSum;

namespace {

Json work_json(const WorkSum& work) {
  return {{"kernels", work.kernels},
          {"copies", work.copies},
          {"fills", work.fills},
          {"device_us", microseconds(work.device_ns)}};
}

Json copies_json(const Metrics& metrics) {
  Json copies = Json::object();
  uint64_t total = 0;
  Total bytes;
  static constexpr const char* kNames[] = {"unknown", "htod", "dtoh", "dtod", "htoh", "peer", "array"};
  for (size_t kind = 0; kind < metrics.copies_by_kind.size(); ++kind) {
    const CopyTotals& copy = metrics.copies_by_kind[kind];
    copies[kNames[kind]] = copy.count;
    total += copy.count;
    bytes += copy.bytes;
  }
  copies["total"] = total;
  copies["bytes"] = bytes;
  return copies;
}

Json unlinked_json(const WorkSum& unlinked) {
  Json out = Json::object();
  if (unlinked.kernels > 0) out["kernels"] = unlinked.kernels;
  if (unlinked.copies > 0) out["copies"] = unlinked.copies;
  if (unlinked.fills > 0) out["fills"] = unlinked.fills;
  return out;
}

// Names of the devices with work; when no device has any, of those that the header describes.
void put_devices(Json& out, const Trace& trace) {
  bool any = false;
  for (const trace::DeviceProperties& device : trace.devices()) any |= device.has_events;
  Json names = Json::array(), details = Json::array();
  for (const trace::DeviceProperties& device : trace.devices()) {
    if (any && !device.has_events) continue;
    names.push_back(device.name);
    Json entry = {{"id", device.id}, {"name", device.name}, {"has_events", device.has_events}};
    put_count(entry, "multiprocessors", device.num_sms, "not-recorded");
    put_count(entry, "memory_bytes", device.total_memory_bytes, "not-recorded");
    put_text(entry, "compute_capability",
             device.compute_major > 0 ? fmt::format("{}.{}", device.compute_major, device.compute_minor) : "",
             "not-recorded");
    const std::optional<DevicePeaks> peaks = known_peaks(device);
    put(entry, "peak_tflops_16bit", peaks ? std::optional(peaks->tensor_16bit / 1e12) : std::nullopt,
        "device-not-in-table");
    put(entry, "peak_bytes_per_s", peaks ? std::optional(peaks->memory) : std::nullopt,
        "device-not-in-table");
    details.push_back(std::move(entry));
  }
  out["devices"] = std::move(names);
  out["device_details"] = std::move(details);
}

Json trace_json(const ExplainModel& model) {
  const Trace& trace = *model.trace;
  Json out;
  out["source"] = model.source;
  put_text(out, "producer", trace.metadata().producer, "not-recorded");
  out["era"] = trace::era_text(trace.era());
  out["events"] = trace.totals().events;
  out["complete_events"] = trace.totals().complete_events;
  out["kernels"] = trace.totals().kernels;
  out["copies"] = copies_json(*model.metrics);
  out["fills"] = trace.totals().fills;
  out["unlinked"] = unlinked_json(model.links->unlinked_sum());
  put_devices(out, trace);
  out["base_ns"] = trace.clock().base_ns();
  out["truncated"] = trace.truncated();
  out["rank"] = trace.metadata().rank ? Json(*trace.metadata().rank) : Json(nullptr);
  if (!trace.metadata().rank) out["rank_reason"] = "not-recorded";
  // What counts as a kernel in ranges, steps and kernels below.
  out["work_basis"] = model.metrics->cpu_only ? "leaf-operators" : "device-events";
  out["device_us"] = microseconds(model.metrics->total.device_ns);
  put_time(out, "median_kernel_us", model.metrics->median_kernel_ns, "no-kernels");
  put_time(out, "median_launch_delay_us", model.metrics->median_launch_delay_ns, "no-linked-kernels");
  return out;
}

Json steps_json(const Metrics& metrics) {
  Json steps = Json::array();
  for (const StepStats& step : metrics.steps) {
    Json entry = {{"number", step.number},
                  {"begin_ns", step.begin_ns},
                  {"host_us", microseconds(step.end_ns - step.begin_ns)},
                  {"launches", step.launches}};
    entry.update(work_json(step.work));
    const bool worked = step.device_end_ns > step.device_begin_ns;
    put_time(entry, "device_span_us", worked ? step.device_end_ns - step.device_begin_ns : -1,
             "no-device-work");
    put_time(entry, "device_busy_us", worked ? step.device_busy_ns : Total(-1), "no-device-work");
    steps.push_back(std::move(entry));
  }
  return steps;
}

const char* range_kind(EventClass cls) {
  switch (cls) {
    case EventClass::kOperator: return "operator";
    case EventClass::kUserRange: return "user";
    case EventClass::kRuntime:
    case EventClass::kDriver: return "launch-call";
    case EventClass::kPython: return "python";
    default: return "span";
  }
}

Json ranges_json(const ExplainModel& model) {
  const Trace& trace = *model.trace;
  Json ranges = Json::array();
  for (const RangeStats& range : model.metrics->ranges) {
    if (range.cls == EventClass::kPython) continue;  // every Python frame is a span: not what was asked for
    const trace::Thread& thread = trace.threads()[range.thread];
    Json entry = {{"name", trace.text(range.name)},
                  {"kind", range_kind(range.cls)},
                  {"thread", fmt::format("{}/{}", thread.pid, thread.tid)},
                  {"threads", range.thread_count}};
    put_text(entry, "parent", trace.text(range.parent), "top-level");
    entry["calls"] = range.calls;
    entry["events"] = range.events;
    entry["host_us"] = microseconds(range.host_ns);
    entry["self_host_us"] = microseconds(range.self_host_ns);
    entry["median_host_us"] = microseconds(std::max<int64_t>(0, range.median_host_ns));
    entry["own_thread"] = work_json(range.own_thread);
    entry["process"] = work_json(range.process);
    entry["self"] = work_json(range.self);
    put_time(entry, "median_device_us", range.median_device_ns, "not-computed-for-launch-calls");
    if (range.median_host_ns < 0) {
      entry["median_host_us"] = nullptr;
      entry["median_host_us_reason"] = "not-computed-for-launch-calls";
    }
    ranges.push_back(std::move(entry));
  }
  return ranges;
}

Json attention_json(const ExplainModel& model) {
  Json out = Json::array();
  for (const AttentionSummary& line : model.attention) {
    const AttentionGroup& group = model.metrics->attention_groups[line.group];
    const AttentionCall& call = model.metrics->attention_calls[group.calls.front()];
    Json entry = {{"op", call.op}};
    put_text(entry, "implementation",
             call.implementation == AttentionImpl::kNone ? "" : implementation_name(call.implementation),
             "no-kernel-recorded");
    entry["pass"] = pass_name(call.pass);
    entry["calls"] = line.calls;
    entry["kernels"] = group.kernels;
    entry["kernels_per_call"] = call.kernels;
    entry["copies_per_call"] = call.copies;
    entry["fills_per_call"] = call.fills;
    const bool worked = group.device_ns > 0;
    put_time(entry, "device_us", worked ? group.device_ns : Total(-1), "no-device-work-recorded");
    put_time(entry, "median_device_us", worked ? group.median_device_ns : -1, "no-device-work-recorded");
    put_text(entry, "dtype", call.dtype == NumericType::kUnknown ? "" : numeric_name(call.dtype),
             "not-recorded");
    const AttentionShape& s = call.shape;
    put(entry, "shape",
        s.known() ? std::optional(std::vector{s.batch, s.heads, s.length, s.head_dim}) : std::nullopt,
        "shapes-not-recorded");
    put(entry, "kv_shape",
        s.known() ? std::optional(std::vector{s.batch, s.kv_heads, s.kv_length, s.value_dim}) : std::nullopt,
        "shapes-not-recorded");
    put_text(entry, "mask", call.mask == MaskUse::kUnknown ? "" : mask_name(call.mask),
             "inputs-not-recorded");
    const char* no_work = !s.known()                     ? "shapes-not-recorded"
                          : call.mask == MaskUse::kBlock ? "block-mask"
                                                         : "mask-not-recorded";
    put(entry, "flops", call.flops, no_work);
    put(entry, "bytes", call.bytes, s.known() ? "dtype-not-recorded" : "shapes-not-recorded");
    const bool rate = line.roofline && call.flops && line.roofline->flops_per_s > 0;
    put(entry, "tflops", rate ? std::optional(line.roofline->flops_per_s / 1e12) : std::nullopt,
        worked ? no_work : "no-device-work-recorded");
    const bool bounded = line.roofline && line.roofline->fraction > 0;
    const char* no_roof = line.device_peaks.empty() ? "device-not-in-table" : no_work;
    put(entry, "roofline_fraction", bounded ? std::optional(line.roofline->fraction) : std::nullopt, no_roof);
    put(entry, "roofline_us", bounded ? std::optional(line.roofline->least_us) : std::nullopt, no_roof);
    put_text(entry, "bound",
             bounded && line.roofline->bound != Bound::kUnknown ? bound_name(line.roofline->bound) : "",
             no_roof);
    entry["hand_written"] = call.hand_written;
    out.push_back(std::move(entry));
  }
  return out;
}

const char* tensor_core_text(Tristate state) {
  return state == Tristate::kYes ? "yes" : state == Tristate::kNo ? "no" : "unknown";
}

void put_kernel_shape(Json& entry, const Trace& trace, const KernelGroup& group) {
  const trace::KernelConfig& config = trace.kernel_configs()[group.config];
  const auto dims = [](const std::array<int32_t, 3>& d) {
    return d[0] < 0 ? std::nullopt : std::optional(std::vector<int32_t>(d.begin(), d.end()));
  };
  put(entry, "grid", dims(config.grid), "not-recorded");
  put(entry, "block", dims(config.block), "not-recorded");
  put_count(entry, "registers", config.registers, "not-recorded");
  put_count(entry, "shared_bytes", config.shared_bytes, "not-recorded");
  const trace::DeviceProperties* device = trace.device(trace.kernel(group.first).queue.device);
  const std::optional<BlockDemand> demand = block_demand(config);
  const std::optional<SmLimits> limits = device ? sm_limits(*device) : std::nullopt;
  std::optional<double> percent;
  std::string limiter;
  if (demand && limits) {
    const Occupancy result = occupancy(*limits, *demand);
    percent = result.percent;
    limiter = limiter_text(result.limiters);
  }
  const char* why = !demand   ? "resources-not-recorded"
                    : !device ? "device-not-described"
                              : "device-not-known";
  put(entry, "occupancy_theoretical_pct", percent, why);
  put_text(entry, "occupancy_limiter", limiter, why);
  put(entry, "occupancy_reported_pct",
      config.reported_occupancy_pct >= 0 ? std::optional(config.reported_occupancy_pct) : std::nullopt,
      "not-recorded");
  const ZeroCause zero = device ? zero_cause(*device, config) : ZeroCause::kNotZero;
  if (zero == ZeroCause::kFalse) entry["occupancy_reported_note"] = "false-zero";
  if (zero == ZeroCause::kSmallGrid) entry["occupancy_reported_note"] = "small-grid";
}

Json kernels_json(const ExplainModel& model) {
  const Trace& trace = *model.trace;
  Json out = Json::array();
  for (const KernelGroup& group : model.metrics->kernels) {
    Json entry = {{"name", trace.text(group.name)}};
    const bool kernel = group.cls == EventClass::kKernel;
    entry["event"] = kernel ? "kernel" : group.cls == EventClass::kMemcpy ? "copy" : "fill";
    put_text(entry, "op", trace.text(group.launched_by), "no-operator-around-its-launch");
    entry["count"] = group.count;
    entry["device_us"] = microseconds(group.device_ns);
    entry["median_us"] = microseconds(group.median_ns);
    entry["min_us"] = microseconds(group.min_ns);
    entry["max_us"] = microseconds(group.max_ns);
    put_time(entry, "median_launch_delay_us", group.median_launch_delay_ns, "no-launch-recorded");
    if (kernel) {
      const KernelName& name = model.metrics->decoded(group.name);
      entry["short_name"] = short_kernel_name(name);
      put_text(entry, "kind", name.kind == KernelKind::kUnknown ? "" : kind_name(name.kind),
               "name-not-decoded");
      put_text(entry, "dtype", name.input == NumericType::kUnknown ? "" : numeric_name(name.input),
               "name-not-decoded");
      put_text(entry, "accumulate",
               name.accumulate == NumericType::kUnknown ? "" : numeric_name(name.accumulate),
               "name-not-decoded");
      put_text(entry, "tensor_cores",
               name.tensor_cores == Tristate::kUnknown ? "" : tensor_core_text(name.tensor_cores),
               "name-not-decoded");
      if (!model.metrics->cpu_only) put_kernel_shape(entry, trace, group);
    } else {
      put_count(entry, "bytes", group.bytes, "not-recorded");
      if (group.bytes > 0 && group.device_ns > 0)
        entry["bytes_per_s"] = static_cast<double>(group.bytes) / static_cast<double>(group.device_ns) * 1e9;
    }
    entry["link"] = {{"basis", trace::basis_name(group.basis)},
                     {"confidence", trace::confidence_name(group.confidence)}};
    out.push_back(std::move(entry));
  }
  return out;
}

Json gaps_json(const Metrics& metrics) {
  Json out = Json::array();
  for (const DeviceTimeline& device : metrics.gaps.devices) {
    Json idle = Json::object();
    for (size_t i = 0; i < kGapCauses; ++i) {
      const auto cause = static_cast<GapCause>(i);
      idle[std::string(gap_cause_name(cause))] = {{"us", microseconds(device.idle_ns[i])},
                                                  {"gaps", device.gaps[i]}};
    }
    out.push_back({{"device", device.device},
                   {"begin_ns", device.begin_ns},
                   {"window_us", microseconds(device.end_ns - device.begin_ns)},
                   {"busy_us", microseconds(device.busy_ns)},
                   {"summed_us", microseconds(device.summed_ns)},
                   {"overlap_us", microseconds(device.overlap_ns)},
                   {"idle_us", microseconds(device.idle_total_ns())},
                   {"idle", std::move(idle)}});
  }
  return out;
}

Json findings_json(const ExplainModel& model) {
  Json out = Json::array();
  for (const Finding& finding : model.rules.findings) {
    Json evidence = Json::array();
    for (const Evidence& e : finding.evidence) evidence.push_back({{"ordinal", e.ordinal}, {"ns", e.ns}});
    Json entry = {
        {"id", finding.id}, {"severity", severity_name(finding.severity)}, {"title", finding.title}};
    put_text(entry, "range", finding.range, "whole-trace");
    entry["evidence"] = std::move(evidence);
    entry["evidence_total"] = finding.evidence_total;
    entry["why"] = finding.why;
    entry["remedy"] = finding.remedy;
    put(entry, "saving_us", finding.saving_us, "not-estimated");
    put_text(entry, "saving_per", finding.saving_us ? finding.saving_per : "", "not-estimated");
    put_text(entry, "saving_basis", finding.saving_basis, "not-estimated");
    entry["confidence"] = certainty_name(finding.confidence);
    put_text(entry, "group", finding.group, "saves-alone");
    out.push_back(std::move(entry));
  }
  return out;
}

Json explain_document(const ExplainModel& model, std::string_view version) {
  Json out;
  out["schema"] = "attnscope.explain/1";
  out["tool"] = {{"name", "attnscope"}, {"version", version}};
  out["verdict"] = {{"id", model.verdict.id}, {"text", model.verdict.text}};
  out["trace"] = trace_json(model);
  out["step_source"] = step_source_name(model.metrics->step_source);
  out["steps"] = steps_json(*model.metrics);
  out["ranges"] = ranges_json(model);
  out["attention"] = attention_json(model);
  out["kernels"] = kernels_json(model);
  out["idle"] = gaps_json(*model.metrics);
  out["findings"] = findings_json(model);
  Json not_evaluated = Json::array();
  for (const NotEvaluated& rule : model.rules.not_evaluated)
    not_evaluated.push_back({{"id", rule.id}, {"reason", rule.reason}});
  out["not_evaluated"] = std::move(not_evaluated);
  Json not_seen = Json::array();
  for (const NotSeen& missing : model.not_seen)
    not_seen.push_back({{"id", missing.id}, {"text", missing.text}, {"python", missing.python}});
  out["not_seen"] = std::move(not_seen);
  Json diagnostics = Json::array();
  for (const Diagnostic& diagnostic : model.diagnostics) {
    const trace::DiagInfo& info = trace::diag_info(diagnostic.id);
    diagnostics.push_back(
        {{"id", info.id}, {"count", diagnostic.count}, {"what", info.what}, {"advice", info.advice}});
  }
  out["diagnostics"] = std::move(diagnostics);
  return out;
}

}  // namespace

std::string explain_json(const ExplainModel& model, std::string_view version) {
  return dump(explain_document(model, version));
}

std::string explain_ranks_json(std::span<const std::string> documents, const RankComparison& comparison,
                               std::string_view version) {
  Json rows = Json::array();
  for (const RankRow& row : comparison.rows)
    rows.push_back({{"figure", row.figure},
                    {"unit", row.unit},
                    {"values", row.values},
                    {"spread_pct", row.spread_percent}});
  const Json tool = {{"name", "attnscope"}, {"version", version}};
  const Json compared = {{"text", comparison.text}, {"rows", std::move(rows)}};
  // The documents are whole already: they are joined as text, not parsed again.
  std::string out =
      "{\"schema\": \"attnscope.explain-ranks/1\",\n\"tool\": " + tool.dump() + ",\n\"ranks\": [\n";
  for (size_t i = 0; i < documents.size(); ++i) out += (i == 0 ? "" : ",\n") + documents[i];
  out += "],\n\"comparison\": " +
         compared.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n}\n";
  return out;
}

}  // namespace attnscope::report
