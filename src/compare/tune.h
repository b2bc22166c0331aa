#pragma once
// `compare --tune`: the backends that `auto` may choose, timed over a grid of problems, as the table that it
// goes by (attention/order_table.h). Every timed result was checked against float64.

#include "compare/compare.h"

#include "attention/order_table.h"

#include <string>
#include <vector>

namespace attnscope::compare {

// The grid of a device: prefill and decode lengths, head sizes, masks.
std::vector<Problem> tune_grid(DeviceType device);

// One point, and what the table changes there.
struct TunePoint {
  Problem problem;
  OrderPoint order;                 // times of those that took it; empty: nobody did
  std::vector<std::string> failed;  // "cudnn: …": wrong results and errors, which keep a backend out
  std::string preferred;            // what the default order takes
  std::string chosen;               // what the measured order takes
  bool changed() const { return preferred != chosen; }
};

struct TuneResult {
  OrderTable table;
  std::vector<TunePoint> points;
};

struct TuneOptions {
  std::vector<Problem> grid;  // empty: tune_grid()
  double min_time_s = 0.03;   // per backend and point
};

// kOutOfMemory, kInvalidArgument as compare(); a point that does not fit the device is left out.
[[nodiscard]] Result<TuneResult> tune(BenchDevice& device, const TuneOptions& options,
                                      const Progress& progress = {});

std::string render_text(const TuneResult& result);
// attnscope.tune/1; `path` is where the table was written.
std::string render_json(const TuneResult& result, const std::string& path);

}  // namespace attnscope::compare
