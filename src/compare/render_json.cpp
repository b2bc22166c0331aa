#include "compare/render.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace attnscope::compare {
namespace {

using Json = nlohmann::ordered_json;

// What is not known is null, never 0.
Json known(double value, bool is_known = true) {
  return is_known && std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json json_of(const Distribution& d) {
  if (d.samples == 0) return nullptr;
  return {{"mean", d.mean}, {"p10", d.p10}, {"p50", d.p50}, {"p90", d.p90},
          {"p99", d.p99},   {"min", d.min}, {"max", d.max}, {"samples", d.samples}};
}

Json json_of(const Machine& m) {
  Json caches = Json::array();
  for (const CacheInfo& c : m.caches)
    caches.push_back({{"level", c.level}, {"type", c.type}, {"bytes", c.bytes}, {"shared_by", c.shared_by}});
  return {{"os", m.os},
          {"cpu", m.cpu},
          {"architecture", m.architecture},
          {"processors", m.processors},
          {"usable_threads", m.usable_threads},
          {"isa", m.isa},
          {"caches", caches},
          {"memory_bytes", m.memory_bytes},
          {"available_bytes", m.available_bytes}};
}

std::string_view causal_name(CausalMode mode) {
  return mode == CausalMode::kTopLeft ? "top-left" : mode == CausalMode::kLowerRight ? "lower-right" : "none";
}

Json json_of(const CompareResult& r, const Problem& p) {
  Json mask = nullptr;
  if (p.mask_kind != MaskKind::kNone)
    mask = {{"kind", p.mask_kind == MaskKind::kBool ? "bool" : "bias"}, {"sizes", p.mask_sizes}};
  return {{"device", r.device == DeviceType::kCuda ? fmt::format("cuda:{}", r.device_index) : "cpu"},
          {"batch", p.batch},
          {"heads", p.heads},
          {"kv_heads", p.kv_heads},
          {"q_len", p.q_len},
          {"kv_len", p.kv_len},
          {"head_dim", p.head_dim},
          {"value_dim", p.value_dim},
          {"dtype", dtype_name(p.dtype)},
          {"causal", causal_name(p.causal)},
          {"window", p.window.active() ? Json{p.window.left, p.window.right} : Json(nullptr)},
          {"mask", mask},
          {"scale", p.scale ? Json(*p.scale) : Json(nullptr)},
          {"softcap", p.softcap},
          {"dropout", p.dropout},
          {"lengths", p.lengths.empty() ? Json(nullptr) : Json(p.lengths)},
          {"layout", p.layout == Layout::kBhsd ? "bhsd" : "bshd"},
          {"train", p.train},
          {"seed", p.seed},
          {"options", as_options(p)}};
}

Json json_of(const std::vector<Refusal>& reasons) {
  Json out = Json::array();
  for (const Refusal& r : reasons)
    out.push_back({{"code", r.code}, {"message", r.message}, {"remedy", r.remedy}});
  return out;
}

Json json_of(const Guess& guess, const std::vector<GuessBreak>& breaks) {
  const auto figure = [](const std::optional<int>& n) { return n ? Json(*n) : Json(nullptr); };
  Json broken = Json::array();
  for (const GuessBreak& b : breaks)
    broken.push_back({{"figure", b.figure}, {"guessed", b.guessed}, {"seen", b.seen}});
  return {{"kernels", figure(guess.kernels)},
          {"copies", figure(guess.copies)},
          {"fills", figure(guess.fills)},
          {"broken", broken}};
}

Json json_of(const WorkRow& row) {
  const bool gpu = row.grid[0] > 0;
  const auto count = [](int64_t n) { return n >= 0 ? Json(n) : Json(nullptr); };
  return {{"name", terminal_safe(row.name, 4000)},
          {"op", terminal_safe(row.op, 4000)},
          {"event", profiler::record_kind_name(row.kind)},
          {"kind", row.what.empty() ? "other" : row.what},
          {"time_us", row.time_us},
          {"bytes_read", count(row.bytes_read)},
          {"bytes_written", count(row.bytes_written)},
          {"flops", count(row.flops)},
          {"grid", gpu ? Json(row.grid) : Json(nullptr)},
          {"block", gpu ? Json(row.block) : Json(nullptr)},
          {"registers", gpu ? count(row.registers) : Json(nullptr)},
          {"shared_bytes", gpu ? count(row.shared_bytes) : Json(nullptr)},
          {"occupancy_pct", known(row.occupancy_percent, row.occupancy_percent >= 0)},
          {"occupancy_limiter", row.occupancy_percent >= 0 ? Json(row.occupancy_limiter) : Json(nullptr)}};
}

Json json_of(const Finding& f) {
  Json evidence = Json::array();
  for (const Evidence& e : f.evidence) evidence.push_back({{"ordinal", e.ordinal}, {"ns", e.ns}});
  return {{"id", f.id},
          {"severity", severity_name(f.severity)},
          {"title", terminal_safe(f.title, 4000)},
          {"range", terminal_safe(f.range, 4000)},
          {"evidence", evidence},
          {"why", f.why},
          {"remedy", f.remedy},
          {"saving_us", f.saving_us ? Json(*f.saving_us) : Json(nullptr)},
          {"saving_per", f.saving_per},
          {"saving_basis", f.saving_basis},
          {"confidence", certainty_name(f.confidence)},
          {"group", f.group}};
}

Json json_of(const Accuracy& a) {
  return {{"max_abs", a.max_abs},
          {"rel_l2", a.rel_l2},
          {"tolerance", a.tolerance.max_abs},
          {"rel_l2_tolerance", a.tolerance.rel_l2},
          {"within_tolerance", a.within()},
          {"rows_checked", a.rows_checked},
          {"rows_total", a.rows_total},
          {"empty_rows", a.empty_rows},
          {"nan_rows", a.nan_rows},
          {"empty_nan_rows", a.empty_nan_rows}};
}

Json json_of(const VariantResult& v, const Peaks& peaks) {
  Json out{{"name", v.name},
           {"description", v.description},
           {"status", status_name(v.status)},
           {"reasons", json_of(v.reasons)}};
  if (v.status == VariantStatus::kRefused) return out;
  if (v.accuracy.rows_checked > 0) out["error"] = json_of(v.accuracy);
  if (!v.ok()) return out;
  out["kernels_per_forward"] = v.counts.kernels;
  out["copies_per_forward"] = v.counts.copies;
  out["fills_per_forward"] = v.counts.fills;
  out["kernels_guess"] = v.guess.kernels ? Json(*v.guess.kernels) : Json(nullptr);
  out["guess"] = json_of(v.guess, v.breaks);
  out["device_time_us"] = json_of(v.device_us);
  out["host_time_us"] = json_of(v.host_us);
  out["flops"] = v.cost.flops;
  out["tflops"] = v.flops_per_s() / 1e12;
  out["fraction_of_peak"] = known(v.flops_per_s() / peaks.flops_per_s, peaks.flops_per_s > 0);
  out["bytes_moved"] = known(v.counts.bytes_moved, v.counts.bytes_moved >= 0);
  out["min_bytes"] = v.cost.min_bytes;
  out["intermediate_bytes"] = v.counts.intermediate_bytes;
  out["recorded_calls"] = v.counts.calls;
  out["steady"] = v.counts.steady;
  Json kernels = Json::array();
  for (const WorkRow& row : v.counts.rows) kernels.push_back(json_of(row));
  out["kernels"] = kernels;
  Json findings = Json::array();
  for (const Finding& f : v.findings) findings.push_back(json_of(f));
  out["findings"] = findings;
  return out;
}

}  // namespace

std::string render_json(const CompareResult& r) {
  Json machine = json_of(r.machine);
  machine["device"] = r.device_name;
  if (!r.device_note.empty()) machine["device_note"] = r.device_note;
  machine["peaks"] = {{"flops", known(r.peaks.flops_per_s, r.peaks.flops_per_s > 0)},
                      {"flops_basis", r.peaks.flops_how},
                      {"bytes_per_s", known(r.peaks.bytes_per_s, r.peaks.bytes_per_s > 0)},
                      {"bytes_basis", r.peaks.bytes_how}};
  Json variants = Json::array();
  for (const VariantResult& v : r.variants) variants.push_back(json_of(v, r.peaks));
  Json findings = Json::array();
  for (const VariantResult& v : r.variants)
    for (const Finding& f : v.findings) {
      Json one = json_of(f);
      one["variant"] = v.name;
      findings.push_back(one);
    }
  const Expectation& e = r.expectation;
  const char* host_basis = r.device == DeviceType::kCuda
                               ? "until the call returned, not recorded"
                               : "the call's time outside its kernels, under the profiler";
  const Json document{{"schema", "attnscope.compare/1"},
                      {"tool", {{"name", "attnscope"}, {"version", ATTNSCOPE_VERSION}}},
                      {"machine", machine},
                      {"request", json_of(r, r.problem)},
                      {"verdict", verdict(r)},
                      {"automatic", r.automatic.empty() ? Json(nullptr) : Json(r.automatic)},
                      {"guess_source", r.guess_source.empty() ? "formula" : r.guess_source},
                      {"host_time_basis", host_basis},
                      {"expectation",
                       {{"flops", e.flops},
                        {"min_bytes", e.min_bytes},
                        {"compute_us", known(e.compute_us, e.compute_us >= 0)},
                        {"memory_us", known(e.memory_us, e.memory_us >= 0)}}},
                      {"variants", variants},
                      {"findings", findings}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace attnscope::compare
