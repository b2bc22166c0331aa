#include "analysis/steps.h"

#include "base/total.h"

#include <algorithm>
#include <unordered_map>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;
using trace::Links;
using trace::StringId;
using trace::Trace;

namespace {

struct Span {
  int64_t begin_ns, end_ns;
  int64_t number;
};

// The outermost calls of one name on the thread of its first call, in time order.
std::vector<Span> calls_of(const Trace& trace, const Links& links, const RangeStats& range) {
  std::vector<Span> calls;
  int64_t end = INT64_MIN;
  for (EventIndex event : links.preorder(range.thread)) {
    if (trace.name_id(event) != range.name || trace.ts_ns(event) < end) continue;
    end = trace.end_ns(event);
    calls.push_back({trace.ts_ns(event), end, static_cast<int64_t>(calls.size()) + 1});
  }
  return calls;
}

// A user range at the top of one thread that is called again and again and launches most of the work.
const RangeStats* repeated_range(const Metrics& metrics) {
  const uint64_t work = metrics.total.kernels + metrics.total.copies + metrics.total.fills;
  const RangeStats* best = nullptr;
  for (const RangeStats& range : metrics.ranges) {
    if (range.cls != EventClass::kUserRange || range.calls < 2 || range.thread_count != 1) continue;
    const uint64_t inside = range.process.kernels + range.process.copies + range.process.fills;
    if (inside * 2 < work || (work == 0 && range.host_ns == 0)) continue;
    // The outermost such range: the one whose calls are longest.
    if (!best || range.host_ns > best->host_ns) best = &range;
  }
  return best;
}

// The thread that runs the program: the one with most host time in its outermost operators.
struct TopLevel {
  std::vector<EventIndex> operators;
};
TopLevel main_thread(const Trace& trace, const Links& links) {
  TopLevel best;
  int64_t best_ns = 0;
  for (uint32_t thread = 0; thread < trace.threads().size(); ++thread) {
    TopLevel top;
    Total ns;
    int64_t end = INT64_MIN;
    for (EventIndex event : links.preorder(thread)) {
      if (trace.cls(event) != EventClass::kOperator || trace.ts_ns(event) < end) continue;
      end = trace.end_ns(event);
      ns += trace.dur_ns(event);
      top.operators.push_back(event);
    }
    if (ns > best_ns) {
      best_ns = ns;
      best = std::move(top);
    }
  }
  return best;
}

// Smallest period with which the sequence of operator names repeats at least three times from some start on,
// the start and the tail left over being shorter than one period; 0 when there is none.
struct Period {
  size_t start = 0, length = 0, count = 0;
};
Period find_period(const std::vector<StringId>& names) {
  constexpr size_t kShortest = 8;    // fewer operators than this repeat inside a layer, not a step
  constexpr size_t kLongest = 4096;  // bounds the search: n · this comparisons, most of which stop at once
  const size_t n = names.size();
  for (size_t length = kShortest; length <= std::min(n / 3, kLongest); ++length) {
    // A layer repeats too: only a period that covers nearly all of the trace is a step.
    const auto covers = [&](size_t run) { return (run + length) * 10 >= n * 9; };
    // Longest run of i with names[i] == names[i + length]; given up once none can be long enough.
    size_t run = 0, best_run = 0, best_end = 0;
    for (size_t i = 0; i + length < n; ++i) {
      run = names[i] == names[i + length] ? run + 1 : 0;
      if (run > best_run) {
        best_run = run;
        best_end = i + 1;
      }
      if (run == 0 && !covers(best_run) && !covers(n - length - i - 1)) break;
    }
    const size_t count = best_run / length + 1;
    if (count >= 3 && covers(best_run)) return {best_end - best_run, length, count};
  }
  return {};
}

std::vector<Span> repeated_operators(const Trace& trace, const Links& links) {
  const TopLevel top = main_thread(trace, links);
  std::vector<StringId> names;
  names.reserve(top.operators.size());
  for (EventIndex event : top.operators) names.push_back(trace.name_id(event));
  const Period period = find_period(names);
  std::vector<Span> spans;
  for (size_t i = 0; i < period.count; ++i) {
    const size_t first = period.start + i * period.length, next = first + period.length;
    const int64_t begin = trace.ts_ns(top.operators[first]);
    const int64_t end = next < top.operators.size() && i + 1 < period.count
                            ? trace.ts_ns(top.operators[next])
                            : trace.end_ns(top.operators[next - 1]);
    spans.push_back({begin, end, static_cast<int64_t>(i) + 1});
  }
  return spans;
}

// Device side of the steps: each piece of work belongs to the step that launched it.
void add_device_side(const Trace& trace, const Links& links, Metrics& metrics) {
  std::vector<StepStats>& steps = metrics.steps;
  struct Busy {
    int64_t end_ns = INT64_MIN;  // union so far; work comes in time order
  };
  std::vector<Busy> busy(steps.size());
  std::vector<EventIndex> last_launch(steps.size(), kNoEvent);
  const auto step_at = [&](int64_t host_ns) -> ptrdiff_t {
    const auto after = std::upper_bound(steps.begin(), steps.end(), host_ns,
                                        [](int64_t t, const StepStats& step) { return t < step.begin_ns; });
    if (after == steps.begin()) return -1;
    const ptrdiff_t i = after - steps.begin() - 1;
    return host_ns <= steps[static_cast<size_t>(i)].end_ns ? i : -1;
  };
  const auto add = [&](int64_t launched_ns, EventIndex launch, EventClass cls, int64_t begin, int64_t dur) {
    const ptrdiff_t at = step_at(launched_ns);
    if (at < 0) return;
    StepStats& step = steps[static_cast<size_t>(at)];
    Busy& union_end = busy[static_cast<size_t>(at)];
    const bool first = step.work == trace::WorkSum{};
    add_work(step.work, cls, dur);
    if (first) step.device_begin_ns = begin;
    step.device_begin_ns = std::min(step.device_begin_ns, begin);
    step.device_end_ns = first ? begin + dur : std::max(step.device_end_ns, begin + dur);
    step.device_busy_ns += std::max<int64_t>(0, begin + dur - std::max(begin, union_end.end_ns));
    union_end.end_ns = std::max(union_end.end_ns, begin + dur);
    if (launch != last_launch[static_cast<size_t>(at)]) ++step.launches;  // a graph's nodes share one launch
    last_launch[static_cast<size_t>(at)] = launch;
  };
  for (EventIndex work : links.device_work())
    if (const EventIndex launch = links.launch_point(work); launch != kNoEvent)
      add(trace.ts_ns(launch), launch, trace.cls(work), trace.ts_ns(work), trace.dur_ns(work));
  for (EventIndex leaf : metrics.cpu_leaves)
    add(trace.ts_ns(leaf), leaf, EventClass::kKernel, trace.ts_ns(leaf), trace.dur_ns(leaf));
}

}  // namespace

std::string_view step_source_name(StepSource source) {
  switch (source) {
    case StepSource::kProfilerStep: return "profiler-step";
    case StepSource::kRange: return "range";
    case StepSource::kRepetition: return "repetition";
    case StepSource::kWholeTrace: return "whole-trace";
  }
  return "whole-trace";
}

void compute_steps(const Trace& trace, const Links& links, Metrics& metrics) {
  std::vector<Span> spans;
  if (links.step_basis() == trace::StepBasis::kProfilerStep) {
    metrics.step_source = StepSource::kProfilerStep;
    for (const trace::Step& step : links.steps()) spans.push_back({step.begin_ns, step.end_ns, step.number});
  } else if (const RangeStats* range = repeated_range(metrics)) {
    metrics.step_source = StepSource::kRange;
    metrics.step_range = std::string(trace.text(range->name));
    spans = calls_of(trace, links, *range);
  } else if (spans = repeated_operators(trace, links); !spans.empty()) {
    metrics.step_source = StepSource::kRepetition;
  } else {
    metrics.step_source = StepSource::kWholeTrace;
    for (const trace::Step& step : links.steps()) spans.push_back({step.begin_ns, step.end_ns, 1});
  }
  for (const Span& span : spans) {
    StepStats step;
    step.number = span.number;
    step.begin_ns = span.begin_ns;
    step.end_ns = span.end_ns;
    metrics.steps.push_back(step);
  }
  std::sort(metrics.steps.begin(), metrics.steps.end(),
            [](const StepStats& a, const StepStats& b) { return a.begin_ns < b.begin_ns; });
  add_device_side(trace, links, metrics);
}

}  // namespace attnscope
