#include "compare/counts.h"

#include <algorithm>
#include <map>
#include <set>

namespace attnscope::compare {
namespace {

using profiler::RecordedEvent;
using profiler::Recording;
using profiler::RecordKind;

bool is_work(RecordKind kind) {
  return kind == RecordKind::kKernel || kind == RecordKind::kCopy || kind == RecordKind::kFill;
}

// Index of the step a time falls into, −1 outside all.
int step_at(const Recording& recording, int64_t ns) {
  for (size_t i = 0; i < recording.steps.size(); ++i)
    if (ns >= recording.steps[i].begin_ns && ns <= recording.steps[i].end_ns) return static_cast<int>(i);
  return -1;
}

// The innermost operator at or around event `index`; null when there is none.
const RecordedEvent* operator_around(const Recording& recording, int32_t index) {
  for (; index >= 0; index = recording.events[static_cast<size_t>(index)].parent) {
    const RecordedEvent& e = recording.events[static_cast<size_t>(index)];
    if (e.kind == RecordKind::kOperator) return &e;
  }
  return nullptr;
}

// The innermost event of a thread that is open at a time.
int32_t open_at(const Recording& recording, uint64_t thread, int64_t ns) {
  int32_t found = -1;
  for (size_t i = 0; i < recording.events.size(); ++i) {
    const RecordedEvent& e = recording.events[i];
    if (e.thread == thread && e.begin_ns <= ns && ns <= e.end_ns && e.end_ns > e.begin_ns)
      found = static_cast<int32_t>(i);
  }
  return found;
}

void name_operator(const RecordedEvent* op, WorkRow& row) {
  if (!op) return;
  row.op = op->name;
  row.inputs = op->inputs;
}

using Calls = std::vector<std::vector<WorkRow>>;

Calls host_work(const Recording& recording) {
  Calls calls(recording.steps.size());
  for (const RecordedEvent& e : recording.events) {
    const int step = is_work(e.kind) ? step_at(recording, e.begin_ns) : -1;
    if (step < 0) continue;
    WorkRow row;
    row.name = e.name;
    row.kind = e.kind;
    row.time_us = static_cast<double>(e.end_ns - e.begin_ns) / 1e3;
    row.bytes_read = e.bytes_read;
    row.bytes_written = e.bytes_written;
    row.flops = e.flops;
    name_operator(operator_around(recording, e.parent), row);
    calls[static_cast<size_t>(step)].push_back(std::move(row));
  }
  return calls;
}

Calls device_work(const Recording& recording) {
  Calls calls(recording.steps.size());
  std::map<uint64_t, const profiler::RuntimeEvent*> launches;
  std::set<int32_t> used;  // descriptions that a row has taken
  for (const profiler::RuntimeEvent& e : recording.runtime_events) launches[e.correlation] = &e;
  for (const profiler::DeviceEvent& e : recording.device_events) {
    const auto launch = launches.find(e.correlation);
    const int64_t when = launch == launches.end() ? e.begin_ns : launch->second->begin_ns;
    const int step = step_at(recording, when);
    if (step < 0) continue;
    WorkRow row;
    row.name = e.name;
    row.kind = e.kind;
    row.time_us = static_cast<double>(e.end_ns - e.begin_ns) / 1e3;
    if (e.kind == RecordKind::kCopy) row.bytes_read = e.bytes;
    if (e.kind != RecordKind::kKernel) row.bytes_written = e.bytes;
    row.grid = e.grid;
    row.block = e.block;
    row.cluster = e.cluster;
    row.registers = e.registers_per_thread;
    row.shared_bytes = e.shared_bytes;
    if (launch != launches.end()) {
      const int32_t open = open_at(recording, launch->second->thread, launch->second->begin_ns);
      name_operator(operator_around(recording, open), row);
      // Where the launch is described (bytes, operations), the description is that of the first piece of
      // work of its kind: the fill that a library puts before its kernel has nothing of it.
      if (open >= 0 && recording.events[static_cast<size_t>(open)].kind == e.kind &&
          used.insert(open).second) {
        const RecordedEvent& described = recording.events[static_cast<size_t>(open)];
        row.bytes_read = described.bytes_read;
        row.bytes_written = described.bytes_written;
        row.flops = described.flops;
      }
    }
    calls[static_cast<size_t>(step)].push_back(std::move(row));
  }
  return calls;
}

bool same_sequence(const std::vector<WorkRow>& a, const std::vector<WorkRow>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const WorkRow& x, const WorkRow& y) {
    return x.name == y.name && x.kind == y.kind && x.op == y.op;
  });
}

// Largest sum of live allocations within any step, over all threads.
double peak_intermediate(const Recording& recording) {
  std::vector<const RecordedEvent*> instants;
  for (const RecordedEvent& e : recording.events)
    if (e.kind == RecordKind::kAllocation || e.kind == RecordKind::kFree) instants.push_back(&e);
  std::stable_sort(instants.begin(), instants.end(),
                   [](const auto* a, const auto* b) { return a->begin_ns < b->begin_ns; });
  double alive = 0, peak = 0;
  int step = -1;
  for (const RecordedEvent* e : instants) {
    const int now = step_at(recording, e->begin_ns);
    if (now != step) alive = 0;
    step = now;
    alive += static_cast<double>(e->kind == RecordKind::kAllocation ? e->bytes_written : -e->bytes_written);
    peak = std::max(peak, alive);
  }
  return peak;
}

// Time of the outermost operators of each step.
std::vector<double> call_times(const Recording& recording) {
  std::vector<double> times(recording.steps.size(), 0);
  for (const RecordedEvent& e : recording.events) {
    if (e.kind != RecordKind::kOperator || operator_around(recording, e.parent)) continue;
    const int step = step_at(recording, e.begin_ns);
    if (step >= 0) times[static_cast<size_t>(step)] += static_cast<double>(e.end_ns - e.begin_ns) / 1e3;
  }
  return times;
}

void add_totals(CallCounts& counts) {
  bool known = !counts.rows.empty();
  double moved = 0;
  for (const WorkRow& row : counts.rows) {
    counts.kernels += row.kind == RecordKind::kKernel ? 1 : 0;
    counts.copies += row.kind == RecordKind::kCopy ? 1 : 0;
    counts.fills += row.kind == RecordKind::kFill ? 1 : 0;
    const bool says = row.bytes_written >= 0 && (row.bytes_read >= 0 || row.kind == RecordKind::kFill);
    known = known && says;
    moved +=
        static_cast<double>(std::max<int64_t>(row.bytes_read, 0) + std::max<int64_t>(row.bytes_written, 0));
    if (row.kind == RecordKind::kCopy && row.bytes_written >= 0)
      counts.copied_bytes += static_cast<double>(row.bytes_written);
  }
  if (known) counts.bytes_moved = moved;
}

}  // namespace

CallCounts count_calls(const Recording& recording) {
  CallCounts counts;
  counts.calls = static_cast<int>(recording.steps.size());
  if (counts.calls == 0) return counts;
  const bool on_device = recording.has_device_activity;
  const Calls calls = on_device ? device_work(recording) : host_work(recording);
  counts.rows = calls.front();
  counts.steady = std::all_of(calls.begin(), calls.end(),
                              [&](const auto& call) { return same_sequence(call, calls.front()); });
  if (counts.steady)
    for (size_t i = 0; i < counts.rows.size(); ++i) {
      double sum = 0;
      for (const auto& call : calls) sum += call[i].time_us;
      counts.rows[i].time_us = sum / static_cast<double>(calls.size());
    }
  const std::vector<double> whole = call_times(recording);
  std::vector<double> work, host;
  for (size_t i = 0; i < calls.size(); ++i) {
    double sum = 0;
    for (const WorkRow& row : calls[i]) sum += row.time_us;
    work.push_back(sum);
    host.push_back(on_device ? whole[i] : std::max(0.0, whole[i] - sum));
  }
  counts.work_us = distribution_of(std::move(work));
  counts.host_us = distribution_of(std::move(host));
  counts.intermediate_bytes = peak_intermediate(recording);
  add_totals(counts);
  return counts;
}

}  // namespace attnscope::compare
