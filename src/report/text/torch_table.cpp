#include "report/text/torch_table.h"

#include "base/text.h"
#include "report/text/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace attnscope::report {

using trace::EventClass;

namespace {

constexpr size_t kColumn = 12;

std::string torch_time(double us) {
  if (us >= 1e6) return fmt::format("{:.3f}s", us / 1e6);
  if (us >= 1e3) return fmt::format("{:.3f}ms", us / 1e3);
  return fmt::format("{:.3f}us", us);
}
std::string torch_time(int64_t ns) {
  return torch_time(static_cast<double>(ns) / 1e3);
}
// An average to the nanosecond, halves upwards: the exact quotient of two integers, not of two rounded
// floats.
std::string torch_average(int64_t ns, int64_t calls) {
  const int64_t rest = ns % calls;
  return torch_time(ns / calls + (2 * rest + calls) / (2 * calls));
}
std::string share(int64_t ns, int64_t of_ns) {
  return of_ns == 0 ? "NaN"
                    : fmt::format("{:.2f}%", static_cast<double>(ns) * 100.0 / static_cast<double>(of_ns));
}

std::string cut_name(std::string_view name, size_t width) {
  return name.size() <= width ? std::string(name) : std::string(name.substr(0, width - 3)) + "...";
}

std::string torch_memory(int64_t bytes) {
  const double magnitude = std::fabs(static_cast<double>(bytes)), kib = 1024;
  if (magnitude >= kib * kib * kib)
    return fmt::format("{:.2f} GB", static_cast<double>(bytes) / (kib * kib * kib));
  if (magnitude >= kib * kib) return fmt::format("{:.2f} MB", static_cast<double>(bytes) / (kib * kib));
  if (magnitude >= kib) return fmt::format("{:.2f} KB", static_cast<double>(bytes) / kib);
  return fmt::format("{} B", bytes);
}

// The unit of a column of operations: that of its smallest figure.
struct FlopsUnit {
  double scale;
  std::string_view name;
};
FlopsUnit flops_unit(const Table& table) {
  static constexpr std::array<std::string_view, 6> kNames{"FLOPs",  "KFLOPs", "MFLOPs",
                                                          "GFLOPs", "TFLOPs", "PFLOPs"};
  int64_t least = INT64_MAX;
  for (const TableRow& row : table.rows)
    if (row.flops > 0) least = std::min<int64_t>(least, row.flops);
  size_t unit = 0;
  for (int64_t left = least / 1000; left > 0 && unit + 1 < kNames.size(); left /= 1000) ++unit;
  return {std::pow(1000.0, -static_cast<double>(unit)), kNames[unit]};
}

struct Column {
  std::string header;
  size_t width;
};

}  // namespace

std::string torch_table(const Table& table, const TorchTableOptions& options) {
  size_t longest_name = 0, longest_shapes = 0;
  bool shapes = false;
  for (const TableRow& row : table.rows) {
    longest_name = std::max(longest_name, row.name.size());
    longest_shapes = std::max(longest_shapes, row.input_shapes.size());
    shapes |= !row.input_shapes.empty();
  }
  const size_t name_width = std::min(longest_name + 4, options.name_width);
  const size_t shapes_width = std::min(longest_shapes + 4, options.shapes_width);
  std::vector<Column> columns{{"Name", name_width},     {"Self CPU %", kColumn}, {"Self CPU", kColumn},
                              {"CPU total %", kColumn}, {"CPU total", kColumn},  {"CPU time avg", kColumn}};
  if (table.has_device_time)
    for (const char* title : {"Self {}", "Self {} %", "{} total", "{} time avg"})
      columns.push_back({fmt::format(fmt::runtime(title), table.device_word), kColumn});
  if (table.has_memory)
    for (const char* title : {"CPU Mem", "Self CPU Mem"}) columns.push_back({title, kColumn});
  if (table.has_device_memory)
    for (const char* title : {"{} Mem", "Self {} Mem"})
      columns.push_back({fmt::format(fmt::runtime(title), table.device_word), kColumn});
  columns.push_back({"# of Calls", kColumn});
  if (shapes) columns.push_back({"Input Shapes", shapes_width});
  const FlopsUnit flops = flops_unit(table);
  if (table.has_flops) columns.push_back({fmt::format("Total {}", flops.name), kColumn});

  std::string rule;
  for (const Column& column : columns) rule += std::string(column.width, '-') + "  ";
  rule += "\n";
  std::string out = rule;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (size_t c = 0; c < cells.size(); ++c) out += pad(cells[c], columns[c].width, true) + "  ";
    out += "\n";
  };
  std::vector<std::string> titles;
  titles.reserve(columns.size());
  for (const Column& column : columns) titles.push_back(column.header);
  line(titles);
  out += rule;
  for (size_t i = 0; i < std::min(table.rows.size(), options.row_limit); ++i) {
    const TableRow& row = table.rows[i];
    std::vector<std::string> cells{terminal_safe(cut_name(row.name, name_width), name_width),
                                   share(row.self_cpu_ns, table.self_cpu_total_ns),
                                   torch_time(row.self_cpu_ns),
                                   share(row.cpu_total_ns, table.self_cpu_total_ns),
                                   torch_time(row.cpu_total_ns),
                                   torch_average(row.cpu_total_ns, row.calls)};
    if (table.has_device_time) {
      cells.push_back(torch_time(row.self_device_ns));
      cells.push_back(share(row.self_device_ns, table.self_device_total_ns));
      cells.push_back(torch_time(row.device_total_ns));
      cells.push_back(torch_average(row.device_total_ns, row.calls));
    }
    if (table.has_memory)
      for (const int64_t bytes : {row.cpu_bytes, row.self_cpu_bytes}) cells.push_back(torch_memory(bytes));
    if (table.has_device_memory)
      for (const int64_t bytes : {row.device_bytes, row.self_device_bytes})
        cells.push_back(torch_memory(bytes));
    cells.push_back(fmt::format("{}", row.calls));
    if (shapes) cells.push_back(terminal_safe(row.input_shapes.substr(0, shapes_width), shapes_width));
    if (table.has_flops)
      cells.push_back(row.flops > 0 ? fmt::format("{:.3f}", static_cast<double>(row.flops) * flops.scale)
                                    : "--");
    line(cells);
  }
  out += rule;
  out += "Self CPU time total: " + torch_time(table.self_cpu_total_ns) + "\n";
  if (table.has_device_time)
    out += fmt::format("Self {} time total: {}\n", table.device_word, torch_time(table.self_device_total_ns));
  return out;
}

std::vector<const RangeStats*> outermost_rows(const Metrics& metrics, TableSort sort) {
  std::vector<const RangeStats*> rows;
  for (const RangeStats& range : metrics.ranges)
    if (range.cls == EventClass::kOperator || range.cls == EventClass::kUserRange ||
        range.cls == EventClass::kSpan)
      rows.push_back(&range);
  const auto figure = [&](const RangeStats& r) -> double {
    const double calls = static_cast<double>(std::max<uint64_t>(1, r.calls));
    switch (sort) {
      case TableSort::kNone: return 0;
      case TableSort::kCpuTime: return static_cast<double>(r.host_ns) / calls;
      case TableSort::kCpuTimeTotal: return static_cast<double>(r.host_ns);
      case TableSort::kSelfCpuTimeTotal: return static_cast<double>(r.self_host_ns);
      case TableSort::kDeviceTime: return static_cast<double>(r.own_thread.device_ns) / calls;
      case TableSort::kDeviceTimeTotal: return static_cast<double>(r.own_thread.device_ns);
      case TableSort::kSelfDeviceTimeTotal: return static_cast<double>(r.self.device_ns);
      case TableSort::kCount: return static_cast<double>(r.calls);
      default: return 0;  // memory and operations: torch's table only
    }
    return 0;
  };
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const RangeStats* a, const RangeStats* b) { return figure(*a) > figure(*b); });
  return rows;
}

std::string outermost_table(const Metrics& metrics, TableSort sort, const OutermostOptions& options) {
  const std::vector<const RangeStats*> rows = outermost_rows(metrics, sort);
  const auto per_call = [](int64_t ns, uint64_t calls) {
    return format_time_us(static_cast<double>(ns) / 1e3 / static_cast<double>(std::max<uint64_t>(1, calls)));
  };
  TextTable table;
  table.header = {"calls", "host",   "per call", "self",          "kernels", "copies",
                  "fills", "device", "per call", "other threads", "name"};
  table.right = {true, true, true, true, true, true, true, true, true, true, false};
  for (size_t i = 0; i < std::min(rows.size(), options.row_limit); ++i) {
    const RangeStats& r = *rows[i];
    const auto number = [](uint64_t n) { return group_digits(static_cast<int64_t>(n)); };
    const int64_t elsewhere = r.process.device_ns - r.own_thread.device_ns;
    table.rows.push_back(
        {number(r.calls), format_time_us(static_cast<double>(r.host_ns) / 1e3), per_call(r.host_ns, r.calls),
         format_time_us(static_cast<double>(r.self_host_ns) / 1e3), number(r.own_thread.kernels),
         number(r.own_thread.copies), number(r.own_thread.fills),
         format_time_us(static_cast<double>(r.own_thread.device_ns) / 1e3),
         per_call(r.own_thread.device_ns, r.calls),
         elsewhere > 0 ? format_time_us(static_cast<double>(elsewhere) / 1e3) : "-",
         terminal_safe(metrics.trace->text(r.name), 120)});
  }
  std::string out = table.render(options.width);
  if (rows.size() > options.row_limit)
    out += fmt::format("… {} more rows: --rows -1\n", rows.size() - options.row_limit);
  return out +
         "calls are outermost calls; kernels, copies, fills and device: launched inside them on their own "
         "thread\n";
}

}  // namespace attnscope::report
