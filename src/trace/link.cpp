#include "trace/link.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace attnscope::trace {

std::string_view basis_name(LinkBasis b) {
  switch (b) {
    case LinkBasis::kNone: return "none";
    case LinkBasis::kCorrelation: return "correlation";
    case LinkBasis::kGraph: return "graph";
    case LinkBasis::kCpu: return "inline";
  }
  return "?";
}
std::string_view confidence_name(Confidence c) {
  switch (c) {
    case Confidence::kNone: return "none";
    case Confidence::kLow: return "low";
    case Confidence::kMedium: return "medium";
    case Confidence::kHigh: return "high";
  }
  return "?";
}

namespace {

// Sorts what consists of a few ascending runs, as profilers write it: finds the runs and merges neighbours.
template <typename T, typename Before>
void sort_runs(T* first, T* last, Before before) {
  std::vector<T*> bounds{first};
  for (T* at = first; at != last;) {
    at = std::is_sorted_until(at, last, before);
    bounds.push_back(at);
    if (bounds.size() > 64 + static_cast<size_t>(last - first) / 64) return std::sort(first, last, before);
  }
  while (bounds.size() > 2) {
    size_t kept = 1;
    for (size_t b = 2; b < bounds.size(); b += 2) {
      std::inplace_merge(bounds[b - 2], bounds[b - 1], bounds[b], before);
      bounds[kept++] = bounds[b];
    }
    if (bounds.size() % 2 == 0) bounds[kept++] = bounds.back();
    bounds.resize(kept);
  }
}

}  // namespace

// Launch calls by correlation id: a plain array where the ids are dense, as CUPTI's are, else sorted pairs.
class LaunchTable {
 public:
  explicit LaunchTable(const Trace& t) {
    uint64_t lo = kNoId, hi = 0;
    size_t n = 0;
    for (EventIndex i = 0; i < t.size(); ++i) {
      if (!is_launch_api(t.cls(i))) continue;
      const uint64_t id = t.correlation(i);
      if (id == kNoId || id == 0) continue;
      lo = std::min(lo, id);
      hi = std::max(hi, id);
      ++n;
    }
    if (n == 0) return;
    base_ = lo;
    if (hi - lo < 4 * n + 1024) dense_.assign(hi - lo + 1, kNoEvent);
    for (EventIndex i = 0; i < t.size(); ++i) {
      if (!is_launch_api(t.cls(i))) continue;
      const uint64_t id = t.correlation(i);
      if (id == kNoId || id == 0) continue;
      if (!dense_.empty() && dense_[id - base_] == kNoEvent) {
        dense_[id - base_] = i;
      } else {
        pairs_.push_back({id, t.ts_ns(i), i});
      }
    }
    sort_runs(pairs_.begin(), pairs_.end(), std::less<>());
    duplicates_ = dense_.empty() ? 0 : pairs_.size();
    for (size_t p = 1; dense_.empty() && p < pairs_.size(); ++p)
      duplicates_ += pairs_[p].id == pairs_[p - 1].id;
  }
  size_t duplicates() const { return duplicates_; }

  // The launch of work with this id that begins at ts: of several, the last that begins before it, else the
  // first.
  EventIndex find(const Trace& t, uint64_t id, int64_t ts, bool& ambiguous) const {
    EventIndex only = kNoEvent;
    ambiguous = false;
    if (id == kNoId || id == 0) return only;
    if (!dense_.empty() && id >= base_ && id - base_ < dense_.size()) only = dense_[id - base_];
    const Pair* const begin = std::lower_bound(pairs_.begin(), pairs_.end(), Pair{id, INT64_MIN, 0});
    if (begin == pairs_.end() || begin->id != id) return only;
    const Pair* const after = std::upper_bound(begin, pairs_.end(), Pair{id, ts, kNoEvent});
    const int64_t nearest = after == begin ? begin->ts_ns : (after - 1)->ts_ns;
    const EventIndex best = std::lower_bound(begin, pairs_.end(), Pair{id, nearest, 0})->event;
    ambiguous = only != kNoEvent || (begin + 1 != pairs_.end() && begin[1].id == id);
    if (only == kNoEvent) return best;
    const bool before = t.ts_ns(best) <= ts, only_before = t.ts_ns(only) <= ts;
    if (before != only_before) return before ? best : only;
    return (before ? t.ts_ns(best) > t.ts_ns(only) : t.ts_ns(best) < t.ts_ns(only)) ? best : only;
  }

 private:
  struct Pair {
    uint64_t id;
    int64_t ts_ns;
    EventIndex event;
    friend auto operator<=>(const Pair&, const Pair&) = default;
  };
  uint64_t base_ = 0;
  Column<EventIndex> dense_;
  Column<Pair> pairs_;
  size_t duplicates_ = 0;
};

struct LinkBuilder {
  const Trace& t;
  Links links;
  std::vector<uint8_t> names = std::vector<uint8_t>(t.text_count());

  void nest();
  void nest_thread(EventIndex* first, EventIndex* last);
  void link_device_work();
  void link_one(EventIndex i, const LaunchTable& launches);
  void check_external_id(EventIndex i, Confidence& confidence);
  void explain_unlinked();
  void check_overlap();
  void find_steps();

  bool inline_work(EventIndex i) const {
    return is_device_work(t.cls(i)) && t.category(i).substr(0, 4) == "cpu_";
  }
  void set(EventIndex i, LinkBasis b, Confidence c, Unlinked u) {
    links.flags_[i] = static_cast<uint8_t>(static_cast<unsigned>(b) | static_cast<unsigned>(c) << 3 |
                                           static_cast<unsigned>(u) << 5);
  }
  // What a call's name says, looked up once per name.
  enum NameFlag : uint8_t { kLooked = 1, kGraphLaunch = 2, kPromisesWork = 4 };
  uint8_t name_flags(EventIndex i) {
    uint8_t& flags = names[t.name_id(i)];
    if (flags == 0) {
      const std::string_view name = t.name(i);
      const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
      flags = static_cast<uint8_t>(kLooked | (has("GraphLaunch") ? kGraphLaunch : 0) |
                                   (has("Launch") || has("MemcpyAsync") ? kPromisesWork : 0));
    }
    return flags;
  }
  bool is_graph_launch(EventIndex launch) { return name_flags(launch) & kGraphLaunch; }
};

namespace {

// Of spans with the same begin and end, the one that encloses the others by its nature comes first.
int nesting_rank(EventClass c) {
  switch (c) {
    case EventClass::kUserRange: return 0;
    case EventClass::kPython:
    case EventClass::kSpan: return 1;
    case EventClass::kOperator: return 2;
    case EventClass::kRuntime: return 3;
    case EventClass::kDriver: return 4;
    default: return 5;
  }
}

}  // namespace

void LinkBuilder::nest_thread(EventIndex* first, EventIndex* last) {
  const auto before = [&](EventIndex a, EventIndex b) {
    if (t.ts_ns(a) != t.ts_ns(b)) return t.ts_ns(a) < t.ts_ns(b);
    if (t.dur_ns(a) != t.dur_ns(b)) return t.dur_ns(a) > t.dur_ns(b);
    const int ra = nesting_rank(t.cls(a)), rb = nesting_rank(t.cls(b));
    return ra != rb ? ra < rb : a < b;
  };
  sort_runs(first, last, before);
  // Whoever asks for the spans around one walks up: the depth bounds that, or a trace of spans that never end
  // would cost its square. Python itself stops at 1,000 calls.
  constexpr size_t kDeepest = 1000;
  std::vector<EventIndex> open;
  for (EventIndex* e = first; e != last; ++e) {
    const int64_t begin = t.ts_ns(*e);
    while (!open.empty() && t.end_ns(open.back()) <= begin) open.pop_back();
    if (!open.empty()) {
      links.up_[*e] = open.back();
      if (t.end_ns(*e) > t.end_ns(open.back()))
        links.diagnostics_.add(Diag::kChildOutlivesParent, t.ordinal(*e));
    }
    if (open.size() < kDeepest)
      open.push_back(*e);
    else
      links.diagnostics_.add(Diag::kSpansTooDeep, t.ordinal(*e));
  }
}

// Parents from time containment, thread by thread.
void LinkBuilder::nest() {
  const size_t threads = t.threads().size();
  links.thread_begin_.assign(threads + 1, 0);
  const auto nests = [&](EventIndex i) { return is_host_span(t.cls(i)) || inline_work(i); };
  for (EventIndex i = 0; i < t.size(); ++i)
    if (nests(i)) ++links.thread_begin_[t.thread(i) + 1];
  std::partial_sum(links.thread_begin_.begin(), links.thread_begin_.end(), links.thread_begin_.begin());
  links.order_.assign(links.thread_begin_.back(), kNoEvent);
  std::vector<size_t> next(links.thread_begin_.begin(), links.thread_begin_.end() - 1);
  for (EventIndex i = 0; i < t.size(); ++i)
    if (nests(i)) links.order_[next[t.thread(i)]++] = i;
  for (size_t thread = 0; thread < threads; ++thread)
    nest_thread(links.order_.data() + links.thread_begin_[thread],
                links.order_.data() + links.thread_begin_[thread + 1]);
}

// Lowers confidence where a trustworthy External id names another operator than the one found.
void LinkBuilder::check_external_id(EventIndex i, Confidence& confidence) {
  const uint64_t id = t.external_id(i);
  if (id == kNoId || id == 0) return;
  bool compared = false;
  for (EventIndex up = links.up_[links.up_[i]]; up != kNoEvent; up = links.up_[up]) {
    const uint64_t theirs = t.external_id(up);
    if (theirs == kNoId) continue;
    if (theirs == id) return;
    compared = true;
  }
  if (!compared) return;
  links.diagnostics_.add(Diag::kExternalIdUnreliable, t.ordinal(i));
  const bool trustworthy = t.era() <= Era::kTorch19 || t.era() >= Era::kTorch23;
  if (trustworthy && confidence == Confidence::kHigh) confidence = Confidence::kMedium;
}

void LinkBuilder::link_one(EventIndex i, const LaunchTable& launches) {
  const bool work = is_device_work(t.cls(i));
  const uint64_t id = t.correlation(i);
  if (work && (id == kNoId || id == 0)) links.diagnostics_.add(Diag::kMissingCorrelation, t.ordinal(i));
  bool ambiguous = false;
  const EventIndex launch = launches.find(t, id, t.ts_ns(i), ambiguous);
  if (launch == kNoEvent) return;
  links.up_[i] = launch;
  const bool graph = is_graph_launch(launch);
  Confidence confidence = ambiguous ? Confidence::kLow : graph ? Confidence::kMedium : Confidence::kHigh;
  if (t.ts_ns(i) < t.ts_ns(launch)) {
    links.diagnostics_.add(Diag::kKernelBeforeLaunch, t.ordinal(i));
    confidence = std::min(confidence, Confidence::kMedium);
  }
  check_external_id(i, confidence);
  set(i, graph ? LinkBasis::kGraph : LinkBasis::kCorrelation, confidence, Unlinked::kLinked);
}

void LinkBuilder::link_device_work() {
  {
    const LaunchTable launches(t);
    if (launches.duplicates() != 0)
      links.diagnostics_.add(Diag::kDuplicateCorrelation, Diagnostics::kNoOrdinal, launches.duplicates());
    for (EventIndex i = 0; i < t.size(); ++i) {
      const EventClass c = t.cls(i);
      if (is_device_work(c)) links.device_work_.push_back(i);
      if (inline_work(i)) {
        set(i, LinkBasis::kCpu, Confidence::kHigh, Unlinked::kLinked);
      } else if (is_device_work(c) || c == EventClass::kDeviceOther) {
        link_one(i, launches);
      }
    }
  }
  const auto earlier = [&](EventIndex a, EventIndex b) {
    return t.ts_ns(a) != t.ts_ns(b) ? t.ts_ns(a) < t.ts_ns(b) : a < b;
  };
  sort_runs(links.device_work_.begin(), links.device_work_.end(), earlier);
  links.device_work_.shrink_to_fit();
  // Launch calls whose work is missing: only names that promise device work count.
  std::vector<bool> used(t.size());
  for (const EventIndex i : links.device_work_)
    if (links.launch(i) != kNoEvent) used[links.launch(i)] = true;
  for (EventIndex i = 0; i < t.size(); ++i) {
    if (!is_launch_api(t.cls(i)) || used[i]) continue;
    if (name_flags(i) & kPromisesWork) links.diagnostics_.add(Diag::kLaunchWithoutKernel, t.ordinal(i));
  }
}

// Unlinked work before its stream's first linked work was launched before the window and leaked in.
void LinkBuilder::explain_unlinked() {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> first_linked(t.threads().size(), kNever);
  int64_t first_call = kNever;
  for (EventIndex i = 0; i < t.size(); ++i)
    if (is_launch_api(t.cls(i))) first_call = std::min(first_call, t.ts_ns(i));
  for (const EventIndex i : links.device_work_)
    if (links.link_basis(i) != LinkBasis::kNone)
      first_linked[t.thread(i)] = std::min(first_linked[t.thread(i)], t.ts_ns(i));
  for (const EventIndex i : links.device_work_) {
    if (links.link_basis(i) != LinkBasis::kNone) continue;
    const int64_t first = first_linked[t.thread(i)];
    // A stream with no linked work at all: what ran before the first recorded call was launched earlier.
    const bool early = first != kNever ? t.ts_ns(i) < first : first_call != kNever && t.ts_ns(i) < first_call;
    set(i, LinkBasis::kNone, Confidence::kNone, early ? Unlinked::kEarlierWork : Unlinked::kUnknown);
    links.diagnostics_.add(early ? Diag::kEarlierWork : Diag::kUnlinkedKernel, t.ordinal(i));
    WorkSum& sum = links.unlinked_sum_;
    ++(t.cls(i) == EventClass::kKernel   ? sum.kernels
       : t.cls(i) == EventClass::kMemcpy ? sum.copies
                                         : sum.fills);
    sum.device_ns += t.dur_ns(i);
  }
}

void LinkBuilder::check_overlap() {
  std::vector<int64_t> busy_until(t.threads().size(), std::numeric_limits<int64_t>::min());
  for (const EventIndex i : links.device_work_) {
    if (links.link_basis(i) == LinkBasis::kCpu) continue;
    int64_t& busy = busy_until[t.thread(i)];
    if (t.ts_ns(i) < busy) links.diagnostics_.add(Diag::kOverlappingKernels, t.ordinal(i));
    busy = std::max(busy, t.end_ns(i));
  }
}

void LinkBuilder::find_steps() {
  constexpr std::string_view kPrefix = "ProfilerStep#";
  for (const EventIndex i : links.order_) {
    const std::string_view name = t.name(i);
    if (name.substr(0, kPrefix.size()) != kPrefix) continue;
    Step step;
    const std::string_view number = name.substr(kPrefix.size());
    std::from_chars(number.data(), number.data() + number.size(), step.number);
    step.event = i;
    step.begin_ns = t.ts_ns(i);
    step.end_ns = t.end_ns(i);
    links.steps_.push_back(step);
  }
  std::sort(links.steps_.begin(), links.steps_.end(),
            [](const Step& a, const Step& b) { return a.begin_ns < b.begin_ns; });
  if (!links.steps_.empty()) {
    links.step_basis_ = StepBasis::kProfilerStep;
    return;
  }
  Step whole;
  whole.begin_ns = std::numeric_limits<int64_t>::max();
  whole.end_ns = std::numeric_limits<int64_t>::min();
  for (EventIndex i = 0; i < t.size(); ++i) {
    if (!is_host_span(t.cls(i)) && !is_device_work(t.cls(i))) continue;
    whole.begin_ns = std::min(whole.begin_ns, t.ts_ns(i));
    whole.end_ns = std::max(whole.end_ns, t.end_ns(i));
  }
  if (whole.begin_ns <= whole.end_ns) links.steps_.push_back(whole);
}

Links Links::build(const Trace& trace) {
  LinkBuilder b{.t = trace, .links = {}};
  b.links.trace_ = &trace;
  b.links.up_.assign(trace.size(), kNoEvent);
  b.links.flags_.assign(trace.size(), 0);
  b.nest();
  b.link_device_work();
  b.explain_unlinked();
  b.check_overlap();
  b.find_steps();
  return std::move(b.links);
}

DeviceLink Links::device_link(EventIndex i) const {
  return {launch(i), link_basis(i), static_cast<Confidence>(flags_[i] >> 3 & 3)};
}

EventIndex Links::launched_by(EventIndex device_work) const {
  EventIndex up = up_[device_work];
  if (!on_device(device_work)) return kNoEvent;
  while (up != kNoEvent && is_launch_api(trace_->cls(up))) up = up_[up];
  return up;
}

std::span<const EventIndex> Links::preorder(uint32_t thread) const {
  return order_.span().subspan(thread_begin_[thread], thread_begin_[thread + 1] - thread_begin_[thread]);
}

int Links::step_at(int64_t ts_ns) const {
  if (step_basis_ == StepBasis::kWholeTrace) return steps_.empty() ? -1 : 0;
  const auto after = std::upper_bound(steps_.begin(), steps_.end(), ts_ns,
                                      [](int64_t ts, const Step& s) { return ts < s.begin_ns; });
  if (after == steps_.begin()) return -1;
  const Step& s = *(after - 1);
  return ts_ns < s.end_ns ? static_cast<int>(after - 1 - steps_.begin()) : -1;
}

int Links::step_of(EventIndex i) const {
  if (!is_device_work(trace_->cls(i))) return step_at(trace_->ts_ns(i));
  const EventIndex at = launch_point(i);
  if (at == kNoEvent) return step_basis_ == StepBasis::kWholeTrace ? step_at(0) : -1;
  return step_at(trace_->ts_ns(at));
}

namespace {
struct Call {
  uint32_t row;  // thread or process
  int64_t begin, end;
};
// Calls sorted by (row, begin) with overlaps merged, for lookups.
void merge_calls(std::vector<Call>& calls) {
  std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) {
    return std::pair(a.row, a.begin) < std::pair(b.row, b.begin);
  });
  size_t kept = 0;
  for (const Call& c : calls) {
    if (kept > 0 && calls[kept - 1].row == c.row && c.begin <= calls[kept - 1].end) {
      calls[kept - 1].end = std::max(calls[kept - 1].end, c.end);
    } else {
      calls[kept++] = c;
    }
  }
  calls.resize(kept);
}
bool inside(const std::vector<Call>& calls, uint32_t row, int64_t ts) {
  const auto after =
      std::upper_bound(calls.begin(), calls.end(), std::pair(row, ts),
                       [](const auto& key, const Call& c) { return key < std::pair(c.row, c.begin); });
  return after != calls.begin() && (after - 1)->row == row && ts <= (after - 1)->end;
}
}  // namespace

RangeSum Links::range_sum(StringId name) const {
  RangeSum sum;
  std::vector<Call> on_thread, in_process;
  for (const EventIndex i : order_) {
    if (trace_->name_id(i) != name || on_device(i)) continue;
    EventIndex up = up_[i];
    while (up != kNoEvent && trace_->name_id(up) != name) up = up_[up];
    if (up != kNoEvent) continue;
    ++sum.calls;
    sum.host_ns += trace_->dur_ns(i);
    on_thread.push_back({trace_->thread(i), trace_->ts_ns(i), trace_->end_ns(i)});
    in_process.push_back({trace_->thread_of(i).process, trace_->ts_ns(i), trace_->end_ns(i)});
  }
  merge_calls(on_thread);
  merge_calls(in_process);
  for (const EventIndex i : device_work_) {
    const EventIndex at = launch_point(i);
    if (at == kNoEvent) continue;
    const auto count = [&](WorkSum& w) {
      ++(trace_->cls(i) == EventClass::kKernel   ? w.kernels
         : trace_->cls(i) == EventClass::kMemcpy ? w.copies
                                                 : w.fills);
      w.device_ns += trace_->dur_ns(i);
    };
    if (inside(on_thread, trace_->thread(at), trace_->ts_ns(at))) count(sum.own_thread);
    if (inside(in_process, trace_->thread_of(at).process, trace_->ts_ns(at))) count(sum.process);
  }
  return sum;
}

}  // namespace attnscope::trace
