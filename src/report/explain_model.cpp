#include "report/explain_model.h"

#include "analysis/ranges.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace attnscope::report {

using trace::Diag;
using trace::EventClass;
using trace::EventIndex;
using trace::Trace;

namespace {

std::string device_text(const Trace& trace) {
  std::map<std::string, int> with_events;
  for (const trace::DeviceProperties& device : trace.devices())
    if (device.has_events && !device.name.empty()) ++with_events[device.name];
  std::vector<std::string> parts;
  for (const auto& [name, count] : with_events)
    parts.push_back(count == 1 ? name : fmt::format("{} × {}", count, name));
  return join(parts, ", ");
}

void add_step_figures(ExplainModel& model) {
  std::vector<int64_t> host, device, busy;
  for (const StepStats& step : model.metrics->steps) {
    host.push_back(step.end_ns - step.begin_ns);
    device.push_back(step.work.device_ns);
    busy.push_back(step.device_busy_ns);
  }
  model.step_host_ns = median_of(host);
  model.step_device_ns = median_of(device);
  model.step_busy_ns = median_of(busy);
  // A trace that is one step: all its work counts, linked or not.
  if (model.metrics->step_source == StepSource::kWholeTrace)
    model.step_device_ns = model.metrics->total.device_ns;
  Total window, idle;
  for (const DeviceTimeline& device_timeline : model.metrics->gaps.devices) {
    window += device_timeline.end_ns - device_timeline.begin_ns;
    idle += device_timeline.idle_total_ns();
  }
  if (window > 0) model.idle_percent = 100.0 * static_cast<double>(idle) / static_cast<double>(window);
}

// The cause that most of the idle time has.
GapCause main_cause(const GapReport& gaps) {
  std::array<Total, kGapCauses> sums{};
  for (const DeviceTimeline& device : gaps.devices)
    for (size_t i = 0; i < kGapCauses; ++i) sums[i] += device.idle_ns[i];
  return static_cast<GapCause>(std::max_element(sums.begin(), sums.end()) - sums.begin());
}

struct Kinds {
  Total attention_ns;
  std::map<KernelKind, Total> by_kind;
};

Kinds time_by_kind(const Metrics& metrics) {
  Kinds kinds;
  for (const KernelGroup& group : metrics.kernels) {
    const KernelKind kind = group.cls == EventClass::kMemcpy   ? KernelKind::kCopy
                            : group.cls == EventClass::kMemset ? KernelKind::kFill
                                                               : metrics.decoded(group.name).kind;
    kinds.by_kind[kind] += group.device_ns;
  }
  for (const AttentionCall& call : metrics.attention_calls) kinds.attention_ns += call.device_ns;
  return kinds;
}

// Kinds in a sentence.
std::string_view kind_words(KernelKind kind) {
  switch (kind) {
    case KernelKind::kGemm: return "matrix products";
    case KernelKind::kConv: return "convolutions";
    case KernelKind::kCopy: return "copies";
    case KernelKind::kCast: return "casts";
    case KernelKind::kFill: return "fills";
    case KernelKind::kElementwise: return "elementwise kernels";
    case KernelKind::kReduction: return "reductions";
    case KernelKind::kNorm: return "normalisation";
    case KernelKind::kComm: return "communication";
    case KernelKind::kFused: return "fused kernels of a compiler";
    case KernelKind::kTranspose: return "transposes";
    default: return kind_name(kind);
  }
}

std::string busy_verdict(const ExplainModel& model) {
  const Metrics& metrics = *model.metrics;
  const Kinds kinds = time_by_kind(metrics);
  const double attention = share_percent(metrics, kinds.attention_ns);
  std::string where;
  if (attention >= 50) {
    where = fmt::format("{:.0f} % of its time is attention", attention);
  } else {
    KernelKind largest = KernelKind::kUnknown;
    int64_t most = 0;
    for (const auto& [kind, ns] : kinds.by_kind)
      if (kind != KernelKind::kUnknown && ns > most) {
        most = ns;
        largest = kind;
      }
    where = most == 0 ? fmt::format("{} kernels, none of a known kind", metrics.total.kernels)
                      : fmt::format("{:.0f} % of its time is {}", share_percent(metrics, most),
                                    kind_words(largest));
    if (attention >= 1) where += fmt::format("; attention is {:.0f} %", attention);
  }
  return where;
}

// Device work of kinds that are no kernels, copies or fills (MTIA, range profiler).
struct OtherWork {
  uint64_t count = 0;
  Total ns;
  std::string category;
};
OtherWork other_work(const Trace& trace) {
  OtherWork other;
  for (EventIndex i = 0; i < trace.size(); ++i)
    if (trace.cls(i) == EventClass::kDeviceOther) {
      if (other.count++ == 0) other.category = trace.category(i);
      other.ns += trace.dur_ns(i);
    }
  return other;
}

Verdict make_verdict(const ExplainModel& model) {
  const Metrics& metrics = *model.metrics;
  if (ran_on_host(metrics)) {
    const double attention = share_percent(metrics, time_by_kind(metrics).attention_ns);
    std::string text = fmt::format("Everything ran on the CPU: {} {}, {} in all",
                                   group_digits(static_cast<int64_t>(metrics.total.kernels)),
                                   metrics.cpu_only ? "operators that compute" : "kernels",
                                   format_time_us(static_cast<double>(metrics.total.device_ns) / 1e3));
    if (attention >= 1) text += fmt::format("; attention is {:.0f} %", attention);
    return {"cpu", text + "."};
  }
  if (metrics.total == trace::WorkSum{}) {
    if (metrics.ranges.empty())
      return {"empty", "Nothing that could be explained: no operators, no device work."};
    if (const OtherWork other = other_work(*model.trace); other.count > 0)
      return {"other-device-work",
              fmt::format(
                  "No kernels, copies or fills: the device's work was recorded as {} {} events, {} in all.",
                  group_digits(static_cast<int64_t>(other.count)), terminal_safe(other.category, 40),
                  format_time_us(static_cast<double>(other.ns) / 1e3))};
    if (model.trace->truncated())
      return {
          "cut",
          "The file was cut before any event of the device: only what the host did until then can be shown."};
    return {"no-device-work", "No work on a device was recorded; only what the host did can be shown."};
  }
  if (metrics.gaps.devices.empty())
    return {"busy", "No idle time can be told: " +
                        std::string("no device work is explained by a launch in the file; ") +
                        busy_verdict(model) + "."};
  if (model.idle_percent >= 50) {
    const GapCause cause = main_cause(metrics.gaps);
    const std::string_view why = cause == GapCause::kLaunch
                                     ? "the host cannot launch fast enough (under the profiler)"
                                     : gap_cause_meaning(cause);
    return {"idle", fmt::format("The device is idle {:.0f} % of the time: {}.", model.idle_percent, why)};
  }
  return {"busy", fmt::format("The device is busy {:.0f} % of the time; {}.", 100 - model.idle_percent,
                              busy_verdict(model))};
}

bool has_class(const Metrics& metrics, EventClass cls) {
  return std::any_of(metrics.ranges.begin(), metrics.ranges.end(),
                     [&](const RangeStats& r) { return r.cls == cls; });
}

void find_what_is_missing(ExplainModel& model) {
  const Metrics& metrics = *model.metrics;
  const Trace& trace = *model.trace;
  const bool operators = has_class(metrics, EventClass::kOperator);
  const bool kineto = trace.era() != trace::Era::kNotKineto && trace.era() != trace::Era::kAttnscope;
  const bool launches = has_class(metrics, EventClass::kRuntime) || has_class(metrics, EventClass::kDriver);
  const bool graphs =
      std::any_of(metrics.kernels.begin(), metrics.kernels.end(),
                  [](const KernelGroup& group) { return group.basis == trace::LinkBasis::kGraph; });
  if (graphs)
    model.not_seen.push_back(
        {"graph-operators",
         "the operators inside CUDA graphs: a graph's kernels share one launch, and the "
         "operators that recorded them ran before this trace; record one step without graphs to see them",
         {}});
  else if (!operators && !metrics.ranges.empty() && kineto)
    model.not_seen.push_back({"operators",
                              "operators of the host: device work cannot be tied to what asked for it",
                              {"activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"}});
  if (metrics.total == trace::WorkSum{} && !metrics.cpu_only && kineto && other_work(trace).count == 0)
    model.not_seen.push_back(
        {"device-work",
         launches ? "no device work, though launches were recorded: the device's activity was not captured "
                    "(another profiler was attached, or the window closed before the work ran)"
                  : "no device work",
         {"activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
          "torch.cuda.synchronize()   # before the profiler stops"}});
  if (operators && kineto) {
    uint64_t with = 0, all = 0;
    for (EventIndex i = 0; i < trace.size(); ++i)
      if (trace.cls(i) == EventClass::kOperator) {
        ++all;
        with += trace.operator_args(i).recorded();
      }
    if (with == 0)
      model.not_seen.push_back({"shapes",
                                "input shapes: no FLOP/s, no roofline, no reasons why a backend was refused",
                                {"record_shapes=True"}});
  }
  if (!has_class(metrics, EventClass::kUserRange) && kineto)
    model.not_seen.push_back({"annotations",
                              "annotations: figures are per operator and for the whole trace only",
                              {"with record_function(\"attn_fwd\"):"}});
  if (metrics.step_source != StepSource::kProfilerStep && kineto) {
    std::string text;
    switch (metrics.step_source) {
      case StepSource::kRange:
        text = fmt::format("steps (no ProfilerStep): each call of {} is taken as one",
                           terminal_safe(metrics.step_range, 40));
        break;
      case StepSource::kRepetition:
        text = fmt::format(
            "steps (no ProfilerStep): the operators repeat, each of the {} repetitions is taken as one",
            metrics.steps.size());
        break;
      default: text = "steps (no ProfilerStep, nothing repeats): the trace is taken as one"; break;
    }
    model.not_seen.push_back(
        {"steps", text, {"schedule=schedule(wait=1, warmup=1, active=3)", "prof.step()"}});
  }
}

void summarise_attention(ExplainModel& model) {
  const Metrics& metrics = *model.metrics;
  for (uint32_t g = 0; g < metrics.attention_groups.size(); ++g) {
    const AttentionGroup& group = metrics.attention_groups[g];
    const AttentionCall& call = metrics.attention_calls[group.calls.front()];
    AttentionSummary line;
    line.group = g;
    line.calls = group.calls.size();
    line.median_us = static_cast<double>(group.median_device_ns) / 1e3;
    std::optional<DevicePeaks> peaks;
    for (const EventIndex work : call.work)
      if (trace::is_device_work(model.trace->cls(work))) {
        if (const trace::DeviceProperties* device = model.trace->device(model.trace->queue(work).device)) {
          peaks = known_peaks(*device);
          if (device->compute_major > 0 && device->max_threads_per_sm > 0 &&
              model.trace->metadata().hip_runtime_version == std::nullopt)
            line.arch = fmt::format("sm_{}{}", device->compute_major, device->compute_minor);
        }
        break;
      }
    if (peaks) line.device_peaks = std::string(peaks->name);
    line.host_time = ran_on_host(metrics);
    line.roofline = roofline(call.flops, call.bytes, line.median_us, call.dtype, peaks);
    model.attention.push_back(std::move(line));
  }
}

void gather_diagnostics(ExplainModel& model) {
  for (size_t i = 0; i < trace::kDiagCount; ++i) {
    const Diag id = static_cast<Diag>(i);
    const uint64_t count = model.trace->diagnostics().count(id) + model.links->diagnostics().count(id);
    if (count > 0) model.diagnostics.push_back({id, count});
  }
  std::stable_sort(model.diagnostics.begin(), model.diagnostics.end(),
                   [](const Diagnostic& a, const Diagnostic& b) {
                     return trace::diag_info(a.id).severity > trace::diag_info(b.id).severity;
                   });
}

}  // namespace

bool ran_on_host(const Metrics& metrics) {
  if (metrics.cpu_only) return true;
  return !metrics.kernels.empty() &&
         std::all_of(metrics.kernels.begin(), metrics.kernels.end(),
                     [](const KernelGroup& g) { return g.basis == trace::LinkBasis::kCpu; });
}

double share_percent(const Metrics& metrics, int64_t ns) {
  return metrics.total.device_ns > 0
             ? 100.0 * static_cast<double>(ns) / static_cast<double>(metrics.total.device_ns)
             : 0;
}

std::string work_text(const trace::WorkSum& work) {
  const auto count = [](uint64_t n, std::string_view one, std::string_view many) {
    return fmt::format("{} {}", group_digits(static_cast<int64_t>(n)), n == 1 ? one : many);
  };
  std::string text = count(work.kernels, "kernel", "kernels");
  if (work.copies > 0) text += " + " + count(work.copies, "copy", "copies");
  if (work.fills > 0) text += " + " + count(work.fills, "fill", "fills");
  return text;
}

std::vector<std::string> recording_recipe() {
  return {"from torch.profiler import profile, schedule, record_function, ProfilerActivity",
          "with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True,",
          "             schedule=schedule(wait=1, warmup=1, active=3)) as prof:",
          "    for batch in data:",
          "        with record_function(\"attn_fwd\"):",
          "            ...",
          "        prof.step()",
          "prof.export_chrome_trace(\"trace.json.gz\")"};
}

ExplainModel make_explain_model(std::string source, const Metrics& metrics, RuleReport rules) {
  ExplainModel model;
  model.source = std::move(source);
  model.metrics = &metrics;
  model.trace = metrics.trace;
  model.links = metrics.links;
  model.rules = std::move(rules);
  model.device = device_text(*model.trace);
  add_step_figures(model);
  summarise_attention(model);
  find_what_is_missing(model);
  gather_diagnostics(model);
  model.verdict = make_verdict(model);
  return model;
}

}  // namespace attnscope::report
