#include "trace/builder.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>
#include <unordered_map>

namespace attnscope::trace {
namespace {

constexpr int64_t kFarNs = std::numeric_limits<int64_t>::max() / 4;  // differences of two times still fit
constexpr int64_t kMaxDurationNs = int64_t{1} << 52;  // 52 days; thousands of these still add up in 63 bits
constexpr size_t kMaxThreads = 65535;
constexpr size_t kMaxKinds = 4000;  // of 4,096: room for one catch-all per class

std::string_view usual_category(EventClass c) {
  switch (c) {
    case EventClass::kOperator: return "cpu_op";
    case EventClass::kUserRange: return "user_annotation";
    case EventClass::kGpuAnnotation: return "gpu_user_annotation";
    case EventClass::kRuntime: return "cuda_runtime";
    case EventClass::kDriver: return "cuda_driver";
    case EventClass::kKernel: return "kernel";
    case EventClass::kMemcpy: return "gpu_memcpy";
    case EventClass::kMemset: return "gpu_memset";
    case EventClass::kSync: return "cuda_sync";
    case EventClass::kOverhead: return "overhead";
    case EventClass::kPython: return "python_function";
    case EventClass::kMemory: return "cpu_instant_event";
    case EventClass::kProfiler: return "Trace";
    default: return {};
  }
}

uint64_t hash_config(const KernelConfig& c) {
  uint64_t h = 0x9E3779B97F4A7C15ull;
  const auto add = [&](int64_t v) {
    h = (h ^ static_cast<uint64_t>(v)) * 0xD6E8FEB86659FD93ull, h ^= h >> 32;
  };
  add(c.registers);
  add(c.shared_bytes);
  for (const int32_t g : c.grid) add(g);
  for (const int32_t b : c.block) add(b);
  add(std::bit_cast<int64_t>(c.reported_occupancy_pct + 0.0));  // any number; −0 is 0
  return h;
}

}  // namespace

struct TraceBuilder::State {
  Trace trace;
  uint64_t entries = 0;
  int64_t latest = std::numeric_limits<int64_t>::min();
  int64_t earliest = std::numeric_limits<int64_t>::max();  // of times that are not 0
  std::map<std::pair<int64_t, int64_t>, uint32_t> number_threads;
  std::unordered_map<std::string, uint32_t> text_threads;  // "pid\0tid" with kinds
  std::unordered_map<std::string, uint32_t> processes;
  struct ProcessNames {
    StringId name = kEmptyString, labels = kEmptyString;
  };
  std::vector<ProcessNames> process_names;
  // Small direct-mapped caches in front of the exact tables.
  std::array<std::pair<uint64_t, uint32_t>, 256> kind_cache{};
  std::unordered_map<uint64_t, uint32_t> kinds;
  std::vector<uint32_t> config_slots = std::vector<uint32_t>(64, 0);  // row + 1
  std::map<std::tuple<int32_t, int32_t, int64_t>, uint32_t> queues;
  uint32_t last_queue = 0;

  State() {
    trace.kinds_.push_back({EventClass::kOther, kEmptyString});
    kinds.emplace(kind_key(EventClass::kOther, kEmptyString), 0);
    kind_cache.fill({UINT64_MAX, 0});
    trace.queues_.push_back({});
    queues.emplace(std::tuple(-1, -1, int64_t{-1}), 0);
  }
  static uint64_t kind_key(EventClass c, StringId category) {
    return uint64_t{category} << 8 | static_cast<uint64_t>(c);
  }
  uint32_t kind(EventClass c, StringId category);
  uint32_t queue(const Queue& q);
  uint32_t config(const KernelConfig& c);
  uint32_t process(std::string_view pid);
  uint32_t new_thread(Thread thread);
  uint32_t side(const EventInput& e, EventIndex i);
  uint32_t op_side(const EventInput& e, EventIndex i);
};

uint32_t TraceBuilder::State::kind(EventClass c, StringId category) {
  if (category == kEmptyString) category = trace.strings_.intern(usual_category(c));
  uint64_t key = kind_key(c, category);
  auto& cached = kind_cache[(key ^ key >> 8) & 255];
  if (cached.first == key) return cached.second;
  if (trace.kinds_.size() >= kMaxKinds && !kinds.contains(key)) {
    if (category != kEmptyString) trace.diagnostics_.add(Diag::kTooManyCategories, entries);
    key = kind_key(c, kEmptyString);
    category = kEmptyString;
  }
  auto [it, fresh] = kinds.try_emplace(key, static_cast<uint32_t>(trace.kinds_.size()));
  if (fresh) trace.kinds_.push_back({c, category});
  cached = {kind_key(c, category), it->second};
  return it->second;
}

uint32_t TraceBuilder::State::queue(const Queue& q) {
  if (trace.queues_[last_queue] == q) return last_queue;
  auto [it, fresh] =
      queues.try_emplace({q.device, q.context, q.stream}, static_cast<uint32_t>(trace.queues_.size()));
  if (fresh) trace.queues_.push_back(q);
  return last_queue = it->second;
}

uint32_t TraceBuilder::State::config(const KernelConfig& c) {
  auto& rows = trace.kernel_configs_;
  size_t mask = config_slots.size() - 1;
  size_t slot = hash_config(c) & mask;
  for (size_t probe = 0; config_slots[slot] != 0 && probe < 256; ++probe, slot = (slot + 1) & mask)
    if (rows[config_slots[slot] - 1] == c) return config_slots[slot] - 1;
  rows.push_back(c);
  if (config_slots[slot] == 0) config_slots[slot] = static_cast<uint32_t>(rows.size());
  if (rows.size() * 2 > config_slots.size()) {
    config_slots.assign(config_slots.size() * 2, 0);
    mask = config_slots.size() - 1;
    for (uint32_t row = 0; row < rows.size(); ++row) {
      size_t s = hash_config(rows[row]) & mask, probe = 0;
      while (config_slots[s] != 0 && probe++ < 256) s = (s + 1) & mask;
      if (config_slots[s] == 0) config_slots[s] = row + 1;
    }
  }
  return static_cast<uint32_t>(rows.size() - 1);
}

uint32_t TraceBuilder::State::process(std::string_view pid) {
  auto [it, fresh] = processes.try_emplace(std::string(pid), static_cast<uint32_t>(process_names.size()));
  if (fresh) process_names.emplace_back();
  return it->second;
}

uint32_t TraceBuilder::State::new_thread(Thread thread) {
  if (trace.threads_.size() >= kMaxThreads) {
    trace.diagnostics_.add(Diag::kTooManyThreads, entries);
    return static_cast<uint32_t>(kMaxThreads - 1);
  }
  thread.process = process(thread.pid);
  trace.threads_.push_back(std::move(thread));
  return static_cast<uint32_t>(trace.threads_.size() - 1);
}

namespace {
constexpr uint32_t kNone32 = UINT32_MAX, kEscape32 = UINT32_MAX - 1;
uint32_t narrow(uint64_t id) {
  if (id == kNoId) return kNone32;
  return id < kEscape32 ? static_cast<uint32_t>(id) : kEscape32;
}
uint32_t narrow31(uint64_t id) {
  constexpr uint32_t none = (1u << 31) - 1, escape = none - 1;
  if (id == kNoId) return none;
  return id < escape ? static_cast<uint32_t>(id) : escape;
}
}  // namespace

uint32_t TraceBuilder::State::op_side(const EventInput& e, EventIndex i) {
  const bool plain = e.operator_args == kEmptyString && e.sequence == kNoId && e.forward_thread == kNoId;
  if (plain && (e.external_id == kNoId || e.external_id < Trace::kEscapeSide)) return narrow31(e.external_id);
  const Trace::OpSide row{narrow(e.external_id), e.operator_args, narrow(e.sequence),
                          narrow(e.forward_thread)};
  if (row.external_id == kEscape32 || row.sequence == kEscape32)
    trace.wide_ids_.push_back({i, {kNoId, e.external_id, e.sequence, kNoId, kNoId}});
  trace.ops_.push_back(row);
  return Trace::kSideFlag | static_cast<uint32_t>(trace.ops_.size() - 1);
}

// The per-class row of an event; see Trace::side_.
uint32_t TraceBuilder::State::side(const EventInput& e, EventIndex i) {
  const auto row = [](const auto& column) { return static_cast<uint32_t>(column.size() - 1); };
  switch (e.cls) {
    case EventClass::kOperator:
    case EventClass::kUserRange:
    case EventClass::kGpuAnnotation: return op_side(e, i);
    case EventClass::kRuntime:
    case EventClass::kDriver:
    case EventClass::kDeviceOther: {
      const uint32_t id = narrow31(e.correlation);
      if (id == Trace::kEscapeSide)
        trace.wide_ids_.push_back({i, {e.correlation, kNoId, kNoId, kNoId, kNoId}});
      return id;
    }
    case EventClass::kKernel: {
      static constexpr KernelConfig kUnknown{};
      const Trace::KernelSide k{
          narrow(e.correlation), narrow(e.external_id),   config(e.config ? *e.config : kUnknown),
          narrow(e.graph_id),    narrow(e.graph_node_id), queue(e.queue)};
      if (k.correlation == kEscape32 || k.external_id == kEscape32 || k.graph_id == kEscape32 ||
          k.graph_node_id == kEscape32)
        trace.wide_ids_.push_back({i, {e.correlation, e.external_id, kNoId, e.graph_id, e.graph_node_id}});
      trace.kernels_.push_back(k);
      ++trace.totals_.kernels;
      return row(trace.kernels_);
    }
    case EventClass::kMemcpy:
    case EventClass::kMemset: {
      const Trace::CopySide c{narrow(e.correlation),
                              narrow(e.external_id),
                              queue(e.queue),
                              static_cast<int16_t>(e.from_device),
                              static_cast<int16_t>(e.to_device),
                              e.bytes};
      if (c.correlation == kEscape32 || c.external_id == kEscape32)
        trace.wide_ids_.push_back({i, {e.correlation, e.external_id, kNoId, kNoId, kNoId}});
      trace.copies_.push_back(c);
      ++(e.cls == EventClass::kMemcpy ? trace.totals_.copies : trace.totals_.fills);
      return row(trace.copies_);
    }
    case EventClass::kMemory:
      trace.memory_.push_back(e.memory ? *e.memory : MemoryInfo{});
      return row(trace.memory_);
    case EventClass::kSync: trace.syncs_.push_back(e.sync ? *e.sync : SyncInfo{}); return row(trace.syncs_);
    case EventClass::kPython: trace.python_.push_back(e.python); return row(trace.python_);
    case EventClass::kCounter: trace.counters_.push_back(e.counter); return row(trace.counters_);
    default: return 0;
  }
}

TraceBuilder::TraceBuilder() : state_(std::make_unique<State>()) {}
TraceBuilder::~TraceBuilder() = default;
TraceBuilder::TraceBuilder(TraceBuilder&&) noexcept = default;
TraceBuilder& TraceBuilder::operator=(TraceBuilder&&) noexcept = default;

StringId TraceBuilder::intern(std::string_view text) {
  return state_->trace.strings_.intern(text);
}
std::string_view TraceBuilder::text(StringId id) const {
  return state_->trace.strings_.view(id);
}

uint32_t TraceBuilder::thread(int64_t pid, int64_t tid) {
  if (auto it = state_->number_threads.find({pid, tid}); it != state_->number_threads.end())
    return it->second;
  Thread t;
  t.pid = std::to_string(pid);
  t.tid = std::to_string(tid);
  const uint32_t row = state_->new_thread(std::move(t));
  if (state_->number_threads.size() < kMaxThreads) state_->number_threads.emplace(std::pair(pid, tid), row);
  return row;
}

namespace {
// A decimal integer exactly as std::to_string would write it, so that both spellings share one row.
bool canonical_number(std::string_view s, int64_t& out) {
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), out);
  return ec == std::errc() && end == s.data() + s.size() && std::to_string(out) == s;
}
}  // namespace

uint32_t TraceBuilder::thread(std::string_view pid, bool pid_is_number, std::string_view tid,
                              bool tid_is_number) {
  // Digits in a string name the same row as the number: one file writes both (PyTorch 1.8 nightlies).
  int64_t p = 0, t = 0;
  if (canonical_number(pid, p) && canonical_number(tid, t)) return thread(p, t);
  std::string key;
  key.append(pid).push_back('\0');
  key.append(tid);
  if (auto it = state_->text_threads.find(key); it != state_->text_threads.end()) return it->second;
  Thread row;
  row.pid = pid;
  row.tid = tid;
  row.pid_is_number = pid_is_number || canonical_number(pid, p);
  row.tid_is_number = tid_is_number || canonical_number(tid, t);
  const uint32_t index = state_->new_thread(std::move(row));
  if (state_->text_threads.size() < kMaxThreads) state_->text_threads.emplace(std::move(key), index);
  return index;
}

void TraceBuilder::name_thread(uint32_t thread, std::string_view name) {
  state_->trace.threads_[thread].name = intern(name);
}
void TraceBuilder::sort_thread(uint32_t thread, int64_t sort_index) {
  state_->trace.threads_[thread].sort_index = sort_index;
}
void TraceBuilder::name_process(std::string_view pid, std::string_view name) {
  if (state_->processes.size() > kMaxThreads) return;
  const uint32_t p = state_->process(pid);
  state_->process_names[p].name = intern(name);
}
void TraceBuilder::label_process(std::string_view pid, std::string_view labels) {
  if (state_->processes.size() > kMaxThreads) return;
  const uint32_t p = state_->process(pid);
  state_->process_names[p].labels = intern(labels);
}

EventIndex TraceBuilder::add(const EventInput& e) {
  State& s = *state_;
  Trace& t = s.trace;
  const auto i = static_cast<EventIndex>(t.ts_.size());
  int64_t dur = e.dur_ns;
  if (dur < 0) {
    t.diagnostics_.add(Diag::kNegativeDuration, s.entries);
    dur = 0;
  }
  if (dur > kMaxDurationNs) {
    t.diagnostics_.add(Diag::kTimeOutOfRange, s.entries);
    dur = kMaxDurationNs;
  }
  const int64_t ts = std::clamp(e.ts_ns, -kFarNs, kFarNs);
  const uint64_t word = s.entries / 64;
  while (t.kept_.size() <= word) t.kept_.push_back(0);
  t.kept_[word] |= uint64_t{1} << s.entries % 64;
  ++s.entries;
  t.side_.push_back(s.side(e, i));
  t.ts_.push_back(ts);
  t.dur_.push_back(dur < Trace::kWide ? static_cast<uint32_t>(dur) : Trace::kWide);
  if (dur >= Trace::kWide) t.wide_dur_.push_back({i, dur});
  t.name_.push_back(e.name);
  t.thread_kind_.push_back(e.thread | s.kind(e.cls, e.category) << Trace::kThreadBits);
  if (e.work != WorkInfo{}) t.work_.push_back({i, e.work});
  s.latest = std::max(s.latest, ts + dur);
  if (ts != 0) s.earliest = std::min(s.earliest, ts);
  return i;
}

void TraceBuilder::skip_entry() {
  ++state_->entries;
}
uint64_t TraceBuilder::next_ordinal() const {
  return state_->entries;
}

void TraceBuilder::close(EventIndex i, int64_t end_ns) {
  State& s = *state_;
  Trace& t = s.trace;
  int64_t dur = std::clamp(end_ns, -kFarNs, kFarNs) - t.ts_[i];
  if (dur > kMaxDurationNs) {
    t.diagnostics_.add(Diag::kTimeOutOfRange);
    dur = kMaxDurationNs;
  }
  if (dur < 0) {
    t.diagnostics_.add(Diag::kNegativeDuration);
    dur = 0;
  }
  s.latest = std::max(s.latest, t.ts_[i] + dur);
  if (dur < Trace::kWide) {
    t.dur_[i] = static_cast<uint32_t>(dur);
    return;
  }
  // Rare and out of order: the table is put in order by finish().
  t.dur_[i] = Trace::kWide;
  t.wide_dur_.push_back({i, dur});
}

void TraceBuilder::add_device(DeviceProperties device) {
  if (state_->trace.devices_.size() < 4096) state_->trace.devices_.push_back(std::move(device));
}
Metadata& TraceBuilder::metadata() {
  return state_->trace.metadata_;
}
Clock& TraceBuilder::clock() {
  return state_->trace.clock_;
}
Totals& TraceBuilder::totals() {
  return state_->trace.totals_;
}
Diagnostics& TraceBuilder::diagnostics() {
  return state_->trace.diagnostics_;
}
void TraceBuilder::set_era(Era era) {
  state_->trace.era_ = era;
}
void TraceBuilder::set_truncated() {
  state_->trace.truncated_ = true;
}
EventClass TraceBuilder::cls(EventIndex i) const {
  return state_->trace.cls(i);
}
int64_t TraceBuilder::ts_ns(EventIndex i) const {
  return state_->trace.ts_[i];
}
size_t TraceBuilder::size() const {
  return state_->trace.size();
}
int64_t TraceBuilder::latest_ns() const {
  return state_->latest;
}

Trace TraceBuilder::finish() {
  State& s = *state_;
  Trace& t = s.trace;
  t.totals_.events = s.entries;
  t.clock_.origin_ns = t.ts_.empty() || s.earliest == std::numeric_limits<int64_t>::max() ? 0 : s.earliest;
  for (int64_t& ts : t.ts_) ts -= t.clock_.origin_ns;
  std::stable_sort(t.wide_dur_.begin(), t.wide_dur_.end(),
                   [](const auto& a, const auto& b) { return a.event < b.event; });

  uint32_t rank = 0;
  for (size_t w = 0; w < t.kept_.size(); ++w) {
    if (w % 8 == 0) t.kept_rank_.push_back(rank);
    rank += static_cast<uint32_t>(std::popcount(t.kept_[w]));
  }
  for (Thread& thread : t.threads_) {
    thread.process_name = s.process_names[thread.process].name;
    thread.process_labels = s.process_names[thread.process].labels;
  }
  std::vector<bool> used(t.queues_.size());
  for (const auto& k : t.kernels_) used[k.queue] = true;
  for (const auto& c : t.copies_) used[c.queue] = true;
  for (DeviceProperties& d : t.devices_)
    for (size_t q = 0; q < used.size(); ++q)
      if (used[q] && t.queues_[q].device == d.id) d.has_events = true;

  const auto shrink = [](auto&... columns) { (columns.shrink_to_fit(), ...); };
  shrink(t.ts_, t.dur_, t.name_, t.thread_kind_, t.side_, t.kept_, t.kept_rank_, t.strings_, t.kernels_,
         t.copies_, t.ops_, t.memory_, t.syncs_, t.python_, t.counters_, t.wide_dur_, t.wide_ids_, t.work_);
  Trace done = std::move(t);
  state_.reset();
  return done;
}

}  // namespace attnscope::trace
