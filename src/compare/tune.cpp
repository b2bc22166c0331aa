#include "compare/tune.h"

#include "attention/backend.h"
#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace attnscope::compare {
namespace {

constexpr double kCheckFlops = 2e8;  // 256 rows and more: this is about time

struct Sizes {
  int64_t batch, heads, kv_heads, q_len, kv_len;
};

Problem problem_of(const Sizes& s, int64_t head_dim, DType dtype, CausalMode causal) {
  Problem p;
  p.batch = s.batch;
  p.heads = s.heads;
  p.kv_heads = s.kv_heads;
  p.q_len = s.q_len;
  p.kv_len = s.kv_len;
  p.head_dim = p.value_dim = head_dim;
  p.dtype = dtype;
  p.causal = causal;
  return p;
}

void add_masked(std::vector<Problem>& grid, const Sizes& s, int64_t head_dim, DType dtype) {
  Problem p = problem_of(s, head_dim, dtype, CausalMode::kNone);
  p.mask_sizes = {1, 1, s.q_len, s.kv_len};
  for (const MaskKind kind : {MaskKind::kBool, MaskKind::kBias}) {
    p.mask_kind = kind;
    grid.push_back(p);
  }
}

std::vector<Problem> gpu_grid() {
  std::vector<Problem> grid;
  const auto both = [&](const Sizes& s, int64_t head_dim, DType dtype) {
    for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft})
      grid.push_back(problem_of(s, head_dim, dtype, causal));
  };
  for (const int64_t head_dim : {64, 128, 256})
    for (const Sizes& s :
         {Sizes{1, 8, 8, 128, 128}, {4, 16, 16, 512, 512}, {8, 16, 16, 1024, 1024}, {2, 16, 16, 4096, 4096}})
      both(s, head_dim, DType::kBF16);
  both({1, 64, 8, 2048, 2048}, 128, DType::kBF16);
  for (const int64_t head_dim : {64, 128}) {
    both({4, 16, 16, 1024, 1024}, head_dim, DType::kF32);
    add_masked(grid, {4, 16, 16, 1024, 1024}, head_dim, DType::kBF16);
    // Decoding: one query against a cache.
    grid.push_back(problem_of({1, 32, 8, 1, 8192}, head_dim, DType::kBF16, CausalMode::kNone));
    grid.push_back(problem_of({16, 32, 8, 1, 8192}, head_dim, DType::kBF16, CausalMode::kNone));
    Problem lengths = problem_of({16, 32, 8, 1, 8192}, head_dim, DType::kBF16, CausalMode::kNone);
    lengths.lengths.assign(16, 6000);
    grid.push_back(lengths);
    Problem window = problem_of({2, 16, 16, 4096, 4096}, head_dim, DType::kBF16, CausalMode::kTopLeft);
    window.window = {1023, 0};
    grid.push_back(window);
    Problem softcap = problem_of({4, 16, 16, 1024, 1024}, head_dim, DType::kBF16, CausalMode::kTopLeft);
    softcap.softcap = 30;
    grid.push_back(softcap);
  }
  return grid;
}

std::vector<Problem> cpu_grid() {
  std::vector<Problem> grid;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t head_dim : {64, 128}) {
      for (const Sizes& s : {Sizes{1, 4, 4, 128, 128}, {1, 8, 8, 512, 512}, {4, 8, 2, 1, 4096}})
        for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft})
          if (s.q_len > 1 || causal == CausalMode::kNone)
            grid.push_back(problem_of(s, head_dim, dtype, causal));
      add_masked(grid, {1, 8, 8, 512, 512}, head_dim, dtype);
    }
  return grid;
}

std::vector<const Backend*> automatic_backends(DeviceType device) {
  std::vector<const Backend*> all;
  for (const Backend* backend : registered_backends())
    if (backend->device() == device && backend->automatic()) all.push_back(backend);
  return all;
}

TunePoint point_of(const CompareResult& result, const Request& shape) {
  TunePoint point;
  point.problem = result.problem;
  point.order.shape = order_shape(shape);
  for (const VariantResult& v : result.variants) {
    // The fast end of the spread: what else runs on the machine must not decide the order.
    if (v.ok()) point.order.times.push_back({v.name, v.device_us.p10});
    if (v.status == VariantStatus::kFailed && !v.reasons.empty())
      point.failed.push_back(fmt::format("{}: {}", v.name, v.reasons.front().message));
  }
  std::stable_sort(point.order.times.begin(), point.order.times.end(),
                   [](const OrderTime& a, const OrderTime& b) { return a.us < b.us; });
  return point;
}

// The first of the order that has a time here.
std::string first_that_ran(const std::vector<const Backend*>& order, const OrderPoint& point) {
  for (const Backend* backend : order)
    for (const OrderTime& time : point.times)
      if (time.backend == backend->name()) return time.backend;
  return {};
}

}  // namespace

std::vector<Problem> tune_grid(DeviceType device) {
  return device == DeviceType::kCuda ? gpu_grid() : cpu_grid();
}

Result<TuneResult> tune(BenchDevice& device, const TuneOptions& options, const Progress& progress) {
  const std::vector<Problem> grid = options.grid.empty() ? tune_grid(device.device().type) : options.grid;
  const std::vector<const Backend*> preferred = automatic_backends(device.device().type);
  CompareRequest request;
  for (const Backend* backend : preferred) request.variants.emplace_back(backend->name());
  request.measure.min_time_s = options.min_time_s;
  request.measure.peaks = request.measure.record = false;
  request.measure.check_flops = kCheckFlops;
  TuneResult result;
  result.table.device = device_identity(device.device());
  result.table.library = ATTNSCOPE_VERSION;
  for (size_t i = 0; i < grid.size(); ++i) {
    request.problem = grid[i];
    const double whole = static_cast<double>(grid.size());
    Result<CompareResult> measured = compare(device, request, [&](double done, std::string_view what) {
      if (progress) progress((static_cast<double>(i) + done) / whole, what);
    });
    if (!measured && measured.error().code == ErrorCode::kOutOfMemory) continue;
    if (!measured) return tl::unexpected(measured.error());
    ATTNSCOPE_ASSIGN(Request shape, request_shape(grid[i]));
    // That there are lengths is what counts; shapes have no data.
    if (!grid[i].lengths.empty())
      shape.lengths.kv_lengths.data = const_cast<int64_t*>(grid[i].lengths.data());
    TunePoint point = point_of(*measured, shape);
    if (!point.order.times.empty()) {
      result.table.points.push_back(point.order);
      MeasuredOrder here{{result.table.device, {}, {point.order}}, "this measurement", {}};
      point.preferred = first_that_ran(preferred, point.order);
      point.chosen = first_that_ran(automatic_order(shape, preferred, here).backends, point.order);
    }
    result.points.push_back(std::move(point));
  }
  return result;
}

std::string render_text(const TuneResult& r) {
  const auto changed =
      std::count_if(r.points.begin(), r.points.end(), [](const TunePoint& p) { return p.changed(); });
  std::string text = fmt::format("attnscope " ATTNSCOPE_VERSION
                                 " · {} · the order of backends, measured\n"
                                 "auto chooses differently from the default order at {} of {} points.\n\n",
                                 terminal_safe(r.table.device.name), changed, r.points.size());
  size_t widest = 0;
  for (const TunePoint& p : r.points) widest = std::max(widest, display_width(to_text(p.order.shape)));
  for (const TunePoint& p : r.points) {
    std::string times;
    for (const OrderTime& t : p.order.times)
      times += fmt::format("{}{} {}", times.empty() ? "" : " · ", t.backend, format_time_us(t.us));
    text += fmt::format("{} {}  {}\n", p.changed() ? "◄" : " ", pad(to_text(p.order.shape), widest),
                        times.empty() ? "nobody takes it" : times);
    for (const std::string& failed : p.failed) text += fmt::format("   failed: {}\n", terminal_safe(failed));
  }
  return text;
}

std::string render_json(const TuneResult& r, const std::string& path) {
  using Json = nlohmann::ordered_json;
  Json points = Json::array();
  for (const TunePoint& p : r.points) {
    Json times = Json::array();
    for (const OrderTime& t : p.order.times) times.push_back({{"variant", t.backend}, {"us", t.us}});
    const OrderShape& s = p.order.shape;
    points.push_back({{"options", as_options(p.problem)},
                      {"dtype", dtype_name(s.dtype)},
                      {"features", s.features},
                      {"sizes", {s.batch, s.heads, s.kv_heads, s.q_len, s.kv_len, s.head_dim, s.value_dim}},
                      {"times", times},
                      {"failed", p.failed},
                      {"preferred", p.preferred.empty() ? Json(nullptr) : Json(p.preferred)},
                      {"chosen", p.chosen.empty() ? Json(nullptr) : Json(p.chosen)}});
  }
  const DeviceIdentity& d = r.table.device;
  const Json document{{"schema", "attnscope.tune/1"},
                      {"tool", {{"name", "attnscope"}, {"version", ATTNSCOPE_VERSION}}},
                      {"device", {{"name", d.name}, {"arch", d.arch}, {"driver", d.driver}}},
                      {"table", path.empty() ? Json(nullptr) : Json(path)},
                      {"points", points}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace attnscope::compare
