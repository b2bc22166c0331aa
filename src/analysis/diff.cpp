#include "analysis/diff.h"

#include "analysis/ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;

namespace {

// 97.5 % quantile of Student's t.
double t_quantile(double freedom) {
  static constexpr std::array<double, 30> kTable{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                                                 2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                                                 2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                                                 2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
  if (freedom < 1) return kTable[0];
  if (freedom < 30) return kTable[static_cast<size_t>(freedom) - 1];
  return 1.96 + 2.4 / freedom;
}

double us(int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

// Everything the comparison needs of one side.
class Side {
 public:
  explicit Side(const Metrics& metrics)
      : metrics_(metrics),
        trace_(*metrics.trace),
        links_(*metrics.links),
        launched_(trace_, links_),
        timeline_(trace_, metrics, launched_) {
    total_us_ = us(metrics.total.device_ns);
    collect_kernels();
  }

  const Metrics& metrics() const { return metrics_; }
  double total_us() const { return total_us_; }
  size_t steps() const { return metrics_.steps.size(); }

  std::vector<double> step_device() const {
    std::vector<double> values;
    values.reserve(metrics_.steps.size());
    for (const StepStats& step : metrics_.steps) values.push_back(us(step.work.device_ns));
    return values;
  }

  // Per outermost call: the device time that the process launched in it, or its host time.
  std::vector<double> range_calls(const RangeStats& range, bool host) const {
    std::vector<double> values;
    for (uint32_t thread = 0; thread < trace_.threads().size(); ++thread) {
      int64_t end = INT64_MIN;
      for (EventIndex event : links_.preorder(thread)) {
        if (trace_.name_id(event) != range.name || trace_.ts_ns(event) < end) continue;
        end = trace_.end_ns(event);
        values.push_back(
            host
                ? us(trace_.dur_ns(event))
                : us(timeline_.between(trace_.thread_of(event).process, trace_.ts_ns(event), end).device_ns));
      }
    }
    return values;
  }

  struct Kernel {
    uint64_t count = 0;
    double total_us = 0;
    std::vector<double> calls;     // each call
    std::vector<double> per_step;  // sum in each step; as many as there are steps
  };
  // By the kernel's full name.
  const std::map<std::string, Kernel>& kernels() const { return kernels_; }

 private:
  void collect_kernels() {
    const auto step_at = [&](int64_t host_ns) -> ptrdiff_t {
      const auto after = std::upper_bound(metrics_.steps.begin(), metrics_.steps.end(), host_ns,
                                          [](int64_t t, const StepStats& s) { return t < s.begin_ns; });
      if (after == metrics_.steps.begin()) return -1;
      const ptrdiff_t at = after - metrics_.steps.begin() - 1;
      return host_ns <= metrics_.steps[static_cast<size_t>(at)].end_ns ? at : -1;
    };
    const auto add = [&](EventIndex work, EventIndex host) {
      Kernel& kernel = kernels_[std::string(trace_.name(work))];
      if (kernel.per_step.empty()) kernel.per_step.resize(steps());
      const double time = us(trace_.dur_ns(work));
      ++kernel.count;
      kernel.total_us += time;
      kernel.calls.push_back(time);
      if (const ptrdiff_t step = host == kNoEvent ? -1 : step_at(trace_.ts_ns(host)); step >= 0)
        kernel.per_step[static_cast<size_t>(step)] += time;
    };
    for (EventIndex work : links_.device_work()) add(work, links_.launch_point(work));
    for (EventIndex leaf : metrics_.cpu_leaves) add(leaf, leaf);
  }

  const Metrics& metrics_;
  const trace::Trace& trace_;
  const trace::Links& links_;
  LaunchedWork launched_;
  WorkTimeline timeline_;
  double total_us_ = 0;
  std::map<std::string, Kernel> kernels_;
};

double share(double part_us, double total_us) {
  return total_us > 0 ? 100 * part_us / total_us : 0;
}

class Comparison {
 public:
  Comparison(const Metrics& a, const Metrics& b, const DiffOptions& options)
      : a_(a), b_(b), options_(options) {}

  Diff run() {
    if (a_.steps() > 0 && b_.steps() > 0)
      add(DiffKind::kStep, "step", "device time per step", a_.step_device(), b_.step_device(), 100, "");
    add_ranges();
    add_kernels();
    std::stable_sort(diff_.rows.begin(), diff_.rows.end(), [](const DiffRow& x, const DiffRow& y) {
      if (x.kind != y.kind) return x.kind < y.kind;
      return x.share_percent > y.share_percent;
    });
    return std::move(diff_);
  }

 private:
  void add(DiffKind kind, std::string name, std::string figure, const std::vector<double>& a,
           const std::vector<double>& b, double share_percent, std::string note) {
    DiffRow row;
    row.kind = kind;
    row.name = std::move(name);
    row.figure = std::move(figure);
    row.a = estimate_of(a);
    row.b = estimate_of(b);
    row.share_percent = share_percent;
    row.note = std::move(note);
    judge(row, options_);
    diff_.rows.push_back(std::move(row));
  }

  static std::optional<DiffKind> kind_of(const Metrics& metrics, const RangeStats& range) {
    const std::string_view name = metrics.trace->text(range.name);
    if (range.cls == EventClass::kUserRange && !name.starts_with("ProfilerStep#")) return DiffKind::kRange;
    for (const AttentionCall& call : metrics.attention_calls)
      if (!call.bare_kernel && !call.hand_written && call.op == name) return DiffKind::kAttention;
    return std::nullopt;
  }

  void add_ranges() {
    std::map<std::string, DiffKind> names;
    for (const Side* side : {&a_, &b_})
      for (const RangeStats& range : side->metrics().ranges)
        if (const std::optional<DiffKind> kind = kind_of(side->metrics(), range))
          names.emplace(side->metrics().trace->text(range.name), *kind);
    for (const auto& [name, kind] : names) {
      const RangeStats* a = a_.metrics().range(name);
      const RangeStats* b = b_.metrics().range(name);
      const bool host = (!a || a->process == trace::WorkSum{}) && (!b || b->process == trace::WorkSum{});
      std::string note;
      if (a && b && a->calls > 0 && b->calls > 0) {
        const double before = static_cast<double>(a->process.kernels) / static_cast<double>(a->calls);
        const double after = static_cast<double>(b->process.kernels) / static_cast<double>(b->calls);
        if (std::fabs(before - after) > 1e-9)
          note = fmt::format("kernels per call {:.4g} → {:.4g}", before, after);
      }
      const double share_a = a ? share(us(a->process.device_ns), a_.total_us()) : 0;
      const double share_b = b ? share(us(b->process.device_ns), b_.total_us()) : 0;
      add(kind, name, host ? "host time per call" : "device time per call",
          a ? a_.range_calls(*a, host) : std::vector<double>{},
          b ? b_.range_calls(*b, host) : std::vector<double>{}, std::max(share_a, share_b), std::move(note));
    }
  }

  void add_kernels() {
    std::set<std::string> names;
    for (const auto& [name, kernel] : a_.kernels()) names.insert(name);
    for (const auto& [name, kernel] : b_.kernels()) names.insert(name);
    // Sums per step see a kernel that is launched more often; with one step a side only calls repeat.
    const bool by_step = a_.steps() >= 2 && b_.steps() >= 2;
    for (const std::string& name : names) {
      const auto a = a_.kernels().find(name), b = b_.kernels().find(name);
      const bool in_a = a != a_.kernels().end(), in_b = b != b_.kernels().end();
      const double larger = std::max(in_a ? share(a->second.total_us, a_.total_us()) : 0,
                                     in_b ? share(b->second.total_us, b_.total_us()) : 0);
      if (larger < options_.least_share) {
        ++diff_.left_out;
        continue;
      }
      const auto samples = [&](bool present, const auto& at) {
        return !present ? std::vector<double>{} : by_step ? at->second.per_step : at->second.calls;
      };
      std::string note;
      if (in_a && in_b && a->second.count * b_.steps() != b->second.count * a_.steps())
        note = fmt::format("launched {} → {} times", a->second.count, b->second.count);
      add(DiffKind::kKernel, name, by_step ? "time per step" : "time per call", samples(in_a, a),
          samples(in_b, b), larger, std::move(note));
    }
  }

  Side a_, b_;
  const DiffOptions& options_;
  Diff diff_;
};

}  // namespace

std::string_view diff_verdict_name(DiffVerdict verdict) {
  switch (verdict) {
    case DiffVerdict::kSame: return "same";
    case DiffVerdict::kFaster: return "faster";
    case DiffVerdict::kSlower: return "slower";
    case DiffVerdict::kUnsure: return "unsure";
    case DiffVerdict::kNew: return "new";
    case DiffVerdict::kGone: return "gone";
  }
  return "same";
}

std::string_view diff_kind_name(DiffKind kind) {
  switch (kind) {
    case DiffKind::kStep: return "step";
    case DiffKind::kRange: return "range";
    case DiffKind::kAttention: return "attention";
    case DiffKind::kKernel: return "kernel";
    case DiffKind::kVariant: return "variant";
  }
  return "range";
}

Estimate estimate_of(const std::vector<double>& values) {
  Estimate estimate;
  estimate.samples = static_cast<int64_t>(values.size());
  if (values.empty()) return estimate;
  const double n = static_cast<double>(values.size());
  for (const double value : values) estimate.mean += value / n;
  if (values.size() < 2) return estimate;
  double squares = 0;
  for (const double value : values) squares += (value - estimate.mean) * (value - estimate.mean);
  estimate.deviation = std::sqrt(squares / (n - 1));
  return estimate;
}

bool Diff::regressed() const {
  return std::any_of(rows.begin(), rows.end(),
                     [](const DiffRow& row) { return row.verdict == DiffVerdict::kSlower; });
}

namespace {

// Whether the interval reaches from no change to one beyond the threshold.
bool may_have_changed(const DiffRow& row, double threshold) {
  if (!row.low || !row.high) return false;
  return *row.low <= 1 && *row.high >= 1 && (*row.high > 1 + threshold || *row.low < 1 / (1 + threshold));
}

}  // namespace

void judge(DiffRow& row, const DiffOptions& options) {
  const bool in_a = row.a.samples > 0, in_b = row.b.samples > 0;
  if (!in_a || !in_b) {
    row.verdict = in_a ? DiffVerdict::kGone : in_b ? DiffVerdict::kNew : DiffVerdict::kSame;
    return;
  }
  if (row.a.mean <= 0 || row.b.mean <= 0) {
    row.verdict = row.a.mean == row.b.mean ? DiffVerdict::kSame
                  : row.b.mean > 0         ? DiffVerdict::kNew
                                           : DiffVerdict::kGone;
    return;
  }
  row.ratio = row.b.mean / row.a.mean;
  if (row.a.samples >= 2 && row.b.samples >= 2) {
    // Relative variance of each mean; the logarithm of the ratio has their sum.
    const auto relative = [](const Estimate& e) {
      const double error = e.deviation / e.mean;
      return error * error / static_cast<double>(e.samples);
    };
    const double va = relative(row.a), vb = relative(row.b), variance = va + vb;
    double freedom = 1e9;
    if (variance > 0)
      freedom = variance * variance /
                (va * va / static_cast<double>(row.a.samples - 1) +
                 vb * vb / static_cast<double>(row.b.samples - 1));
    const double reach = std::min(t_quantile(freedom) * std::sqrt(variance), 20.0);  // finite, however noisy
    row.low = row.ratio * std::exp(-reach);
    row.high = row.ratio * std::exp(reach);
  }
  const bool beyond_up = row.ratio > 1 + options.threshold,
             beyond_down = row.ratio < 1 / (1 + options.threshold);
  if (beyond_up)
    row.verdict = !row.low || *row.low > 1 ? DiffVerdict::kSlower : DiffVerdict::kUnsure;
  else if (beyond_down)
    row.verdict = !row.high || *row.high < 1 ? DiffVerdict::kFaster : DiffVerdict::kUnsure;
  else
    row.verdict = may_have_changed(row, options.threshold) ? DiffVerdict::kUnsure : DiffVerdict::kSame;
}

Diff diff_traces(const Metrics& a, const Metrics& b, const DiffOptions& options) {
  return Comparison(a, b, options).run();
}

}  // namespace attnscope
