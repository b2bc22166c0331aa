#pragma once
// The table that torch.profiler's key_averages().table() prints, computed from a trace.

#include "attnscope/result.h"
#include "base/total.h"
#include "trace/link.h"
#include "trace/trace.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// One row: every event of one name, device side and host side apart, as torch groups them.
struct TableRow {
  std::string name;          // ProfilerStep#n becomes ProfilerStep*
  std::string input_shapes;  // "[[8, 16], []]" when grouped by shape, else empty
  bool on_device = false;
  bool user_annotation = false;
  int64_t calls = 0;
  Total self_cpu_ns, cpu_total_ns;
  Total self_device_ns, device_total_ns;
  // Bytes allocated less bytes freed while it ran, by whatever thread.
  int64_t cpu_bytes = 0, self_cpu_bytes = 0, device_bytes = 0, self_device_bytes = 0;
  Total flops;  // 0: not recorded
};

enum class TableSort : uint8_t {
  kNone,  // by first appearance
  kCpuTime,
  kCpuTimeTotal,
  kSelfCpuTimeTotal,
  kDeviceTime,
  kDeviceTimeTotal,
  kSelfDeviceTimeTotal,
  kCount,
  kCpuMemory,
  kSelfCpuMemory,
  kDeviceMemory,
  kSelfDeviceMemory,
  kFlops,
};
// torch's words: "self_cuda_time_total", "self_device_time_total", "cpu_time", "count" …
Result<TableSort> parse_table_sort(std::string_view text);

struct TableOptions {
  TableSort sort = TableSort::kSelfDeviceTimeTotal;
  bool by_input_shape = false;
};

struct Table {
  std::vector<TableRow> rows;
  Total self_cpu_total_ns;
  Total self_device_total_ns;        // without annotation rows: they span work that is counted already
  std::string device_word = "CUDA";  // the column titles' word: CUDA, XPU, MTIA
  bool has_device_time = false;
  bool has_memory = false;         // allocations were recorded (profile_memory)
  bool has_device_memory = false;  // and some of them are a device's
  bool has_flops = false;
};

// torch's rules, the surprising ones included: a span that outlives the one around it is not its child; a
// sole child of the same name is dropped and its work lifted to the parent (aten::mul under aten::mul);
// device work counts for the innermost operator, not for a range without operators; what earlier steps
// launched counts when it ran inside the window; annotation rows on the device span first to last work;
// allocations belong to every operator that runs at the time, those in none are a row of their own.
Table make_table(const trace::Trace& trace, const trace::Links& links, const TableOptions& options);

}  // namespace attnscope
