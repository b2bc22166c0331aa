#include "analysis/check_subject.h"

#include "analysis/occupancy.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_set>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;

namespace {

int64_t middle(std::vector<int64_t> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2),
                   values.end());
  return values[(values.size() - 1) / 2];
}

void add_name(Named& named, const std::string& name, EventIndex event) {
  const auto at = std::lower_bound(named.names.begin(), named.names.end(), name);
  const auto row = static_cast<size_t>(at - named.names.begin());
  if (at == named.names.end() || *at != name) {
    named.names.insert(at, name);
    named.events.insert(named.events.begin() + static_cast<ptrdiff_t>(row), std::vector<EventIndex>());
  }
  named.events[row].push_back(event);
}

// "flash" of attnscope::flash above a piece of work of ours; empty when it is not ours.
std::string own_variant(const RuleFacts& facts, EventIndex event) {
  for (EventIndex op : facts.above(event).operators) {
    const std::string_view name = facts.trace().name(op);
    for (std::string_view variant : {"flash", "efficient", "cudnn"})
      if (name.starts_with("attnscope::") && name.substr(11).starts_with(variant))
        return std::string(variant);
  }
  return {};
}

bool multiplies(const KernelName& name) {
  if (name.kind == KernelKind::kGemm || name.kind == KernelKind::kConv) return !name.is_gemv;
  return name.kind == KernelKind::kAttention &&
         (name.role == AttentionRole::kMain || name.role == AttentionRole::kSplit);
}

}  // namespace

WorkByLaunch::WorkByLaunch(const RuleFacts& facts) {
  const trace::Trace& t = facts.trace();
  struct At {
    uint32_t process;
    int64_t ns;
    Work work;
  };
  std::vector<At> all;
  for (const Work& work : facts.work()) {
    const bool device = trace::is_device_work(t.cls(work.event));
    const EventIndex launch = device ? facts.links().launch(work.event) : work.event;
    // Inline work of a CPU recording has no launch call: it ran where and when it stands.
    const bool inline_work =
        device && launch == kNoEvent && facts.links().device_link(work.event).basis == trace::LinkBasis::kCpu;
    if (launch == kNoEvent && !inline_work) continue;
    const EventIndex at = launch == kNoEvent ? work.event : launch;
    all.push_back({t.thread_of(at).process, t.ts_ns(at), work});
  }
  std::stable_sort(all.begin(), all.end(), [](const At& a, const At& b) {
    return a.process != b.process ? a.process < b.process : a.ns < b.ns;
  });
  for (const At& a : all) {
    if (a.process >= processes_.size()) processes_.resize(a.process + 1);
    processes_[a.process].at_ns.push_back(a.ns);
    processes_[a.process].work.push_back(a.work);
  }
}

std::span<const Work> WorkByLaunch::between(uint32_t process, int64_t begin_ns, int64_t end_ns) const {
  if (process >= processes_.size()) return {};
  const Process& p = processes_[process];
  const auto from = std::lower_bound(p.at_ns.begin(), p.at_ns.end(), begin_ns) - p.at_ns.begin();
  const auto to = std::upper_bound(p.at_ns.begin(), p.at_ns.end(), end_ns) - p.at_ns.begin();
  return from >= to ? std::span<const Work>()
                    : std::span(p.work).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
}

int64_t GuessedCalls::median_device_ns() const {
  std::vector<int64_t> values;
  values.reserve(calls.size());
  for (const GuessedCall& call : calls) values.push_back(call.device_ns);
  return middle(std::move(values));
}

int64_t GuessedCalls::median_host_ns() const {
  std::vector<int64_t> values;
  values.reserve(calls.size());
  for (const GuessedCall& call : calls) values.push_back(call.host_ns);
  return middle(std::move(values));
}

GuessedCalls find_calls(const RuleFacts& facts, const WorkByLaunch& work, const GuessTable& table) {
  const trace::Trace& t = facts.trace();
  // Names are few: matched once each, not once per event.
  std::unordered_set<trace::StringId> names;
  for (const RangeStats& range : facts.metrics().ranges)
    if (table.matches(t.text(range.name))) names.insert(range.name);
  GuessedCalls found;
  if (names.empty()) return found;
  for (uint32_t thread = 0; thread < t.threads().size(); ++thread) {
    // The matching call that is open. Calls of no duration at one time count once: as nested, not in a row.
    int64_t open_since = INT64_MIN, open_until = INT64_MIN;
    for (EventIndex event : facts.links().preorder(thread)) {
      if (!names.contains(t.name_id(event))) continue;
      const bool begins_inside = t.ts_ns(event) < open_until || t.ts_ns(event) == open_since;
      if (begins_inside && t.end_ns(event) <= open_until) continue;  // nested in it
      open_since = t.ts_ns(event);
      open_until = t.end_ns(event);
      GuessedCall call;
      call.event = event;
      call.host_ns = t.dur_ns(event);
      call.work = work.between(t.thread_of(event).process, t.ts_ns(event), t.end_ns(event));
      for (const Work& w : call.work) {
        (w.cls == EventClass::kMemcpy   ? call.copies
         : w.cls == EventClass::kMemset ? call.fills
                                        : call.kernels) += 1;
        call.device_ns += w.ns;
      }
      found.calls.push_back(call);
    }
  }
  std::stable_sort(found.calls.begin(), found.calls.end(), [&](const GuessedCall& a, const GuessedCall& b) {
    return t.ts_ns(a.event) < t.ts_ns(b.event);
  });
  return found;
}

std::vector<KernelKind> sequence_of(const GuessedCall& call) {
  std::vector<KernelKind> kinds;
  for (const Work& work : call.work)
    if (work.cls != EventClass::kMemcpy && work.cls != EventClass::kMemset) kinds.push_back(work.name->kind);
  return kinds;
}

UnitCount tensor_core_use(const GuessedCalls& calls) {
  UnitCount count;
  for (const GuessedCall& call : calls.calls)
    for (const Work& work : call.work) {
      if (!multiplies(*work.name)) continue;
      if (work.name->tensor_cores == Tristate::kUnknown) {
        ++count.unknown;
        continue;
      }
      ++count.known;
      const bool on = work.name->tensor_cores == Tristate::kYes;
      count.on_tensor_cores += on ? 1 : 0;
      (on ? count.on : count.off).push_back(work.event);
      if (count.example.empty()) count.example = short_kernel_name(*work.name);
    }
  return count;
}

Named dtypes_of(const RuleFacts& facts, const GuessedCalls& calls) {
  Named named;
  for (const GuessedCall& call : calls.calls)
    for (const Work& work : call.work) {
      const bool product = work.name->kind == KernelKind::kGemm || work.name->kind == KernelKind::kConv;
      if (!product && work.name->kind != KernelKind::kAttention) continue;
      if (work.name->role == AttentionRole::kCombine || work.name->role == AttentionRole::kConvert ||
          work.name->role == AttentionRole::kPrepare)
        continue;
      NumericType type = work.name->input;
      if (const int attention = facts.attention_of(work.event);
          type == NumericType::kUnknown && attention >= 0)
        type = facts.metrics().attention_calls[static_cast<size_t>(attention)].dtype;
      if (type != NumericType::kUnknown) add_name(named, std::string(numeric_name(type)), work.event);
    }
  return named;
}

Named backends_of(const RuleFacts& facts, const GuessedCalls& calls) {
  Named named;
  std::unordered_set<int> seen;
  for (const GuessedCall& call : calls.calls)
    for (const Work& work : call.work) {
      const int index = facts.attention_of(work.event);
      if (index < 0 || !seen.insert(index).second) continue;
      const AttentionCall& attention = facts.metrics().attention_calls[static_cast<size_t>(index)];
      // Our own kernels: the variant's operator stands below attnscope::sdpa.
      if (attention.implementation == AttentionImpl::kAttnscope)
        if (const std::string variant = own_variant(facts, work.event); !variant.empty()) {
          add_name(named, variant, attention.event);
          continue;
        }
      const bool unfused = attention.hand_written || attention.implementation == AttentionImpl::kNone;
      add_name(named, unfused ? "unfused" : std::string(implementation_name(attention.implementation)),
               attention.event);
    }
  return named;
}

OccupancyRange occupancy_of(const RuleFacts& facts, const GuessedCalls& calls) {
  OccupancyRange range;
  if (facts.metrics().cpu_only) return range;
  for (const GuessedCall& call : calls.calls)
    for (const Work& work : call.work) {
      if (work.cls != EventClass::kKernel) continue;
      const trace::DeviceProperties* device = facts.device_of(work.event);
      const std::optional<SmLimits> sm = device ? sm_limits(*device) : std::nullopt;
      const std::optional<BlockDemand> demand = block_demand(facts.trace().kernel_config(work.event));
      if (!sm || !demand) continue;
      const double percent = occupancy(*sm, *demand).percent;
      range.least = range.known == 0 ? percent : std::min(range.least, percent);
      range.most = range.known == 0 ? percent : std::max(range.most, percent);
      ++range.known;
      range.kernels.emplace_back(percent, work.event);
    }
  return range;
}

}  // namespace attnscope
