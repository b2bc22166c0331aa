#include "analysis/table.h"

#include "base/text.h"
#include "base/total.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <unordered_map>

namespace attnscope {

using trace::EventClass;
using trace::EventIndex;
using trace::kNoEvent;
using trace::Links;
using trace::Trace;

namespace {

constexpr uint32_t kNone = UINT32_MAX;

// One event of the table while parents are being found.
struct Node {
  EventIndex event;
  uint32_t parent = kNone;
  std::vector<uint32_t> children;
  Total kernels_ns;  // device work launched by it
  Total device_total_ns;
  bool dropped = false;
};

// Allocations in time order, as running sums.
class Allocations {
 public:
  struct Sum {
    int64_t cpu = 0, device = 0;
  };
  explicit Allocations(const Trace& trace) : trace_(trace) {
    for (EventIndex event = 0; event < trace.size(); ++event)
      if (trace.cls(event) == EventClass::kMemory) events_.push_back(event);
    std::stable_sort(events_.begin(), events_.end(),
                     [&](EventIndex a, EventIndex b) { return trace.ts_ns(a) < trace.ts_ns(b); });
    sums_.emplace_back();
    for (const EventIndex event : events_) {
      const Sum one = of(event);
      // Files may hold any number: sums wrap instead of overflowing.
      sums_.push_back({wrapped(sums_.back().cpu, one.cpu), wrapped(sums_.back().device, one.device)});
    }
    inside_.resize(events_.size() + 1);
  }
  bool any() const { return !events_.empty(); }
  Sum of(EventIndex event) const {
    const trace::MemoryInfo& memory = trace_.memory(event);
    // Device types of the host in torch's numbering: CPU, MKLDNN, IDEEP.
    const bool host = memory.device_type == 0 || memory.device_type == 2 || memory.device_type == 5;
    return host ? Sum{memory.bytes, 0} : Sum{0, memory.bytes};
  }
  // Of the events in [begin, end], which are then inside something.
  Sum between(int64_t begin_ns, int64_t end_ns) {
    const auto time = [&](EventIndex event) { return trace_.ts_ns(event); };
    const auto from = std::partition_point(events_.begin(), events_.end(),
                                           [&](EventIndex e) { return time(e) < begin_ns; });
    const auto to =
        std::partition_point(from, events_.end(), [&](EventIndex e) { return time(e) <= end_ns; });
    const auto a = static_cast<size_t>(from - events_.begin()), b = static_cast<size_t>(to - events_.begin());
    ++inside_[a];
    --inside_[b];
    return {wrapped(sums_[b].cpu, negated(sums_[a].cpu)), wrapped(sums_[b].device, negated(sums_[a].device))};
  }
  // Those that were in none of the intervals asked for.
  std::vector<EventIndex> outside() const {
    std::vector<EventIndex> out;
    int64_t depth = 0;
    for (size_t i = 0; i < events_.size(); ++i) {
      depth += inside_[i];
      if (depth == 0) out.push_back(events_[i]);
    }
    return out;
  }
  static int64_t wrapped(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
  static int64_t negated(int64_t a) { return static_cast<int64_t>(0 - static_cast<uint64_t>(a)); }

 private:
  const Trace& trace_;
  std::vector<EventIndex> events_;
  std::vector<Sum> sums_;        // before each event
  std::vector<int64_t> inside_;  // intervals that begin less those that end before each event
};

bool is_host_row(EventClass cls) {
  return cls == EventClass::kOperator || cls == EventClass::kUserRange || cls == EventClass::kRuntime ||
         cls == EventClass::kDriver || cls == EventClass::kSpan || cls == EventClass::kOverhead;
}

// Names that torch's parser passes over.
bool is_hidden(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kHidden{
      "profiler::_record_function_enter", "profiler::_record_function_enter_new",
      "profiler::_record_function_exit", "aten::is_leaf", "aten::output_nr"};
  return std::find(kHidden.begin(), kHidden.end(), name) != kHidden.end() || name == "aten::_version";
}

std::string row_name(std::string_view name) {
  return name.starts_with("ProfilerStep#") ? "ProfilerStep*" : std::string(name);
}

class TableBuilder {
 public:
  TableBuilder(const Trace& trace, const Links& links, const TableOptions& options)
      : trace_(trace), links_(links), options_(options), allocations_(trace) {}

  Table build() {
    collect();
    nest();
    attach_device_work();
    drop_sole_children();
    sum_device_totals();
    for (const EventIndex event : all_in_order()) add_to_row(event);
    add_memory_row();
    finish();
    return std::move(table_);
  }

 private:
  bool runs_on_host(EventIndex event) const {
    return is_host_row(trace_.cls(event)) || links_.link_basis(event) == trace::LinkBasis::kCpu;
  }
  bool runs_on_device(EventIndex event) const {
    const EventClass cls = trace_.cls(event);
    return (trace::is_device_work(cls) && !runs_on_host(event)) || cls == EventClass::kGpuAnnotation ||
           cls == EventClass::kDeviceOther;
  }

  void collect() {
    for (EventIndex event = 0; event < trace_.size(); ++event) {
      if (!runs_on_host(event) || is_hidden(trace_.name(event))) continue;
      node_of_.emplace(event, static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(Node{event, kNone, {}, {}, {}, false});
    }
  }

  std::vector<EventIndex> all_in_order() const {
    std::vector<EventIndex> events;
    for (EventIndex event = 0; event < trace_.size(); ++event)
      if (node_of_.contains(event) || runs_on_device(event)) events.push_back(event);
    std::stable_sort(events.begin(), events.end(), [&](EventIndex a, EventIndex b) {
      const Times x = times(a), y = times(b);
      return std::tuple(x.begin_ns, -x.end_ns) < std::tuple(y.begin_ns, -y.end_ns);
    });
    return events;
  }

  void nest() {
    std::vector<uint32_t> order(nodes_.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const auto key = [&](uint32_t n) {
        const EventIndex e = nodes_[n].event;
        return std::tuple(trace_.thread(e), trace_.ts_ns(e), -trace_.end_ns(e));
      };
      return key(a) < key(b);
    });
    std::vector<uint32_t> open;
    uint32_t thread = kNone;
    for (const uint32_t n : order) {
      const EventIndex event = nodes_[n].event;
      if (trace_.thread(event) != thread) open.clear();
      thread = trace_.thread(event);
      while (!open.empty()) {
        const EventIndex around = nodes_[open.back()].event;
        if (trace_.ts_ns(event) < trace_.end_ns(around) && trace_.end_ns(event) <= trace_.end_ns(around)) {
          nodes_[n].parent = open.back();
          nodes_[open.back()].children.push_back(n);
          break;
        }
        open.pop_back();
      }
      open.push_back(n);
    }
  }

  // Device work belongs to the innermost operator around its launch; a range alone gets none.
  void attach_device_work() {
    for (const EventIndex work : links_.device_work()) {
      if (runs_on_host(work)) continue;  // our CPU recordings: a row of the host already
      EventIndex up = links_.launched_by(work);
      while (up != kNoEvent && trace_.cls(up) != EventClass::kOperator) up = links_.parent(up);
      if (up == kNoEvent) continue;
      if (const auto at = node_of_.find(up); at != node_of_.end())
        nodes_[at->second].kernels_ns += trace_.dur_ns(work);
    }
  }

  // A span whose only child has its own name swallows it, again and again until nothing changes.
  void drop_sole_children() {
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t n = 0; n < nodes_.size(); ++n) {
        Node& node = nodes_[n];
        if (node.dropped || node.parent == kNone) continue;
        Node& parent = nodes_[node.parent];
        if (trace_.name_id(parent.event) != trace_.name_id(node.event) || parent.children.size() != 1)
          continue;
        parent.children = node.children;
        parent.kernels_ns = node.kernels_ns;
        for (const uint32_t child : node.children) nodes_[child].parent = node.parent;
        node.dropped = true;
        changed = true;
      }
    }
  }

  // Children before parents, depth first and without recursion: a hostile trace may nest 10^6 deep.
  void sum_device_totals() {
    std::vector<std::pair<uint32_t, size_t>> stack;
    for (uint32_t root = 0; root < nodes_.size(); ++root) {
      if (nodes_[root].dropped || nodes_[root].parent != kNone) continue;
      stack.emplace_back(root, 0);
      while (!stack.empty()) {
        auto& [n, next] = stack.back();
        Node& node = nodes_[n];
        if (next < node.children.size()) {
          stack.emplace_back(node.children[next++], 0);
          continue;
        }
        node.device_total_ns = node.kernels_ns;
        for (const uint32_t child : node.children) node.device_total_ns += nodes_[child].device_total_ns;
        stack.pop_back();
      }
    }
  }

  // Kineto draws annotation rows a little wider than the work they span: from 1 ns before it to 1 ns after,
  // since times have fractions.
  struct Times {
    int64_t begin_ns, end_ns;
  };
  Times times(EventIndex event) const {
    const Times as_drawn{trace_.ts_ns(event), trace_.end_ns(event)};
    const bool widened = trace_.cls(event) == EventClass::kGpuAnnotation &&
                         trace_.era() >= trace::Era::kTorch24 && trace_.era() <= trace::Era::kTorch2026 &&
                         trace_.dur_ns(event) >= 2;
    return widened ? Times{as_drawn.begin_ns + 1, as_drawn.end_ns - 1} : as_drawn;
  }

  TableRow& row_for(EventIndex event, bool on_device) {
    const EventClass cls = trace_.cls(event);
    const bool annotation = cls == EventClass::kGpuAnnotation || cls == EventClass::kUserRange;
    std::string shapes;
    if (options_.by_input_shape && cls == EventClass::kOperator)
      shapes = std::string(trace_.operator_args(event).input_dims);
    if (options_.by_input_shape && shapes.empty()) shapes = "[]";
    auto key = std::tuple(row_name(trace_.name(event)), on_device, annotation, shapes);
    const auto [at, fresh] = row_of_.try_emplace(std::move(key), table_.rows.size());
    if (fresh) {
      TableRow row;
      row.name = std::get<0>(at->first);
      row.on_device = on_device;
      row.user_annotation = annotation;
      row.input_shapes = shapes;
      table_.rows.push_back(std::move(row));
    }
    return table_.rows[at->second];
  }

  void add_to_row(EventIndex event) {
    const auto at = node_of_.find(event);
    if (at == node_of_.end()) {
      TableRow& row = row_for(event, true);
      const Times time = times(event);
      ++row.calls;
      row.self_device_ns += time.end_ns - time.begin_ns;
      row.device_total_ns += time.end_ns - time.begin_ns;
      if (!row.user_annotation) table_.self_device_total_ns += trace_.dur_ns(event);
      add_flops(event, row);
      return;
    }
    const Node& node = nodes_[at->second];
    if (node.dropped) return;
    TableRow& row = row_for(event, false);
    Total self{trace_.dur_ns(event)};
    for (const uint32_t child : node.children) self -= trace_.dur_ns(nodes_[child].event);
    ++row.calls;
    row.cpu_total_ns += trace_.dur_ns(event);
    row.self_cpu_ns += self;
    row.device_total_ns += node.device_total_ns;
    row.self_device_ns += node.kernels_ns;
    table_.self_cpu_total_ns += self;
    add_flops(event, row);
    if (allocations_.any()) add_memory(node, row);
  }

  void add_flops(EventIndex event, TableRow& row) {
    const int64_t flops = trace_.work(event).flops;
    if (flops > 0) row.flops += flops;
  }

  void add_memory(const Node& node, TableRow& row) {
    const auto sum_of = [&](EventIndex e) { return allocations_.between(trace_.ts_ns(e), trace_.end_ns(e)); };
    const auto add = [](int64_t& into, int64_t bytes) { into = Allocations::wrapped(into, bytes); };
    const Allocations::Sum all = sum_of(node.event);
    add(row.cpu_bytes, all.cpu);
    add(row.device_bytes, all.device);
    add(row.self_cpu_bytes, all.cpu);
    add(row.self_device_bytes, all.device);
    for (const uint32_t child : node.children) {
      const Allocations::Sum inside = sum_of(nodes_[child].event);
      add(row.self_cpu_bytes, Allocations::negated(inside.cpu));
      add(row.self_device_bytes, Allocations::negated(inside.device));
    }
  }

  // What was allocated while no operator ran.
  void add_memory_row() {
    for (const EventIndex event : allocations_.outside()) {
      TableRow& row = row_for(event, false);
      const Allocations::Sum one = allocations_.of(event);
      ++row.calls;
      for (int64_t* cpu : {&row.cpu_bytes, &row.self_cpu_bytes}) *cpu = Allocations::wrapped(*cpu, one.cpu);
      for (int64_t* device : {&row.device_bytes, &row.self_device_bytes})
        *device = Allocations::wrapped(*device, one.device);
    }
  }

  void finish() {
    table_.has_memory = allocations_.any();
    for (const TableRow& row : table_.rows) {
      table_.has_device_time |= row.self_device_ns > 0;
      table_.has_device_memory |= row.self_device_bytes > 0;
      table_.has_flops |= row.flops > 0;
    }
    for (EventIndex event = 0; event < trace_.size(); ++event) {
      if (trace_.cls(event) != EventClass::kRuntime) continue;
      if (trace_.category(event).starts_with("xpu")) table_.device_word = "XPU";
      if (trace_.category(event).starts_with("mtia")) table_.device_word = "MTIA";
      break;
    }
    const auto figure = [&](const TableRow& row) -> double {
      const double calls = static_cast<double>(std::max<int64_t>(1, row.calls));
      switch (options_.sort) {
        case TableSort::kNone: return 0;
        case TableSort::kCpuTime: return static_cast<double>(row.cpu_total_ns) / calls;
        case TableSort::kCpuTimeTotal: return static_cast<double>(row.cpu_total_ns);
        case TableSort::kSelfCpuTimeTotal: return static_cast<double>(row.self_cpu_ns);
        case TableSort::kDeviceTime: return static_cast<double>(row.device_total_ns) / calls;
        case TableSort::kDeviceTimeTotal: return static_cast<double>(row.device_total_ns);
        case TableSort::kSelfDeviceTimeTotal: return static_cast<double>(row.self_device_ns);
        case TableSort::kCount: return static_cast<double>(row.calls);
        case TableSort::kCpuMemory: return static_cast<double>(row.cpu_bytes);
        case TableSort::kSelfCpuMemory: return static_cast<double>(row.self_cpu_bytes);
        case TableSort::kDeviceMemory: return static_cast<double>(row.device_bytes);
        case TableSort::kSelfDeviceMemory: return static_cast<double>(row.self_device_bytes);
        case TableSort::kFlops: return static_cast<double>(row.flops);
      }
      return 0;
    };
    std::stable_sort(table_.rows.begin(), table_.rows.end(),
                     [&](const TableRow& a, const TableRow& b) { return figure(a) > figure(b); });
  }

  const Trace& trace_;
  const Links& links_;
  const TableOptions& options_;
  Allocations allocations_;
  std::vector<Node> nodes_;
  std::unordered_map<EventIndex, uint32_t> node_of_;
  std::map<std::tuple<std::string, bool, bool, std::string>, size_t> row_of_;
  Table table_;
};

}  // namespace

Result<TableSort> parse_table_sort(std::string_view text) {
  std::string word(text);
  for (std::string_view device : {"cuda", "xpu", "mtia", "hpu", "privateuse1"})
    if (const size_t at = word.find(device); at != std::string::npos)
      word.replace(at, device.size(), "device");
  static constexpr std::array<std::pair<std::string_view, TableSort>, 13> kKeys{
      {{"none", TableSort::kNone},
       {"cpu_time", TableSort::kCpuTime},
       {"cpu_time_total", TableSort::kCpuTimeTotal},
       {"self_cpu_time_total", TableSort::kSelfCpuTimeTotal},
       {"device_time", TableSort::kDeviceTime},
       {"device_time_total", TableSort::kDeviceTimeTotal},
       {"self_device_time_total", TableSort::kSelfDeviceTimeTotal},
       {"count", TableSort::kCount},
       {"cpu_memory_usage", TableSort::kCpuMemory},
       {"self_cpu_memory_usage", TableSort::kSelfCpuMemory},
       {"device_memory_usage", TableSort::kDeviceMemory},
       {"self_device_memory_usage", TableSort::kSelfDeviceMemory},
       {"flops", TableSort::kFlops}}};
  std::vector<std::string> known;
  for (const auto& [key, sort] : kKeys) {
    if (word == key) return sort;
    known.emplace_back(key);
  }
  const std::string guess = closest(word, known);
  return fail(ErrorCode::kInvalidArgument, "there is no sort key " + std::string(text),
              guess.empty() ? "one of: " + join(known, ", ") : "did you mean " + guess);
}

Table make_table(const Trace& trace, const Links& links, const TableOptions& options) {
  return TableBuilder(trace, links, options).build();
}

}  // namespace attnscope
