#include "analysis/ranges.h"

#include "base/total.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;
using trace::Links;
using trace::StringId;
using trace::Trace;
using trace::WorkSum;

WorkSum& operator+=(WorkSum& sum, const WorkSum& more) {
  sum.kernels += more.kernels;
  sum.copies += more.copies;
  sum.fills += more.fills;
  sum.device_ns += more.device_ns;
  return sum;
}

WorkSum operator-(WorkSum sum, const WorkSum& less) {
  sum.kernels -= less.kernels;
  sum.copies -= less.copies;
  sum.fills -= less.fills;
  sum.device_ns -= less.device_ns;
  return sum;
}

void add_work(WorkSum& sum, EventClass cls, int64_t dur_ns) {
  if (cls == EventClass::kMemcpy)
    ++sum.copies;
  else if (cls == EventClass::kMemset)
    ++sum.fills;
  else
    ++sum.kernels;
  sum.device_ns += dur_ns;
}

int64_t median_of(std::vector<int64_t>& values) {
  if (values.empty()) return -1;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  const int64_t below = *std::max_element(values.begin(), middle);
  return below + (*middle - below) / 2;
}

bool is_bookkeeping_operator(std::string_view name) {
  static constexpr std::array<std::string_view, 46> kNames{"aten::empty",
                                                           "aten::empty_like",
                                                           "aten::empty_strided",
                                                           "aten::as_strided",
                                                           "aten::view",
                                                           "aten::_unsafe_view",
                                                           "aten::reshape",
                                                           "aten::_reshape_alias",
                                                           "aten::transpose",
                                                           "aten::t",
                                                           "aten::permute",
                                                           "aten::expand",
                                                           "aten::expand_as",
                                                           "aten::slice",
                                                           "aten::select",
                                                           "aten::unsqueeze",
                                                           "aten::squeeze",
                                                           "aten::narrow",
                                                           "aten::detach",
                                                           "detach",
                                                           "aten::detach_",
                                                           "aten::alias",
                                                           "aten::resize_",
                                                           "aten::lift_fresh",
                                                           "aten::split",
                                                           "aten::chunk",
                                                           "aten::unbind",
                                                           "aten::is_nonzero",
                                                           "aten::to",
                                                           "aten::contiguous",
                                                           "aten::flatten",
                                                           "aten::unflatten",
                                                           "aten::view_as",
                                                           "aten::set_",
                                                           "aten::size",
                                                           "aten::stride",
                                                           "aten::numel",
                                                           "aten::result_type",
                                                           "aten::broadcast_to",
                                                           "aten::movedim",
                                                           "aten::swapaxes",
                                                           "aten::swapdims",
                                                           "aten::mT",
                                                           "aten::numpy_T",
                                                           "aten::resolve_conj",
                                                           "aten::resolve_neg"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

LaunchedWork::LaunchedWork(const Trace& trace, const Links& links) {
  std::vector<std::pair<EventIndex, EventIndex>> pairs;
  for (EventIndex work : links.device_work())
    if (const EventIndex launch = links.launch_point(work); launch != kNoEvent)
      pairs.emplace_back(launch, work);
  std::sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
    return std::tuple(a.first, trace.ts_ns(a.second), a.second) <
           std::tuple(b.first, trace.ts_ns(b.second), b.second);
  });
  work_.reserve(pairs.size());
  for (const auto& [launch, work] : pairs) {
    if (launches_.empty() || launches_.back() != launch) {
      launches_.push_back(launch);
      begin_.push_back(static_cast<uint32_t>(work_.size()));
    }
    work_.push_back(work);
  }
  begin_.push_back(static_cast<uint32_t>(work_.size()));
}

std::span<const EventIndex> LaunchedWork::of(EventIndex launch) const {
  const auto at = std::lower_bound(launches_.begin(), launches_.end(), launch);
  if (at == launches_.end() || *at != launch) return {};
  const size_t row = static_cast<size_t>(at - launches_.begin());
  return std::span(work_).subspan(begin_[row], begin_[row + 1] - begin_[row]);
}

WorkTimeline::WorkTimeline(const Trace& trace, const Metrics& metrics, const LaunchedWork& launched) {
  uint32_t processes = 0;
  for (const trace::Thread& thread : trace.threads()) processes = std::max(processes, thread.process + 1);
  by_process_.resize(processes);
  const auto add = [&](EventIndex host, const WorkSum& sum) {
    by_process_[trace.thread_of(host).process].push_back({trace.ts_ns(host), sum});
  };
  for (EventIndex launch : launched.launches()) {
    WorkSum sum;
    for (EventIndex work : launched.of(launch)) add_work(sum, trace.cls(work), trace.dur_ns(work));
    add(launch, sum);
  }
  for (EventIndex leaf : metrics.cpu_leaves) add(leaf, WorkSum{1, 0, 0, Total(trace.dur_ns(leaf))});
  for (std::vector<Point>& points : by_process_) {
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.ts_ns < b.ts_ns; });
    WorkSum running;
    for (Point& point : points) {
      const WorkSum own = point.before;
      point.before = running;
      running += own;
    }
    points.push_back({std::numeric_limits<int64_t>::max(), running});
  }
}

std::pair<size_t, size_t> WorkTimeline::bounds(uint32_t process, int64_t begin_ns, int64_t end_ns) const {
  const std::vector<Point>& points = by_process_[process];
  const auto first = std::lower_bound(points.begin(), points.end() - 1, begin_ns,
                                      [](const Point& p, int64_t t) { return p.ts_ns < t; });
  const auto last = std::upper_bound(first, points.end() - 1, end_ns,
                                     [](int64_t t, const Point& p) { return t < p.ts_ns; });
  return {static_cast<size_t>(first - points.begin()), static_cast<size_t>(last - points.begin())};
}

WorkSum WorkTimeline::between(uint32_t process, int64_t begin_ns, int64_t end_ns) const {
  const auto [first, last] = bounds(process, begin_ns, end_ns);
  return by_process_[process][last].before - by_process_[process][first].before;
}

uint64_t WorkTimeline::launches_between(uint32_t process, int64_t begin_ns, int64_t end_ns) const {
  const auto [first, last] = bounds(process, begin_ns, end_ns);
  return last - first;
}

namespace {

// One open span while a thread's spans are walked in preorder.
struct Frame {
  EventIndex event;
  uint32_t row;           // of metrics.ranges
  bool outermost = true;  // no other span of its name around it
  bool has_operator_child = false;
  Total children_ns;
  WorkSum below;   // launched inside
  WorkSum direct;  // launched by itself or by its launch calls
};

bool is_range_class(EventClass cls) {
  return cls == EventClass::kOperator || cls == EventClass::kUserRange || cls == EventClass::kSpan;
}

class RangeWalk {
 public:
  RangeWalk(const Trace& trace, const Links& links, Metrics& metrics)
      : trace_(trace), links_(links), metrics_(metrics), launched_(trace, links) {}

  void run() {
    for (uint32_t thread = 0; thread < trace_.threads().size(); ++thread)
      walk(thread, &RangeWalk::close_first);
    const WorkTimeline timeline(trace_, metrics_, launched_);
    timeline_ = &timeline;
    host_samples_.resize(metrics_.ranges.size());
    device_samples_.resize(metrics_.ranges.size());
    for (uint32_t thread = 0; thread < trace_.threads().size(); ++thread)
      walk(thread, &RangeWalk::close_second);
    for (size_t row = 0; row < metrics_.ranges.size(); ++row) {
      metrics_.ranges[row].median_host_ns = median_of(host_samples_[row]);
      metrics_.ranges[row].median_device_ns = median_of(device_samples_[row]);
    }
  }

 private:
  using Close = void (RangeWalk::*)(const Frame&, Frame*);

  uint32_t row_of(EventIndex event, uint32_t thread) {
    const auto [at, fresh] = metrics_.range_index.try_emplace(trace_.name_id(event),
                                                              static_cast<uint32_t>(metrics_.ranges.size()));
    if (fresh) {
      RangeStats stats;
      stats.name = trace_.name_id(event);
      stats.cls = trace_.cls(event);
      stats.first = event;
      stats.thread = thread;
      metrics_.ranges.push_back(stats);
      open_.push_back(0);
      last_thread_.push_back(UINT32_MAX);
    }
    return at->second;
  }

  void walk(uint32_t thread, Close close) {
    stack_.clear();
    for (EventIndex event : links_.preorder(thread)) {
      const EventIndex parent = links_.parent(event);
      while (!stack_.empty() && stack_.back().event != parent) pop(close);
      Frame frame;
      frame.event = event;
      if (!trace::is_device_work(trace_.cls(event))) {
        frame.row = row_of(event, thread);
        frame.outermost = open_[frame.row]++ == 0;
      }
      stack_.push_back(frame);
    }
    while (!stack_.empty()) pop(close);
  }

  void pop(Close close) {
    Frame frame = stack_.back();
    stack_.pop_back();
    Frame* parent = stack_.empty() ? nullptr : &stack_.back();
    if (trace::is_device_work(trace_.cls(frame.event))) return close_inline(frame, parent);
    --open_[frame.row];
    (this->*close)(frame, parent);
  }

  // Work of our own CPU recordings runs inside the span that started it: it counts, but is no range.
  void close_inline(const Frame& frame, Frame* parent) {
    if (!parent) return;
    WorkSum work = frame.below;
    add_work(work, trace_.cls(frame.event), trace_.dur_ns(frame.event));
    parent->children_ns += trace_.dur_ns(frame.event);
    parent->below += work;
    parent->direct += work;
  }

  // First walk: everything but what other threads launched.
  void close_first(const Frame& closing, Frame* parent) {
    Frame frame = closing;
    const EventClass cls = trace_.cls(frame.event);
    const int64_t dur = trace_.dur_ns(frame.event);
    if (trace::is_launch_api(cls))
      for (EventIndex work : launched_.of(frame.event)) {
        add_work(frame.below, trace_.cls(work), trace_.dur_ns(work));
        add_work(frame.direct, trace_.cls(work), trace_.dur_ns(work));
      }
    if (metrics_.cpu_only && cls == EventClass::kOperator && !frame.has_operator_child &&
        !is_bookkeeping_operator(trace_.name(frame.event))) {
      metrics_.cpu_leaves.push_back(frame.event);
      add_work(frame.below, EventClass::kKernel, dur);
      add_work(frame.direct, EventClass::kKernel, dur);
    }
    RangeStats& stats = metrics_.ranges[frame.row];
    ++stats.events;
    stats.self_host_ns += std::max<int64_t>(0, dur - frame.children_ns);
    stats.self += frame.direct;
    if (frame.outermost) {
      ++stats.calls;
      stats.host_ns += dur;
      stats.own_thread += frame.below;
      const uint32_t thread = trace_.thread(frame.event);
      if (last_thread_[frame.row] != thread) {
        last_thread_[frame.row] = thread;
        ++stats.thread_count;
      }
      if (stats.calls == 1 || trace_.ts_ns(frame.event) < trace_.ts_ns(stats.first)) {
        stats.first = frame.event;
        stats.thread = thread;
        stats.parent = parent ? trace_.name_id(parent->event) : trace::kEmptyString;
      }
    }
    if (!parent) return;
    parent->children_ns += dur;
    parent->below += frame.below;
    if (trace::is_launch_api(cls)) parent->direct += frame.direct;
    if (metrics_.cpu_only &&
        (frame.has_operator_child ||
         (cls == EventClass::kOperator && !is_bookkeeping_operator(trace_.name(frame.event)))))
      parent->has_operator_child = true;
  }

  // Second walk: the process's work while each call was open, and the medians.
  void close_second(const Frame& frame, Frame*) {
    if (!frame.outermost) return;
    RangeStats& stats = metrics_.ranges[frame.row];
    if (!is_range_class(stats.cls)) {
      stats.process = stats.own_thread;
      return;
    }
    const WorkSum work = timeline_->between(trace_.thread_of(frame.event).process, trace_.ts_ns(frame.event),
                                            trace_.end_ns(frame.event));
    stats.process += work;
    host_samples_[frame.row].push_back(trace_.dur_ns(frame.event));
    device_samples_[frame.row].push_back(work.device_ns);
  }

  const Trace& trace_;
  const Links& links_;
  Metrics& metrics_;
  LaunchedWork launched_;
  const WorkTimeline* timeline_ = nullptr;
  std::vector<Frame> stack_;
  std::vector<uint32_t> open_;         // by row: how many are open on the thread being walked
  std::vector<uint32_t> last_thread_;  // by row
  std::vector<std::vector<int64_t>> host_samples_, device_samples_;
};

}  // namespace

void compute_ranges(const Trace& trace, const Links& links, Metrics& metrics) {
  RangeWalk(trace, links, metrics).run();
  std::sort(metrics.cpu_leaves.begin(), metrics.cpu_leaves.end(), [&](EventIndex a, EventIndex b) {
    return std::tuple(trace.ts_ns(a), a) < std::tuple(trace.ts_ns(b), b);
  });
  // By first occurrence; threads were walked one after another.
  std::vector<RangeStats>& rows = metrics.ranges;
  std::stable_sort(rows.begin(), rows.end(), [&](const RangeStats& a, const RangeStats& b) {
    return std::tuple(trace.ts_ns(a.first), -trace.dur_ns(a.first)) <
           std::tuple(trace.ts_ns(b.first), -trace.dur_ns(b.first));
  });
  metrics.range_index.clear();
  for (uint32_t row = 0; row < rows.size(); ++row) metrics.range_index.emplace(rows[row].name, row);
}

}  // namespace attnscope
