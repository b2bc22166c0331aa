#include "backends/cpu_fused/schedule.h"

#include "attention/geometry.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace attnscope::cpu_fused {
namespace {

constexpr double kFlopsPerThread = 1e6;  // some ten microseconds: less is not worth waking a thread for
constexpr int64_t kMinKeysPerSplit = 512;
constexpr int64_t kMaxStreamRows = 8;  // beyond, the panels pay for themselves
constexpr int64_t kMaxSplits = 256;
constexpr int kTasksPerThread = 3;   // enough for the longest-first order to even out
constexpr double kSortedTail = 4.0;  // of the longest task's work, per thread

constexpr int64_t div_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
  return div_up(a, b) * b;
}

int64_t l2_bytes() {
  static const int64_t bytes = [] {
    const long found = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return found > 0 ? std::max<int64_t>(found, 256 << 10) : int64_t{512 << 10};
  }();
  return bytes;
}

// Mirrors visible_keys of the kernels; units carry their diagonal.
KeyRange visible(const Problem& p, const Unit& u, int64_t i) {
  const int64_t d = i + u.diagonal;
  const int64_t end = std::max<int64_t>(0, std::min(u.k_len, d + p.right + 1));
  const int64_t begin = std::min(std::max<int64_t>(0, d - p.left), u.k_len);
  return {std::min(begin, end), end};
}

int64_t sequences(const Request& r) {
  return r.lengths.packed() ? r.lengths.cu_q.size(0) - 1 : r.batch();
}

std::vector<Unit> make_units(const Request& r) {
  std::vector<Unit> units;
  const Geometry geometry(r);
  int64_t batch = 0;
  for (const Sequence& s : geometry.sequences()) {
    Unit u{};
    u.batch = r.lengths.packed() ? 0 : batch++;
    u.q_begin = s.q_begin;
    u.q_len = s.q_end - s.q_begin;
    u.k_begin = s.k_begin;
    u.k_len = s.k_end - s.k_begin;
    u.diagonal = r.causal == CausalMode::kLowerRight ? u.k_len - u.q_len : 0;
    units.push_back(u);
  }
  return units;
}

// Appends the tasks of rows [row, row + rows) of one head group.
void add_tasks(const Problem& p, const Tiling& t, const Unit& u, int64_t head0, int64_t row, int64_t rows,
               std::vector<Task>* tasks) {
  const int64_t begin = visible(p, u, row / p.group).begin / 64 * 64;
  const int64_t end = visible(p, u, (row + rows - 1) / p.group).end;
  Task task{&u, head0, row, static_cast<int32_t>(rows), t.splits, begin, std::max(begin, end), {}};
  if (t.splits == 1) {
    tasks->push_back(task);
    return;
  }
  const int64_t step = round_up(div_up(std::max<int64_t>(end - begin, 0), t.splits), 64);
  for (int i = 0; i < t.splits; ++i) {
    task.key_begin = std::min(begin + i * step, std::max(begin, end));
    task.key_end = std::min(task.key_begin + step, std::max(begin, end));
    tasks->push_back(task);
  }
}

// Row blocks of equal size, whole register tiles, none above rows_per_task.
int64_t block_rows(int64_t rows, int64_t most, int row_tile) {
  const int64_t blocks = div_up(rows, most);
  return blocks <= 1 ? most : std::min(most, round_up(div_up(rows, blocks), row_tile));
}

double cost(const Task& t) {
  return static_cast<double>(t.rows) * static_cast<double>(t.key_end - t.key_begin);
}

// The tasks of a head follow each other, so that its K and V come from the caches that the threads share.
// Only the last of the work is put longest first, which is what makes the threads finish together. The parts
// of one row block stay together.
void sort_tasks(const Tiling& t, std::vector<Task>* tasks) {
  if (t.threads == 1) return;
  const auto parts = static_cast<size_t>(t.splits);
  const size_t n = tasks->size() / parts;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) { return cost((*tasks)[i * parts]); };
  double longest = 0.0, work = 0.0;
  for (size_t i = 0; i < n; ++i) longest = std::max(longest, key(i));
  size_t tail = n;
  while (tail > 0 && work < kSortedTail * t.threads * longest) work += key(--tail);
  std::stable_sort(order.begin() + static_cast<int64_t>(tail), order.end(),
                   [&](size_t a, size_t b) { return key(a) > key(b); });
  std::vector<Task> sorted;
  sorted.reserve(tasks->size());
  for (size_t i : order)
    sorted.insert(sorted.end(), tasks->begin() + static_cast<int64_t>(i * parts),
                  tasks->begin() + static_cast<int64_t>((i + 1) * parts));
  tasks->swap(sorted);
}

}  // namespace

int64_t head_group(const Request& r) {
  if (r.heads() == 0) return 1;
  return std::gcd(r.heads() / r.k.size(1), r.heads() / r.v.size(1));
}

bool should_stream(const Request& r, Style style) {
  const auto dense_rows = [](const TensorView& v) { return v.size(3) <= 1 || v.stride(3) == 1; };
  return style == Style::kTuned && r.q_len() * head_group(r) <= kMaxStreamRows && dense_rows(r.k) &&
         dense_rows(r.v);
}

Tiling choose_tiling(const Request& r, Style style, const KernelSet& kernels, int threads) {
  Tiling t;
  const int row_tile = kernels.row_tile, packed_bytes = kernels.packed_bytes;
  const double flops = 2.0 * static_cast<double>(r.q.size(0) * r.heads() * r.q_len()) *
                       static_cast<double>(r.kv_len()) * static_cast<double>(r.head_dim() + r.value_dim());
  threads = static_cast<int>(std::clamp(flops / kFlopsPerThread, 1.0, static_cast<double>(threads)));
  t.threads = threads;
  t.row_tile = row_tile;
  const int64_t group = head_group(r), width = r.head_dim() + r.value_dim();
  const int64_t groups = sequences(r) * (r.heads() / group);
  const int64_t rows = div_up(r.q_len() * group, r.lengths.packed() ? std::max<int64_t>(sequences(r), 1) : 1);
  if (style == Style::kSimple) {
    t.rows_per_task = 4 * row_tile;
    t.keys_per_block = 64;
    t.splits = std::max(1, r.limits.splits);
    return t;
  }
  // K and V panels may take half of L2, the queries and their accumulators the other: they pass by once a
  // block, and more rows to a task mean that K and V are fetched and packed less often.
  t.keys_per_block = kernels.block_keys;
  while (t.keys_per_block > 64 && t.keys_per_block * width * packed_bytes > l2_bytes() / 2)
    t.keys_per_block /= 2;
  const int64_t row_bytes = std::max<int64_t>(1, r.head_dim() * packed_bytes + r.value_dim() * 4);
  int64_t most = std::clamp<int64_t>(l2_bytes() / 2 / row_bytes, 2 * row_tile, 512);
  const int64_t fair = div_up(groups * rows, static_cast<int64_t>(kTasksPerThread) * threads);
  most = std::min(most, std::max<int64_t>(fair, 8 * row_tile));
  t.rows_per_task = static_cast<int>(round_up(std::max<int64_t>(1, std::min(most, rows)), row_tile));

  const int64_t tasks = groups * div_up(std::max<int64_t>(rows, 1), t.rows_per_task);
  if (r.limits.splits > 0) {
    t.splits = r.limits.splits;
  } else if (threads > 1 && tasks > 0 && tasks < 2 * threads) {
    t.splits = static_cast<int>(std::clamp<int64_t>(
        std::min(div_up(kTasksPerThread * threads, tasks), r.kv_len() / kMinKeysPerSplit), 1, kMaxSplits));
  }
  return t;
}

Schedule make_schedule(const Request& r, const Problem& p, const Tiling& t, int value_align,
                       float* partials) {
  Schedule s;
  s.units = make_units(r);
  const int64_t groups = p.heads / p.group;
  for (const Unit& u : s.units) {
    const int64_t rows = u.q_len * p.group, size = block_rows(rows, t.rows_per_task, t.row_tile);
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t row = 0; row < rows; row += size)
        add_tasks(p, t, u, g * p.group, row, std::min(size, rows - row), &s.tasks);
  }
  sort_tasks(t, &s.tasks);
  if (t.splits > 1) {
    const int64_t width = round_up(std::max<int64_t>(p.value_dim, 1), value_align);
    for (Task& task : s.tasks) {
      task.partial = {partials, partials + task.rows * width, partials + task.rows * (width + 1)};
      partials += task.rows * (width + 2);
    }
  }
  return s;
}

size_t partial_bytes(const Request& r, const Tiling& t, int value_align) {
  if (t.splits <= 1) return 0;
  const int64_t width = round_up(std::max<int64_t>(r.value_dim(), 1), value_align);
  const double bytes = 4.0 * t.splits * static_cast<double>(r.q.size(0) * r.heads() * r.q_len()) *
                       static_cast<double>(width + 2);
  return bytes < 1e18 ? static_cast<size_t>(bytes) : static_cast<size_t>(1e18);
}

Work work_of(const Request& r, const Problem& p, const Schedule& s, int row_tile) {
  Work w;
  const auto element = static_cast<double>(dtype_size(r.q.dtype));
  const auto width = static_cast<double>(r.head_dim() + r.value_dim());
  const double mask = r.mask_kind == MaskKind::kNone ? 0.0 : static_cast<double>(dtype_size(r.mask.dtype));
  for (const Task& t : s.tasks) {
    w.bytes_read += static_cast<double>(t.key_end - t.key_begin) * width * element +
                    static_cast<double>(t.rows) * static_cast<double>(r.head_dim()) * element;
    for (int64_t row = 0; row < t.rows; row += row_tile) {
      const int64_t rows = std::min<int64_t>(row_tile, t.rows - row);
      const int64_t begin = visible(p, *t.unit, (t.row_begin + row) / p.group).begin;
      const int64_t end = visible(p, *t.unit, (t.row_begin + row + rows - 1) / p.group).end;
      const auto keys =
          static_cast<double>(std::max<int64_t>(0, std::min(end, t.key_end) - std::max(begin, t.key_begin)));
      w.flops += 2.0 * static_cast<double>(rows) * keys * width;
      w.bytes_read += static_cast<double>(rows) * keys * mask;
    }
  }
  const auto rows = static_cast<double>(r.q.size(0) * r.heads() * r.q_len());
  w.bytes_written = rows * (static_cast<double>(r.value_dim()) * element + (r.wants.lse ? 4.0 : 0.0));
  return w;
}

}  // namespace attnscope::cpu_fused
