#include "analysis/table.h"

#include "report/text/torch_table.h"
#include "support/trace_files.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace {

using support::load_json;
using support::load_trace;
using support::read_text;
using support::trace_path;

class TorchTable : public testing::TestWithParam<const char*> {};

// Cells of a line of the table; columns are two spaces apart.
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> out;
  for (size_t at = line.find_first_not_of(' '); at != std::string::npos;) {
    const size_t end = std::min(line.find("  ", at), line.size());
    out.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(' ', end);
  }
  return out;
}

// The table that PyTorch itself printed for the same recording, line by line and character by character. Only
// an average that lies exactly between two thousandths may differ in its last digit: torch adds up floats,
// whose noise decides there.
TEST_P(TorchTable, EqualsTorchsOwn) {
  const auto loaded = load_trace(std::string("article/") + GetParam() + ".json.gz");
  const Table table = make_table(loaded->trace, loaded->links, {TableSort::kSelfDeviceTimeTotal, false});
  report::TorchTableOptions options;
  options.row_limit = 40;
  std::istringstream ours(report::torch_table(table, options));
  std::istringstream theirs(read_text(trace_path(std::string("article/") + GetParam() + ".torch-table.txt")));
  std::string our_line, their_line;
  int lines = 0, ties = 0;
  while (std::getline(theirs, their_line)) {
    ASSERT_TRUE(std::getline(ours, our_line)) << their_line;
    ++lines;
    if (our_line == their_line) continue;
    const std::vector<std::string> a = cells(our_line), b = cells(their_line);
    ASSERT_EQ(a.size(), b.size()) << our_line << "\n" << their_line;
    ASSERT_EQ(our_line.size(), their_line.size());
    for (size_t c = 0; c < a.size(); ++c) {
      if (a[c] == b[c]) continue;
      ASSERT_TRUE(c == 5 || c == 9) << our_line << "\n" << their_line;
      EXPECT_NEAR(std::stod(a[c]), std::stod(b[c]), 0.00101) << our_line;
      const TableRow& row = table.rows[static_cast<size_t>(lines - 4)];
      const int64_t total = c == 5 ? row.cpu_total_ns : row.device_total_ns;
      EXPECT_EQ(2 * total % (2 * row.calls), row.calls) << "not a tie: " << our_line;
      ++ties;
    }
  }
  EXPECT_FALSE(std::getline(ours, our_line)) << our_line;
  EXPECT_GT(lines, 10);
  EXPECT_LE(ties, 2);
}
INSTANTIATE_TEST_SUITE_P(Article, TorchTable,
                         testing::Values("auto", "cudnn", "efficient", "flash", "flex_compiled", "inplace",
                                         "math", "naive", "naive_compiled"),
                         [](const auto& test) { return std::string(test.param); });

const TableRow* find(const Table& table, std::string_view name, bool on_device = false) {
  for (const TableRow& row : table.rows)
    if (row.name == name && row.on_device == on_device) return &row;
  return nullptr;
}

TEST(Table, DropsASoleChildOfTheSameName) {
  const auto loaded = load_trace("article/math.json.gz");
  const Table table = make_table(loaded->trace, loaded->links, {});
  ASSERT_NE(find(table, "aten::mul"), nullptr);
  EXPECT_EQ(find(table, "aten::mul")->calls, 6);  // 12 events in the file
}

TEST(Table, KeepsAChildOfTheSameNameThatHasASibling) {
  const auto loaded = load_json(R"([
    {"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":0,"dur":10},
    {"ph":"X","cat":"cpu_op","name":"aten::add","pid":1,"tid":1,"ts":1,"dur":2},
    {"ph":"X","cat":"cpu_op","name":"aten::view","pid":1,"tid":1,"ts":5,"dur":2}])");
  const Table table = make_table(loaded->trace, loaded->links, {});
  EXPECT_EQ(find(table, "aten::add")->calls, 2);
  EXPECT_EQ(find(table, "aten::add")->cpu_total_ns, 12'000);
  EXPECT_EQ(find(table, "aten::add")->self_cpu_ns, 8'000);
}

TEST(Table, ASpanThatOutlivesTheOneAroundItIsNoChild) {
  const auto loaded = load_json(R"([
    {"ph":"X","cat":"cpu_op","name":"aten::a","pid":1,"tid":1,"ts":0,"dur":10},
    {"ph":"X","cat":"cpu_op","name":"aten::b","pid":1,"tid":1,"ts":5,"dur":10}])");
  const Table table = make_table(loaded->trace, loaded->links, {});
  EXPECT_EQ(find(table, "aten::a")->self_cpu_ns, 10'000);
  EXPECT_EQ(table.self_cpu_total_ns, 20'000);
}

TEST(Table, GroupsByInputShape) {
  const auto loaded = load_json(R"([
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":0,"dur":10,"args":{"Input Dims":[[2,3],[3,4]],"Input type":["float","float"]}},
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":20,"dur":30,"args":{"Input Dims":[[2,3],[3,5]],"Input type":["float","float"]}},
    {"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":60,"dur":30,"args":{"Input Dims":[[2,3],[3,5]],"Input type":["float","float"]}}])");
  TableOptions options;
  options.by_input_shape = true;
  options.sort = TableSort::kCpuTimeTotal;
  const Table table = make_table(loaded->trace, loaded->links, options);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].calls, 2);
  EXPECT_NE(table.rows[0].input_shapes.find("5"), std::string::npos);
}

TEST(Table, CpuOnlyTracesHaveNoDeviceColumns) {
  const auto loaded = load_trace("programs/cpu_sdpa.json.gz");
  const Table table = make_table(loaded->trace, loaded->links, {});
  EXPECT_FALSE(table.has_device_time);
  EXPECT_EQ(report::torch_table(table, {}).find("CUDA"), std::string::npos);
}

std::string allocation(int ts, int64_t bytes, int device_type) {
  return R"({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 9, "ts": )" +
         std::to_string(ts) + R"(, "args": {"Bytes": )" + std::to_string(bytes) +
         R"(, "Addr": 1, "Device Type": )" + std::to_string(device_type) + R"(, "Device Id": 0}})";
}

TEST(Table, MemoryBelongsToWhatRunsAtTheTime) {
  const auto loaded = load_json(
      R"([{"ph": "X", "cat": "cpu_op", "name": "outer", "pid": 1, "tid": 1, "ts": 0, "dur": 10},
          {"ph": "X", "cat": "cpu_op", "name": "inner", "pid": 1, "tid": 1, "ts": 4, "dur": 2},)" +
      allocation(5, 1536, 0) + "," + allocation(7, 3 << 20, 1) + "," + allocation(8, -512, 0) + "," +
      allocation(20, 100, 0) + "]");
  const Table table = make_table(loaded->trace, loaded->links, {TableSort::kSelfCpuMemory, false});
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_TRUE(table.has_memory && table.has_device_memory);
  EXPECT_FALSE(table.has_flops);
  const TableRow &inner = table.rows[0], &alone = table.rows[1], &outer = table.rows[2];
  EXPECT_EQ(inner.name, "inner");
  EXPECT_EQ(inner.cpu_bytes, 1536);
  EXPECT_EQ(inner.self_cpu_bytes, 1536);
  EXPECT_EQ(inner.device_bytes, 0);
  EXPECT_EQ(outer.cpu_bytes, 1024);
  EXPECT_EQ(outer.self_cpu_bytes, -512);
  EXPECT_EQ(outer.self_device_bytes, 3 << 20);
  EXPECT_EQ(alone.name, "[memory]");
  EXPECT_EQ(alone.cpu_bytes, 100);
  EXPECT_EQ(alone.calls, 1);
  const std::string text = report::torch_table(table, {});
  for (const char* part : {"     CPU Mem  Self CPU Mem      CUDA Mem  Self CUDA Mem    # of Calls", "1.50 KB",
                           "-512 B", "3.00 MB", "100 B"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Table, OperationsInTheUnitOfTheSmallest) {
  const auto loaded = load_json(
      R"([{"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 1, "tid": 1, "ts": 0, "dur": 10, "args": {"flops": 2000000}},
          {"ph": "X", "cat": "cpu_op", "name": "mm", "pid": 1, "tid": 1, "ts": 20, "dur": 10, "args": {"flops": 2000000}},
          {"ph": "X", "cat": "cpu_op", "name": "view", "pid": 1, "tid": 1, "ts": 40, "dur": 1}])");
  const Table table = make_table(loaded->trace, loaded->links, {TableSort::kFlops, false});
  EXPECT_FALSE(table.has_memory);
  const std::string text = report::torch_table(table, {});
  EXPECT_NE(text.find("Total MFLOPs"), std::string::npos) << text;
  EXPECT_NE(text.find("4.000"), std::string::npos) << text;
  EXPECT_NE(text.find("--  \n"), std::string::npos) << text;
}

TEST(TableSortKey, TakesTorchsWordsAndSuggests) {
  EXPECT_EQ(*parse_table_sort("self_cuda_time_total"), TableSort::kSelfDeviceTimeTotal);
  EXPECT_EQ(*parse_table_sort("cpu_time"), TableSort::kCpuTime);
  const auto wrong = parse_table_sort("self_cuda_time_totl");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().remedy.find("self_device_time_total"), std::string::npos);
}

}  // namespace
}  // namespace attnscope
