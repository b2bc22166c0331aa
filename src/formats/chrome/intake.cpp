#include "formats/chrome/intake.h"

#include <algorithm>
#include <limits>

namespace attnscope::formats::chrome {

using trace::Diag;
using trace::EventClass;
using trace::EventInput;
using trace::kNoId;
using trace::StringId;

namespace {

constexpr size_t kMaxOpen = size_t{1} << 20;  // begun and not ended spans that are remembered

}  // namespace

Intake::Intake(trace::TraceBuilder& builder) : builder_(builder), diagnostics_(builder.diagnostics()) {}

void Intake::reject(Diag why) {
  diagnostics_.add(why, builder_.next_ordinal());
  builder_.skip_entry();
  rejected_ = true;
}

void Intake::diagnose(uint16_t oddities) {
  const uint64_t ordinal = builder_.next_ordinal();
  if (oddities & kOddMissingComma) diagnostics_.add(Diag::kMissingComma, ordinal);
  if (oddities & kOddForeignText) diagnostics_.add(Diag::kForeignText, ordinal);
  if (oddities & kOddDuplicateKey) diagnostics_.add(Diag::kDuplicateKey, ordinal);
  if (oddities & kOddRawQuote) diagnostics_.add(Diag::kUnescapedQuote, ordinal);
  if (oddities & kOddTooDeep) diagnostics_.add(Diag::kTooDeep, ordinal);
}

StringId Intake::name_of(const Token& token) {
  if (token.flags == 0) return builder_.intern(token.text());
  bool bad_escape = false, bad_utf8 = false;
  decode_string(token.text(), scratch_, bad_escape, bad_utf8);
  const uint64_t ordinal = builder_.next_ordinal();
  const bool control = std::any_of(token.text().begin(), token.text().end(),
                                   [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (control) diagnostics_.add(Diag::kRawControlByte, ordinal);
  if (bad_escape) diagnostics_.add(Diag::kBadEscape, ordinal);
  if (bad_utf8) diagnostics_.add(Diag::kInvalidUtf8, ordinal);
  return builder_.intern(scratch_);
}

const Intake::CategoryInfo& Intake::category(const Token& token, StringId& id) {
  id = trace::kEmptyString;
  if (token.type == TokenType::kString && token.length > 0) {
    CategorySlot& slot =
        category_cache_[(token.length + static_cast<unsigned char>(token.begin[0])) % category_cache_.size()];
    const bool cached =
        slot.length == token.length &&
        same_bytes(slot.text.data(), token.begin, std::min(token.length, 16u)) &&
        (token.length <= 16 || same_bytes(slot.text.data() + 16, token.begin + 16, token.length - 16u));
    if (!cached) {
      id = name_of(token);
      if (token.flags == 0 && token.length <= slot.text.size()) {
        slot.length = token.length;
        std::copy_n(token.begin, token.length, slot.text.begin());
        slot.id = id;
      }
    } else {
      id = slot.id;
    }
  }
  if (id < categories_.size() && categories_[id].known) return categories_[id];
  if (id >= categories_.size()) categories_.resize(id + 1);
  CategoryInfo info;
  info.known = true;
  const std::string_view text = builder_.text(id);
  info.cls = category_class(text);
  info.flow_group = text == "ac2g"                                   ? 1
                    : text == "fwdbwd" || text == "forward_backward" ? 2
                                                                     : static_cast<uint8_t>(3 + id % 29);
  if (text == "Operator" || text == "Kernel" || text == "Runtime") marks_.capital_categories = true;
  if (is_kineto_class(info.cls)) marks_.kineto_categories = true;
  if (text == "async_cpu_to_gpu" || text == "async_gpu") marks_.old_flows = true;
  if (info.cls == EventClass::kSync || info.cls == EventClass::kDriver) marks_.sync_or_driver = true;
  categories_[id] = info;
  return categories_[id];
}

uint32_t Intake::thread_of(const Token& pid, const Token& tid) {
  int64_t p = 0, t = 0;
  uint8_t flags = 0;
  const bool numbers = pid.type == TokenType::kNumber && tid.type == TokenType::kNumber &&
                       parse_signed(pid.text(), p, flags) && parse_signed(tid.text(), t, flags);
  if (!numbers) {
    std::string pid_text, tid_text;
    bool ignored = false;
    decode_string(pid ? pid.text() : std::string_view{}, pid_text, ignored, ignored);
    decode_string(tid ? tid.text() : std::string_view{}, tid_text, ignored, ignored);
    return builder_.thread(pid_text, pid.type == TokenType::kNumber, tid_text,
                           tid.type == TokenType::kNumber);
  }
  // Ids are whatever the file says, up to the ends of 64 bits: the hash wraps.
  const uint64_t hash = static_cast<uint64_t>(p) * 31 + static_cast<uint64_t>(t);
  ThreadSlot& slot = thread_cache_[hash % thread_cache_.size()];
  if (slot.thread == UINT32_MAX || slot.pid != p || slot.tid != t) slot = {p, t, builder_.thread(p, t)};
  return slot.thread;
}

void Intake::odd_number(const Token& token, uint8_t flags) {
  const uint64_t ordinal = builder_.next_ordinal();
  if (flags & kHugeFlag) {
    diagnostics_.add(Diag::kHugeInteger, ordinal);
  } else if (token.type != TokenType::kContainer && token.text() != "null") {
    diagnostics_.add(Diag::kNonFiniteNumber, ordinal);
  }
}

bool Intake::time_of(const Token& token, int64_t& ns) {
  if (!token || token.type == TokenType::kContainer) return false;
  uint8_t flags = 0;
  if (!micros_to_ns(token.text(), ns, flags)) {
    odd_number(token, 0);
    return false;
  }
  if (token.type == TokenType::kString) diagnostics_.add(Diag::kTimeAsString, builder_.next_ordinal());
  if (flags & kFractionFlag) marks_.fractional_times = true;
  if (flags & kSubNanoFlag) diagnostics_.add(Diag::kTimeBelowNanosecond, builder_.next_ordinal());
  if (flags & kRangeFlag) diagnostics_.add(Diag::kTimeOutOfRange, builder_.next_ordinal());
  return true;
}

uint64_t Intake::id_arg(const RawEvent& e, Arg a) {
  if (!e.has(a)) return kNoId;
  uint64_t value = 0;
  uint8_t flags = 0;
  const std::string_view text = e.arg(a).text();
  if (parse_unsigned(text, value, flags) && value != kNoId) return value;
  if (text.substr(0, 1) != "-") odd_number(e.arg(a), flags);  // −1: not recorded
  return kNoId;
}
int64_t Intake::int_arg(const RawEvent& e, Arg a, int64_t missing) {
  if (!e.has(a)) return missing;
  int64_t value = 0;
  uint8_t flags = 0;
  if (parse_signed(e.arg(a).text(), value, flags)) return value;
  odd_number(e.arg(a), flags);
  return missing;
}
double Intake::real_arg(const RawEvent& e, Arg a) {
  if (!e.has(a)) return -1;
  double value = 0;
  if (parse_real(e.arg(a).text(), value)) return value;
  odd_number(e.arg(a), 0);
  return -1;
}
// "[16, 1, 1]"; numbers too large for the field are kept at its limit.
void Intake::triple_arg(const RawEvent& e, Arg a, std::array<int32_t, 3>& out) {
  out = {-1, -1, -1};
  if (!e.has(a)) return;
  const std::string_view text = e.arg(a).text();
  size_t at = 0;
  for (int32_t& part : out) {
    while (at < text.size() && (text[at] < '0' || text[at] > '9')) ++at;
    if (at == text.size()) return;
    int64_t value = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      value = std::min<int64_t>(value * 10 + (text[at] - '0'), std::numeric_limits<int32_t>::max());
    part = static_cast<int32_t>(value);
  }
}

void Intake::fill_operator(const RawEvent& e, EventInput& in) {
  in.external_id = id_arg(e, Arg::kExternalId);
  in.sequence = id_arg(e, Arg::kSequence);
  in.forward_thread = id_arg(e, Arg::kForwardThread);
  if (e.has(Arg::kConcreteInputs)) marks_.concrete_inputs = true;
  if (!e.inputs_begin) return;
  if (e.inputs_together) {
    in.operator_args = builder_.intern({e.inputs_begin, static_cast<size_t>(e.inputs_end - e.inputs_begin)});
    return;
  }
  scratch_.clear();
  const auto append = [&](Arg a, std::string_view key) {
    if (!e.has(a) || e.arg(a).type != TokenType::kContainer || e.arg(a).flags & kTooDeepFlag) return;
    if (!scratch_.empty()) scratch_ += ", ";
    scratch_.append("\"").append(key).append("\": ").append(e.arg(a).text());
  };
  append(Arg::kConcreteInputs, "Concrete Inputs");
  append(Arg::kInputType, "Input type");
  append(Arg::kInputStrides, "Input Strides");
  append(Arg::kInputDims, "Input Dims");
  in.operator_args = builder_.intern(scratch_);
}

void Intake::fill_device_work(const RawEvent& e, EventInput& in) {
  in.correlation = id_arg(e, Arg::kCorrelation);
  in.external_id = id_arg(e, Arg::kExternalId);
  if (in.external_id != kNoId)
    ++(in.external_id == in.correlation ? marks_.external_is_correlation : marks_.external_differs);
  const auto narrow = [](int64_t v) {
    return static_cast<int32_t>(std::clamp<int64_t>(v, -1, std::numeric_limits<int32_t>::max()));
  };
  in.queue.device = narrow(int_arg(e, Arg::kDevice));
  in.queue.context = narrow(int_arg(e, Arg::kContext));
  in.queue.stream = int_arg(e, Arg::kStream);
  in.bytes = int_arg(e, Arg::kBytes);
  const auto peer = [&](Arg a) {
    return static_cast<int32_t>(std::clamp<int64_t>(int_arg(e, a), -1, std::numeric_limits<int16_t>::max()));
  };
  in.from_device = peer(Arg::kFromDevice);
  in.to_device = peer(Arg::kToDevice);
  in.work = {int_arg(e, Arg::kBytesRead), int_arg(e, Arg::kBytesWritten), int_arg(e, Arg::kFlops)};
}

void Intake::fill_kernel(const RawEvent& e, EventInput& in) {
  trace::KernelConfig& c = config_;
  c = {};
  const auto narrow = [&](Arg a) {
    return static_cast<int32_t>(std::clamp<int64_t>(int_arg(e, a), -1, std::numeric_limits<int32_t>::max()));
  };
  c.registers = narrow(Arg::kRegisters);
  c.shared_bytes = int_arg(e, Arg::kSharedMemory);
  triple_arg(e, Arg::kGrid, c.grid);
  triple_arg(e, Arg::kBlock, c.block);
  triple_arg(e, Arg::kCluster, c.cluster);
  c.blocks_per_sm = real_arg(e, Arg::kBlocksPerSm);
  c.warps_per_sm = real_arg(e, Arg::kWarpsPerSm);
  c.reported_occupancy_pct = real_arg(e, Arg::kOccupancyPct);
  c.static_shared = int_arg(e, Arg::kStaticShared);
  c.dynamic_shared = int_arg(e, Arg::kDynamicShared);
  c.shared_optin = int_arg(e, Arg::kSharedOptin);
  c.local_per_thread = int_arg(e, Arg::kLocalMemory);
  in.graph_id = id_arg(e, Arg::kGraphId);
  in.graph_node_id = id_arg(e, Arg::kGraphNodeId);
  if (e.has(Arg::kOccupancyPct)) marks_.occupancy = true;
  if (e.has(Arg::kGraphId)) marks_.graph_ids = true;
  if (e.has(Arg::kOccupancyObject)) {
    marks_.graph_ids = true;
    const std::string_view text = e.arg(Arg::kOccupancyObject).text();
    const auto value_of = [&](std::string_view key) -> std::string_view {
      size_t at = text.find(key);
      if (at == std::string_view::npos) return {};
      at = text.find_first_not_of(" \t\r\n:", at + key.size());
      if (at == std::string_view::npos) return {};
      const size_t quote = text[at] == '"' ? 1 : 0;
      const size_t stop = text.find_first_of(quote ? "\"" : ",} \n", at + quote);
      return text.substr(at + quote, stop == std::string_view::npos ? 0 : stop - at - quote);
    };
    int64_t blocks = -1;
    uint8_t flags = 0;
    if (parse_signed(value_of("\"activeBlocksPerMultiprocessor\""), blocks, flags))
      c.reported_active_blocks = static_cast<int32_t>(std::clamp<int64_t>(blocks, -1, 1 << 20));
    c.reported_limiter = builder_.intern(value_of("\"limitingFactors\""));
  }
  in.config = &c;
}

void Intake::fill_memory(const RawEvent& e) {
  memory_ = {};
  const uint64_t address = id_arg(e, Arg::kAddress);
  memory_.address = address == kNoId ? 0 : address;
  memory_.bytes = int_arg(e, Arg::kBytes, 0);
  memory_.total_allocated = int_arg(e, Arg::kTotalAllocated);
  memory_.total_reserved = int_arg(e, Arg::kTotalReserved);
  memory_.device_type = static_cast<int32_t>(std::clamp<int64_t>(int_arg(e, Arg::kDeviceType), -1, 1 << 20));
  memory_.device_id = static_cast<int32_t>(std::clamp<int64_t>(int_arg(e, Arg::kDeviceId), -1, 1 << 20));
  marks_.memory_events = true;
}

void Intake::add(const RawEvent& e, EventClass cls, StringId cat, int64_t ts, int64_t dur) {
  EventInput in;
  const Token& name = e.member(EventKey::kName);
  if (!name) diagnostics_.add(Diag::kMissingName, builder_.next_ordinal());
  in.cls = cls;
  in.name = name ? name_of(name) : trace::kEmptyString;
  in.category = cat;
  in.ts_ns = ts;
  in.dur_ns = dur;
  in.thread = thread_of(e.member(EventKey::kPid), e.member(EventKey::kTid));
  switch (cls) {
    case EventClass::kOperator:
    case EventClass::kUserRange:
    case EventClass::kGpuAnnotation:
      fill_operator(e, in);
      in.work = {int_arg(e, Arg::kBytesRead), int_arg(e, Arg::kBytesWritten), int_arg(e, Arg::kFlops)};
      break;
    case EventClass::kRuntime:
    case EventClass::kDriver:
    case EventClass::kDeviceOther: in.correlation = id_arg(e, Arg::kCorrelation); break;
    case EventClass::kKernel: fill_kernel(e, in); [[fallthrough]];
    case EventClass::kMemcpy:
    case EventClass::kMemset:
      fill_device_work(e, in);
      if (ts == 0) diagnostics_.add(Diag::kTimeZero, builder_.next_ordinal());
      break;
    case EventClass::kPython: {
      const auto narrow = [&](Arg a) {
        return static_cast<uint32_t>(std::min<uint64_t>(id_arg(e, a), UINT32_MAX));
      };
      in.python = {narrow(Arg::kPythonId), narrow(Arg::kPythonParent), narrow(Arg::kPythonModule)};
      break;
    }
    case EventClass::kMemory:
      fill_memory(e);
      in.memory = &memory_;
      break;
    case EventClass::kSync:
      sync_ = {};
      if (e.has(Arg::kSyncKind)) sync_.kind = name_of(e.arg(Arg::kSyncKind));
      sync_.stream = int_arg(e, Arg::kStream);
      sync_.wait_on_stream = int_arg(e, Arg::kWaitOnStream);
      sync_.device = static_cast<int32_t>(std::clamp<int64_t>(int_arg(e, Arg::kDevice), -1, 1 << 20));
      in.sync = &sync_;
      break;
    case EventClass::kCounter:
      if (!e.first_number || !parse_real(e.first_number.text(), in.counter)) in.counter = 0;
      break;
    default: break;
  }
  builder_.add(in);
}

void Intake::complete(const RawEvent& e, EventClass cls, StringId cat) {
  ++builder_.totals().complete_events;
  int64_t ts = 0, dur = 0;
  if (!time_of(e.member(EventKey::kTs), ts)) return reject(Diag::kTimeMissing);
  const Token& duration = e.member(EventKey::kDur);
  if (!duration || !time_of(duration, dur)) {
    diagnostics_.add(Diag::kMissingDuration, builder_.next_ordinal());
    dur = 0;
  }
  if (cat == trace::kEmptyString) {
    // The autograd profiler before Kineto: no categories, rows named after what they hold.
    const std::string_view row = e.member(EventKey::kPid).text();
    if (e.member(EventKey::kPid).type == TokenType::kString &&
        (row == "CPU functions" || row == "CUDA functions")) {
      marks_.legacy_autograd = true;
      cls = row == "CPU functions" ? EventClass::kOperator : EventClass::kKernel;
    }
  }
  add(e, cls, cat, ts, dur);
}

void Intake::begin(const RawEvent& e, EventClass cls, StringId cat) {
  int64_t ts = 0;
  if (!time_of(e.member(EventKey::kTs), ts)) return reject(Diag::kTimeMissing);
  const uint32_t thread = thread_of(e.member(EventKey::kPid), e.member(EventKey::kTid));
  if (open_count_ < kMaxOpen) {
    open_spans_[thread].push_back(static_cast<trace::EventIndex>(builder_.size()));
    ++open_count_;
  }
  add(e, cls, cat, ts, 0);
}

void Intake::end(const RawEvent& e) {
  int64_t ts = 0;
  if (!time_of(e.member(EventKey::kTs), ts)) return reject(Diag::kTimeMissing);
  const auto open = open_spans_.find(thread_of(e.member(EventKey::kPid), e.member(EventKey::kTid)));
  if (open == open_spans_.end() || open->second.empty()) return reject(Diag::kEndWithoutBegin);
  builder_.close(open->second.back(), ts);
  open->second.pop_back();
  --open_count_;
  builder_.skip_entry();
}

void Intake::async(const RawEvent& e, char phase, StringId cat) {
  int64_t ts = 0;
  if (!time_of(e.member(EventKey::kTs), ts)) return reject(Diag::kTimeMissing);
  const bool begins = phase == 'b' || phase == 'S';
  std::string key = std::to_string(cat);
  for (const EventKey k : {EventKey::kId, EventKey::kId2, EventKey::kScope})
    if (e.member(k)) key.append("\x1f").append(e.member(k).text().substr(0, 256));
  if (begins) {
    if (open_count_ < kMaxOpen) {
      open_async_[key].push_back(static_cast<trace::EventIndex>(builder_.size()));
      ++open_count_;
    }
    return add(e, EventClass::kAsyncSpan, cat, ts, 0);
  }
  const auto open = open_async_.find(key);
  if (open == open_async_.end()) return reject(Diag::kEndWithoutBegin);
  builder_.close(open->second.back(), ts);
  open->second.pop_back();
  --open_count_;
  if (open->second.empty()) open_async_.erase(open);
  builder_.skip_entry();
}

void Intake::flow(const RawEvent& e, char phase, const CategoryInfo& cat) {
  ++builder_.totals().flow_events;
  const Token& id = e.member(EventKey::kId);
  uint64_t value = 0;
  uint8_t flags = 0;
  if (phase != 't' && id) {
    if (!parse_unsigned(id.text(), value, flags)) value = std::hash<std::string_view>{}(id.text());
    flows_.add(cat.flow_group, value, phase == 's');
  }
  builder_.skip_entry();
}

void Intake::metadata(const RawEvent& e) {
  ++builder_.totals().metadata_events;
  const std::string_view what = e.member(EventKey::kName).text();
  const Token& pid = e.member(EventKey::kPid);
  const auto text_arg = [&](Arg a) {
    return e.has(a) ? builder_.text(name_of(e.arg(a))) : std::string_view{};
  };
  std::string pid_text;
  bool ignored = false;
  if (pid) decode_string(pid.text(), pid_text, ignored, ignored);
  // Copied: naming interns, which may move the pool's bytes.
  if (what == "process_name") {
    builder_.name_process(pid_text, std::string(text_arg(Arg::kName)));
  } else if (what == "process_labels") {
    builder_.label_process(pid_text, std::string(text_arg(Arg::kLabels)));
  } else if (what == "thread_name") {
    builder_.name_thread(thread_of(pid, e.member(EventKey::kTid)), std::string(text_arg(Arg::kName)));
  } else if (what == "thread_sort_index" && e.has(Arg::kSortIndex)) {
    builder_.sort_thread(thread_of(pid, e.member(EventKey::kTid)), int_arg(e, Arg::kSortIndex));
  } else if (what == kTruncatedMark) {
    diagnostics_.add(Diag::kTruncatedFile, builder_.next_ordinal());
    builder_.set_truncated();
  }
  builder_.skip_entry();
}

bool Intake::accept(const RawEvent& e) {
  rejected_ = false;
  take(e);
  return !rejected_;
}

void Intake::take(const RawEvent& e) {
  if (e.oddities != 0) diagnose(e.oddities);
  const Token& ph = e.member(EventKey::kPh);
  if (ph.type != TokenType::kString || ph.length != 1) return reject(Diag::kUnknownPhase);
  ++events_with_phase_;
  StringId cat = trace::kEmptyString;
  const char phase = *ph.begin;
  if (phase == 'M') return metadata(e);
  const CategoryInfo& info = category(e.member(EventKey::kCat), cat);
  switch (phase) {
    case 'X': return complete(e, info.cls, cat);
    case 's':
    case 't':
    case 'f': return flow(e, phase, info);
    case 'B': return begin(e, info.cls, cat);
    case 'E': return end(e);
    case 'b':
    case 'e':
    case 'S':
    case 'F': return async(e, phase, cat);
    case 'i':
    case 'I':
    case 'n':
    case 'R':
    case 'C': {
      int64_t ts = 0;
      if (!time_of(e.member(EventKey::kTs), ts)) return reject(Diag::kTimeMissing);
      const bool memory = phase != 'C' && e.member(EventKey::kName).text() == "[memory]";
      return add(e,
                 phase == 'C' ? EventClass::kCounter
                 : memory     ? EventClass::kMemory
                              : EventClass::kInstant,
                 cat, ts, 0);
    }
    // Object snapshots, samples, memory dumps, clock marks: known, of no use here.
    case 'N':
    case 'O':
    case 'D':
    case 'P':
    case 'T':
    case 'p':
    case 'c':
    case 'v':
    case 'V':
    case '(':
    case ')': return builder_.skip_entry();
    default: return reject(Diag::kUnknownPhase);
  }
}

void Intake::finish() {
  const auto leave_open = [&](const std::vector<trace::EventIndex>& open) {
    for (const trace::EventIndex i : open) {
      diagnostics_.add(Diag::kUnfinishedSpan);
      builder_.close(i, std::max(builder_.latest_ns(), builder_.ts_ns(i)));
    }
  };
  for (const auto& [thread, open] : open_spans_) leave_open(open);
  for (const auto& [key, open] : open_async_) leave_open(open);
  const FlowPairs::Counts flows = flows_.counts();
  if (flows.without_end)
    diagnostics_.add(Diag::kFlowWithoutEnd, trace::Diagnostics::kNoOrdinal, flows.without_end);
  if (flows.without_start)
    diagnostics_.add(Diag::kFlowWithoutStart, trace::Diagnostics::kNoOrdinal, flows.without_start);
  if (flows.unchecked) diagnostics_.add(Diag::kFlowsUnchecked);
}

}  // namespace attnscope::formats::chrome
