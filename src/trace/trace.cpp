#include "trace/trace.h"

#include "trace/raw_json.h"

#include <algorithm>
#include <bit>

namespace attnscope::trace {

std::string_view class_name(EventClass c) {
  switch (c) {
    case EventClass::kOperator: return "operator";
    case EventClass::kUserRange: return "range";
    case EventClass::kGpuAnnotation: return "gpu annotation";
    case EventClass::kRuntime: return "runtime call";
    case EventClass::kDriver: return "driver call";
    case EventClass::kKernel: return "kernel";
    case EventClass::kMemcpy: return "copy";
    case EventClass::kMemset: return "fill";
    case EventClass::kSync: return "sync";
    case EventClass::kOverhead: return "overhead";
    case EventClass::kPython: return "python function";
    case EventClass::kMemory: return "memory";
    case EventClass::kInstant: return "instant";
    case EventClass::kCounter: return "counter";
    case EventClass::kDeviceOther: return "device event";
    case EventClass::kSpan: return "span";
    case EventClass::kAsyncSpan: return "async span";
    case EventClass::kProfiler: return "profiler window";
    case EventClass::kOther: return "other";
  }
  return "?";
}

std::string_view era_text(Era e) {
  switch (e) {
    case Era::kNotKineto: return "not Kineto";
    case Era::kTorch18Dev: return "PyTorch 1.8 nightly";
    case Era::kTorch18: return "PyTorch 1.8";
    case Era::kTorch19: return "PyTorch 1.9–1.10";
    case Era::kTorch111: return "PyTorch 1.11–1.13";
    case Era::kTorch20: return "PyTorch 2.0–2.2";
    case Era::kTorch23: return "PyTorch 2.3";
    case Era::kTorch24: return "PyTorch 2.4–2.6";
    case Era::kTorch27: return "PyTorch ≥ 2.7";
    case Era::kTorch2026: return "PyTorch 2026";
    case Era::kAttnscope: return "attnscope";
  }
  return "?";
}

std::string_view copy_kind_name(CopyKind k) {
  switch (k) {
    case CopyKind::kUnknown: return "unknown";
    case CopyKind::kHtoD: return "HtoD";
    case CopyKind::kDtoH: return "DtoH";
    case CopyKind::kDtoD: return "DtoD";
    case CopyKind::kHtoH: return "HtoH";
    case CopyKind::kPeer: return "PtoP";
    case CopyKind::kArray: return "array";
  }
  return "?";
}

std::string Clock::base_ns() const {
  __int128 sum = 0;
  bool negative = false;
  for (const char c : file_base_ns) {
    if (c == '-') negative = true;
    if (c >= '0' && c <= '9') sum = sum * 10 + (c - '0');
  }
  if (negative) sum = -sum;
  sum += origin_ns;
  negative = sum < 0;
  if (negative) sum = -sum;
  std::string digits;
  do {
    digits.push_back(static_cast<char>('0' + static_cast<int>(sum % 10)));
    sum /= 10;
  } while (sum != 0);
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

// kept_rank_[b] holds how many entries before block b (8 words) were kept.
uint64_t Trace::ordinal(EventIndex i) const {
  const auto* block = std::upper_bound(kept_rank_.begin(), kept_rank_.end(), i) - 1;
  uint32_t left = i - *block;
  auto word = static_cast<size_t>(block - kept_rank_.begin()) * 8;
  for (;; ++word) {
    const auto here = static_cast<uint32_t>(std::popcount(kept_[word]));
    if (left < here) break;
    left -= here;
  }
  uint64_t bits = kept_[word];
  for (; left > 0; --left) bits &= bits - 1;
  return word * 64 + static_cast<uint64_t>(std::countr_zero(bits));
}

EventIndex Trace::at_ordinal(uint64_t ordinal) const {
  const uint64_t word = ordinal / 64;
  if (word >= kept_.size() || !(kept_[word] >> ordinal % 64 & 1)) return kNoEvent;
  uint32_t rank = kept_rank_[word / 8];
  for (size_t w = word / 8 * 8; w < word; ++w) rank += static_cast<uint32_t>(std::popcount(kept_[w]));
  const uint64_t below = kept_[word] & ((uint64_t{1} << ordinal % 64) - 1);
  return rank + static_cast<uint32_t>(std::popcount(below));
}

namespace {
template <typename T>
auto find_sparse(const Column<T>& column, EventIndex i) {
  const auto* hit = std::lower_bound(column.begin(), column.end(), i,
                                     [](const T& row, EventIndex event) { return row.event < event; });
  return hit != column.end() && hit->event == i ? &hit->value : nullptr;
}
}  // namespace

int64_t Trace::wide_duration(EventIndex i) const {
  const auto* value = find_sparse(wide_dur_, i);
  return value ? *value : 0;
}
const Trace::WideIds* Trace::wide(EventIndex i) const {
  return find_sparse(wide_ids_, i);
}

uint64_t Trace::widen(uint32_t id, EventIndex i, uint64_t WideIds::* member) const {
  if (id == kNone32) return kNoId;
  if (id != kEscape32) return id;
  const WideIds* ids = wide(i);
  return ids ? ids->*member : kNoId;
}

uint64_t Trace::correlation(EventIndex i) const {
  switch (cls(i)) {
    case EventClass::kRuntime:
    case EventClass::kDriver:
    case EventClass::kDeviceOther:
      if (side_[i] == kNoneSide) return kNoId;
      return side_[i] == kEscapeSide ? widen(kEscape32, i, &WideIds::correlation) : side_[i];
    case EventClass::kKernel: return widen(kernels_[side_[i]].correlation, i, &WideIds::correlation);
    case EventClass::kMemcpy:
    case EventClass::kMemset: return widen(copies_[side_[i]].correlation, i, &WideIds::correlation);
    default: return kNoId;
  }
}

const Trace::OpSide* Trace::op_side(EventIndex i) const {
  const EventClass c = cls(i);
  const bool has =
      c == EventClass::kOperator || c == EventClass::kUserRange || c == EventClass::kGpuAnnotation;
  return has && (side_[i] & kSideFlag) ? &ops_[side_[i] & ~kSideFlag] : nullptr;
}

uint64_t Trace::external_id(EventIndex i) const {
  switch (cls(i)) {
    case EventClass::kOperator:
    case EventClass::kUserRange:
    case EventClass::kGpuAnnotation:
      if (const OpSide* op = op_side(i)) return widen(op->external_id, i, &WideIds::external_id);
      return side_[i] == kNoneSide ? kNoId : side_[i];
    case EventClass::kKernel: return widen(kernels_[side_[i]].external_id, i, &WideIds::external_id);
    case EventClass::kMemcpy:
    case EventClass::kMemset: return widen(copies_[side_[i]].external_id, i, &WideIds::external_id);
    default: return kNoId;
  }
}

uint64_t Trace::sequence(EventIndex i) const {
  const OpSide* op = op_side(i);
  return op ? widen(op->sequence, i, &WideIds::sequence) : kNoId;
}
uint64_t Trace::forward_thread(EventIndex i) const {
  const OpSide* op = op_side(i);
  return op && op->forward_thread != kNone32 ? op->forward_thread : kNoId;
}
StringId Trace::operator_args_id(EventIndex i) const {
  const OpSide* op = op_side(i);
  return op ? op->args : kEmptyString;
}
OperatorArgs Trace::operator_args(EventIndex i) const {
  const std::string_view members = text(operator_args_id(i));
  OperatorArgs out;
  if (members.empty()) return out;
  for_each_member(members, [&](std::string_view key, std::string_view value) {
    if (key == "Input Dims" || key == "Input dims") out.input_dims = value;
    if (key == "Input Strides") out.input_strides = value;
    if (key == "Input type") out.input_types = value;
    if (key == "Concrete Inputs") out.concrete_inputs = value;
  });
  return out;
}

KernelInfo Trace::kernel(EventIndex i) const {
  if (cls(i) != EventClass::kKernel) return {};
  const KernelSide& k = kernels_[side_[i]];
  return {queues_[k.queue], widen(k.graph_id, i, &WideIds::graph_id),
          widen(k.graph_node_id, i, &WideIds::graph_node_id), k.config};
}

CopyInfo Trace::copy(EventIndex i) const {
  if (cls(i) != EventClass::kMemcpy && cls(i) != EventClass::kMemset) return {};
  const CopySide& c = copies_[side_[i]];
  CopyInfo out;
  if (cls(i) == EventClass::kMemcpy) describe_copy_name(name(i), out);
  out.bytes = c.bytes;
  out.from_device = c.from_device;
  out.to_device = c.to_device;
  out.queue = queues_[c.queue];
  return out;
}

Queue Trace::queue(EventIndex i) const {
  switch (cls(i)) {
    case EventClass::kKernel: return queues_[kernels_[side_[i]].queue];
    case EventClass::kMemcpy:
    case EventClass::kMemset: return queues_[copies_[side_[i]].queue];
    default: return {};
  }
}

MemoryInfo Trace::memory(EventIndex i) const {
  return cls(i) == EventClass::kMemory ? memory_[side_[i]] : MemoryInfo{};
}
SyncInfo Trace::sync(EventIndex i) const {
  return cls(i) == EventClass::kSync ? syncs_[side_[i]] : SyncInfo{};
}
PythonInfo Trace::python(EventIndex i) const {
  return cls(i) == EventClass::kPython ? python_[side_[i]] : PythonInfo{};
}
double Trace::counter(EventIndex i) const {
  return cls(i) == EventClass::kCounter ? counters_[side_[i]] : 0;
}
WorkInfo Trace::work(EventIndex i) const {
  const WorkInfo* w = find_sparse(work_, i);
  return w ? *w : WorkInfo{};
}

const DeviceProperties* Trace::device(int id) const {
  for (const DeviceProperties& d : devices_)
    if (d.id == id) return &d;
  return nullptr;
}

size_t Trace::memory_bytes() const {
  return ts_.capacity_bytes() + dur_.capacity_bytes() + name_.capacity_bytes() +
         thread_kind_.capacity_bytes() + side_.capacity_bytes() + kept_.capacity_bytes() +
         kept_rank_.capacity_bytes() + strings_.capacity_bytes() + kernels_.capacity_bytes() +
         copies_.capacity_bytes() + ops_.capacity_bytes() + memory_.capacity_bytes() +
         syncs_.capacity_bytes() + python_.capacity_bytes() + counters_.capacity_bytes() +
         wide_dur_.capacity_bytes() + wide_ids_.capacity_bytes() + work_.capacity_bytes() +
         kernel_configs_.capacity() * sizeof(KernelConfig);
}

// "Memcpy HtoD (Pageable -> Device)"
void describe_copy_name(std::string_view name, CopyInfo& out) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("HtoD") || has("HostToDevice")) {
    out.kind = CopyKind::kHtoD;
  } else if (has("DtoH") || has("DeviceToHost")) {
    out.kind = CopyKind::kDtoH;
  } else if (has("PtoP") || has("Peer")) {
    out.kind = CopyKind::kPeer;
  } else if (has("DtoD") || has("DeviceToDevice")) {
    out.kind = CopyKind::kDtoD;
  } else if (has("HtoH")) {
    out.kind = CopyKind::kHtoH;
  } else if (has("AtoD") || has("DtoA") || has("HtoA") || has("AtoH") || has("AtoA")) {
    out.kind = CopyKind::kArray;
  }
  const size_t open = name.find('('), arrow = name.find("->");
  if (open == std::string_view::npos || arrow == std::string_view::npos || arrow < open) return;
  const auto memory_kind = [](std::string_view word) {
    if (word.find("Pageable") != std::string_view::npos) return MemoryKind::kPageable;
    if (word.find("Pinned") != std::string_view::npos) return MemoryKind::kPinned;
    if (word.find("Managed") != std::string_view::npos) return MemoryKind::kManaged;
    if (word.find("Array") != std::string_view::npos) return MemoryKind::kArray;
    if (word.find("Device") != std::string_view::npos) return MemoryKind::kDevice;
    return MemoryKind::kUnknown;
  };
  out.from = memory_kind(name.substr(open, arrow - open));
  out.to = memory_kind(name.substr(arrow));
}

}  // namespace attnscope::trace
