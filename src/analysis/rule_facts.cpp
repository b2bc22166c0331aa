#include "analysis/rule_facts.h"

#include "analysis/occupancy.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;

namespace {

// Spans of autograd's engine: what runs inside was asked for by backward, not by them.
bool is_autograd_wrapper(std::string_view name) {
  return name.starts_with("autograd::engine::evaluate_function") || name.starts_with("torch::autograd::") ||
         name.ends_with("Backward0") || name.ends_with("Backward1") || name.ends_with("Backward");
}

// Spans that group operators without being one.
bool is_grouping(std::string_view name) {
  return name.starts_with("Torch-Compiled Region") || name.starts_with("CompiledFunction") ||
         name.starts_with("## Call CompiledFxGraph") || name.starts_with("TorchDynamo") ||
         name.starts_with("Optimizer.") || name.starts_with("enumerate(DataLoader") ||
         name.starts_with("nn.Module");
}

bool is_step(std::string_view name) {
  return name.starts_with("ProfilerStep#");
}

}  // namespace

RuleFacts::RuleFacts(const Metrics& metrics) : metrics_(metrics) {
  const trace::Trace& t = trace();
  const std::span<const EventIndex> events =
      metrics.cpu_only ? std::span<const EventIndex>(metrics.cpu_leaves) : links().device_work();
  work_.reserve(events.size());
  for (EventIndex e : events) {
    Work w;
    w.event = e;
    w.cls = t.cls(e);
    w.ns = t.dur_ns(e);
    w.name = &metrics.decoded(t.name_id(e));
    if (metrics.cpu_only) {
      w.cls = EventClass::kKernel;
    } else if (w.cls == EventClass::kKernel && t.category(e) != "cpu_kernel") {
      on_gpu_ = true;
    } else if (t.category(e) == "gpu_memcpy" || t.category(e) == "gpu_memset") {
      on_gpu_ = true;
    }
    // Work of before the window belongs to no range, and would make every share too small.
    const bool earlier = !metrics.cpu_only && links().unlinked(e) == trace::Unlinked::kEarlierWork;
    if (!earlier) work_ns_ += w.ns;
    work_.push_back(w);
  }
  std::stable_sort(work_.begin(), work_.end(),
                   [&](const Work& a, const Work& b) { return t.ts_ns(a.event) < t.ts_ns(b.event); });
  for (size_t i = 0; i < metrics.attention_calls.size(); ++i)
    for (EventIndex e : metrics.attention_calls[i].work) attention_of_.try_emplace(e, static_cast<int>(i));
}

bool RuleFacts::own_recording() const {
  return trace().era() == trace::Era::kAttnscope;
}

Above RuleFacts::above(EventIndex event) const {
  Above above;
  EventIndex at =
      trace::is_device_work(trace().cls(event)) ? links().launched_by(event) : links().parent(event);
  for (; at != kNoEvent; at = links().parent(at)) {
    const std::string_view name = trace().name(at);
    const EventClass cls = trace().cls(at);
    if (name.starts_with("Optimizer.step")) above.in_optimizer = true;
    if (cls == EventClass::kUserRange) {
      if (above.range == kNoEvent && !is_step(name) && !is_grouping(name)) above.range = at;
      continue;
    }
    if (cls != EventClass::kOperator && cls != EventClass::kSpan) continue;
    if (is_autograd_wrapper(name)) {
      above.autograd = at;
      continue;
    }
    if (is_grouping(name)) continue;
    above.operators.push_back(at);
  }
  return above;
}

EventIndex RuleFacts::top_operator(const Above& above) const {
  return above.operators.empty() ? kNoEvent : above.operators.back();
}

std::string RuleFacts::where(const Above& above) const {
  if (above.range != kNoEvent) return std::string(trace().name(above.range));
  const EventIndex top = top_operator(above);
  return top == kNoEvent ? std::string() : std::string(trace().name(top));
}

const std::vector<OpInput>& RuleFacts::inputs(EventIndex op) const {
  const trace::StringId id = trace().operator_args_id(op);
  const auto [at, fresh] = inputs_.try_emplace(id);
  if (fresh && id != trace::kEmptyString) at->second = parse_op_inputs(trace().operator_args(op));
  return at->second;
}

NumericType RuleFacts::first_float(EventIndex op) const {
  for (const OpInput& input : inputs(op)) {
    const OpInput& tensor = input.members.empty() ? input : input.members.front();
    const NumericType type = numeric_from_text(tensor.type);
    if (!tensor.dims.empty() && (type == NumericType::kF64 || type == NumericType::kF32 || is_16_bit(type)))
      return type;
  }
  return NumericType::kUnknown;
}

int64_t element_count(const OpInput& input) {
  int64_t n = 1;
  for (int64_t d : input.dims) n = d < 0 || (d > 0 && n > INT64_MAX / d) ? 0 : n * d;
  return n;
}

size_t numeric_bytes(NumericType type) {
  switch (type) {
    case NumericType::kF64:
    case NumericType::kI64:
    case NumericType::kComplex: return 8;
    case NumericType::kF32:
    case NumericType::kTF32:
    case NumericType::kI32: return 4;
    case NumericType::kF16:
    case NumericType::kBF16: return 2;
    case NumericType::kF8:
    case NumericType::kI8:
    case NumericType::kBool: return 1;
    case NumericType::kF4:
    case NumericType::kUnknown: return 0;
  }
  return 0;
}

int64_t RuleFacts::copied_bytes(const Work& work, const Above& above) const {
  if (work.cls == EventClass::kMemcpy && trace().copy(work.event).bytes >= 0)
    return trace().copy(work.event).bytes;
  if (const trace::WorkInfo info = trace().work(work.event); info.bytes_written >= 0)
    return info.bytes_written;
  std::vector<EventIndex> holders = above.operators;
  if (metrics_.cpu_only) holders.insert(holders.begin(), work.event);
  for (EventIndex op : holders) {
    const std::vector<OpInput>& in = inputs(op);
    if (in.empty() || in.front().dims.empty()) continue;
    const auto bytes = static_cast<int64_t>(numeric_bytes(numeric_from_text(in.front().type)));
    if (bytes > 0) return product({element_count(in.front()), bytes});
  }
  return -1;
}

RuleFacts::CopyNature RuleFacts::copy_nature(const Work& work, const Above& above) const {
  if (work.cls == EventClass::kMemset) return CopyNature::kNotACopy;
  if (work.cls == EventClass::kMemcpy) {
    const trace::CopyKind kind = trace().copy(work.event).kind;
    return kind == trace::CopyKind::kDtoD || trace().category(work.event) == "cpu_copy"
               ? CopyNature::kCopy
               : CopyNature::kNotACopy;
  }
  const KernelName& name = *work.name;
  // Our own recordings say what a cast read and wrote.
  if (const trace::WorkInfo info = trace().work(work.event);
      name.kind == KernelKind::kCast && info.bytes_read > 0 && info.bytes_written > 0)
    return info.bytes_written > info.bytes_read   ? CopyNature::kUpcast
           : info.bytes_written < info.bytes_read ? CopyNature::kDowncast
                                                  : CopyNature::kOtherCast;
  if (name.kind != KernelKind::kCopy && name.kind != KernelKind::kCast) return CopyNature::kNotACopy;
  NumericType from = name.input, to = name.output;
  std::vector<EventIndex> holders = above.operators;
  if (metrics_.cpu_only) holders.insert(holders.begin(), work.event);
  for (EventIndex op : holders) {
    const std::string_view op_name = trace().name(op);
    if (op_name != "aten::copy_") continue;
    const std::vector<OpInput>& in = inputs(op);  // copy_(destination, source)
    if (in.size() < 2 || in[1].type.empty()) break;
    to = numeric_from_text(in[0].type);
    from = numeric_from_text(in[1].type);
    break;
  }
  if (from != NumericType::kUnknown && to != NumericType::kUnknown) {
    if (from == to) return CopyNature::kCopy;
    if (is_16_bit(from) && (to == NumericType::kF32 || to == NumericType::kF64)) return CopyNature::kUpcast;
    if (is_16_bit(to) && (from == NumericType::kF32 || from == NumericType::kF64))
      return CopyNature::kDowncast;
    return CopyNature::kOtherCast;
  }
  if (name.kind == KernelKind::kCast)
    return is_16_bit(name.output) && from == NumericType::kF32 ? CopyNature::kDowncast : CopyNature::kUnknown;
  // A name that says nocast or cat moves one type; the old gpu_kernel_impl may do either.
  if (name.operation == "cat" || name.demangled.find("nocast") != std::string::npos || own_recording() ||
      name.demangled.find("vectorized_elementwise") != std::string::npos)
    return CopyNature::kCopy;
  return CopyNature::kUnknown;
}

int RuleFacts::attention_of(EventIndex event) const {
  const auto at = attention_of_.find(event);
  return at == attention_of_.end() ? -1 : at->second;
}

const trace::DeviceProperties* RuleFacts::device_of(EventIndex event) const {
  return trace().device(trace().queue(event).device);
}

int RuleFacts::capability_of(EventIndex event) const {
  const trace::DeviceProperties* device = device_of(event);
  if (!device || !sm_limits(*device)) return 0;
  return device->compute_major * 10 + device->compute_minor;
}

uint64_t RuleFacts::host_events_in(EventIndex span) const {
  const std::span<const EventIndex> order = links().preorder(trace().thread(span));
  const auto starts_before = [&](EventIndex e, int64_t t) { return trace().ts_ns(e) < t; };
  const auto from = std::lower_bound(order.begin(), order.end(), trace().ts_ns(span), starts_before);
  const auto to = std::lower_bound(from, order.end(), trace().end_ns(span), starts_before);
  return static_cast<uint64_t>(to - from);
}

int64_t RuleFacts::profiler_ns_per_event() const {
  // One call of PyTorch's attention costs 12 to 176 µs unprofiled and 98 to 512 µs recorded with shapes, over
  // 17 to 95 recorded host events: about 4 µs each. Without shapes about half of that.
  return trace().metadata().record_shapes ? 4000 : 2000;
}

Evidence RuleFacts::evidence(EventIndex event) const {
  return {event, trace().ordinal(event), trace().ts_ns(event)};
}

void RuleFacts::cite(Finding& finding, std::span<const EventIndex> events) const {
  finding.evidence_total += events.size();
  for (EventIndex e : events) {
    if (finding.evidence.size() >= kMostEvidence) break;
    finding.evidence.push_back(evidence(e));
  }
}

Gathered& gather(GatheredMap& map, std::string where, std::string what, const Work& work, EventIndex call) {
  Gathered& g = map[{where, what}];
  if (g.events.empty()) {
    g.where = std::move(where);
    g.what = std::move(what);
  }
  g.events.push_back(work.event);
  g.ns += work.ns;
  // Work comes in time order, so a call seen before is among the last few, unless many threads interleave.
  const auto recent = g.calls.size() > 16 ? g.calls.end() - 16 : g.calls.begin();
  if (call != kNoEvent && std::find(recent, g.calls.end(), call) == g.calls.end()) g.calls.push_back(call);
  return g;
}

double us(int64_t ns) {
  return static_cast<double>(ns) / 1000.0;
}

std::string per_call(int64_t total_ns, size_t calls) {
  if (calls <= 1) return format_time_us(us(total_ns));
  return fmt::format("{} per call", format_time_us(us(total_ns) / static_cast<double>(calls)));
}

std::string counted(size_t n, std::string_view noun) {
  return fmt::format("{} {}{}", group_digits(static_cast<int64_t>(n)), noun, n == 1 ? "" : "s");
}

std::string percent_text(double percent) {
  if (percent >= 10) return fmt::format("{:.0f} %", percent);
  if (percent >= 1) return fmt::format("{:.1f} %", percent);
  return fmt::format("{:.2g} %", percent);
}

bool is_sdpa_operator(std::string_view name) {
  return name.find("scaled_dot_product") != std::string_view::npos;
}

bool promises_copy(std::string_view operator_name) {
  static constexpr std::array<std::string_view, 36> kPromise = {"aten::copy_",
                                                                "aten::_copy_from",
                                                                "aten::clone",
                                                                "aten::contiguous",
                                                                "aten::to",
                                                                "aten::_to_copy",
                                                                "aten::cat",
                                                                "aten::_cat",
                                                                "aten::concat",
                                                                "aten::stack",
                                                                "aten::hstack",
                                                                "aten::vstack",
                                                                "aten::repeat",
                                                                "aten::repeat_interleave",
                                                                "aten::tile",
                                                                "aten::index_select",
                                                                "aten::index",
                                                                "aten::flip",
                                                                "aten::roll",
                                                                "aten::pad",
                                                                "aten::constant_pad_nd",
                                                                "aten::cpu",
                                                                "aten::cuda",
                                                                "aten::float",
                                                                "aten::half",
                                                                "aten::bfloat16",
                                                                "aten::type",
                                                                "aten::type_as",
                                                                "aten::narrow_copy",
                                                                "aten::_foreach_copy_",
                                                                "aten::set_data",
                                                                "aten::pin_memory",
                                                                "aten::split_copy",
                                                                "aten::unbind_copy",
                                                                "aten::tensor_split",
                                                                "aten::item"};
  return std::find(kPromise.begin(), kPromise.end(), operator_name) != kPromise.end() ||
         operator_name.find("copy") != std::string_view::npos ||
         operator_name.find("scatter") != std::string_view::npos;
}

}  // namespace attnscope
