#pragma once
// One call compared over a grid of sizes: every point is a whole comparison, checked against float64.

#include "compare/compare.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace attnscope::compare {

// A size that varies: "seq" (q and kv length), "head_dim" (E and Ev), "batch", "heads" (Hq = Hk).
struct SweepAxis {
  std::string name;
  std::vector<int64_t> values;  // ascending
};

// "seq=512..16384x2" (times 2 from 512 on), "seq=512..2048+512" (in steps) or "head_dim=64,128"; one word an
// axis. kInvalidArgument with the value for anything else, and for more than kMaxSweepPoints points.
[[nodiscard]] Result<std::vector<SweepAxis>> parse_sweep(std::span<const std::string> words);
inline constexpr size_t kMaxSweepPoints = 1000;

// The base problem at every point of the grid; the first axis varies fastest.
// kInvalidArgument when an axis would change what the problem is: seq where L ≠ S, head_dim where E ≠ Ev,
// heads that do not keep the ratio of query to kv heads.
[[nodiscard]] Status check_axes(const Problem& base, std::span<const SweepAxis> axes);
std::vector<Problem> sweep_problems(const Problem& base, std::span<const SweepAxis> axes);

// What one variant did at one point.
struct SweepPoint {
  std::string at;      // "seq=512 head_dim=64": the point's identity
  std::string series;  // variant, and the axes but the first: "flash head_dim=64"
  std::string variant;
  int64_t x = 0;  // value of the first axis
  bool ok = false;
  std::string reason;  // why it did not run; empty when ok
  double device_us = 0, p10_us = 0, p90_us = 0;
  double tflops = 0;
  double rel_l2 = 0;  // against float64
};

// Where one series overtakes another: `to` is faster from `before` on, `from` still at `after`.
struct Crossing {
  std::string from, to;
  int64_t after = 0, before = 0;
};

struct SweepResult {
  std::string device_name;
  Problem base;
  std::vector<SweepAxis> axes;
  std::vector<SweepPoint> points;
  // The fastest series along the first axis, where it changes; points of one set of the other axes are
  // compared.
  std::vector<Crossing> crossings() const;
};

std::vector<SweepPoint> points_of(const CompareResult& result, const std::string& at,
                                  std::string_view series_suffix, int64_t x);
// "seq=512 head_dim=64" of the n-th problem of sweep_problems, and the part after the first axis.
std::string point_name(std::span<const SweepAxis> axes, size_t index);
std::string series_suffix(std::span<const SweepAxis> axes, size_t index);
int64_t first_value(std::span<const SweepAxis> axes, size_t index);

// State of a sweep on disk, one JSON line a finished point, so that an interrupted one goes on where it
// stopped.
class SweepLog {
 public:
  // Reads what is there. A file of another sweep (request, device or axes differ) is kBadInput; a
  // half-written last line is dropped. An empty path keeps nothing.
  [[nodiscard]] static Result<SweepLog> open(const std::string& path, const std::string& identity);
  bool has(const std::string& at) const;
  const std::vector<SweepPoint>& points() const { return points_; }
  [[nodiscard]] Status add(std::vector<SweepPoint> points);

 private:
  std::string path_;
  std::vector<SweepPoint> points_;
};

std::string render_text(const SweepResult& result);
std::string render_json(const SweepResult& result);  // attnscope.sweep/1
std::string render_markdown(const SweepResult& result);
std::string render_html(const SweepResult& result);

}  // namespace attnscope::compare
