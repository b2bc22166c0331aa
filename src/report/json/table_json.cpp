#include "report/json/table_json.h"

#include "report/json/json_out.h"
#include "report/text/torch_table.h"

#include <algorithm>

namespace attnscope::report {
namespace {

Json head(std::string_view source, std::string_view version, std::string_view kind) {
  Json out;
  out["schema"] = "attnscope.table/1";
  out["tool"] = {{"name", "attnscope"}, {"version", version}};
  out["source"] = source;
  out["kind"] = kind;
  return out;
}

}  // namespace

std::string table_json(const Table& table, std::string_view source, size_t row_limit,
                       std::string_view version) {
  Json out = head(source, version, "torch");
  out["self_cpu_us"] = microseconds(table.self_cpu_total_ns);
  put_time(out, "self_device_us", table.has_device_time ? table.self_device_total_ns : Total(-1),
           "no-device-work");
  Json rows = Json::array();
  for (size_t i = 0; i < std::min(row_limit, table.rows.size()); ++i) {
    const TableRow& row = table.rows[i];
    Json entry = {{"name", row.name},
                  {"on_device", row.on_device},
                  {"annotation", row.user_annotation},
                  {"calls", row.calls},
                  {"self_cpu_us", microseconds(row.self_cpu_ns)},
                  {"cpu_total_us", microseconds(row.cpu_total_ns)},
                  {"self_device_us", microseconds(row.self_device_ns)},
                  {"device_total_us", microseconds(row.device_total_ns)}};
    if (!row.input_shapes.empty()) entry["input_shapes"] = row.input_shapes;
    if (table.has_memory) {
      entry["cpu_bytes"] = row.cpu_bytes;
      entry["self_cpu_bytes"] = row.self_cpu_bytes;
      entry["device_bytes"] = row.device_bytes;
      entry["self_device_bytes"] = row.self_device_bytes;
    }
    if (row.flops > 0) entry["flops"] = row.flops;
    rows.push_back(std::move(entry));
  }
  out["rows_in_all"] = table.rows.size();
  out["rows"] = std::move(rows);
  return dump(out);
}

std::string outermost_json(const Metrics& metrics, TableSort sort, std::string_view source, size_t row_limit,
                           std::string_view version) {
  Json out = head(source, version, "outermost");
  const std::vector<const RangeStats*> ranges = outermost_rows(metrics, sort);
  const auto work = [](const trace::WorkSum& sum) {
    return Json{{"kernels", sum.kernels},
                {"copies", sum.copies},
                {"fills", sum.fills},
                {"device_us", microseconds(sum.device_ns)}};
  };
  Json rows = Json::array();
  for (size_t i = 0; i < std::min(row_limit, ranges.size()); ++i) {
    const RangeStats& range = *ranges[i];
    rows.push_back({{"name", metrics.trace->text(range.name)},
                    {"calls", range.calls},
                    {"host_us", microseconds(range.host_ns)},
                    {"self_host_us", microseconds(range.self_host_ns)},
                    {"own_thread", work(range.own_thread)},
                    {"process", work(range.process)}});
  }
  out["rows_in_all"] = ranges.size();
  out["rows"] = std::move(rows);
  return dump(out);
}

}  // namespace attnscope::report
