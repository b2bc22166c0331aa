#include "report/json/json_out.h"
#include "report/text/diff_text.h"

namespace attnscope::report {
namespace {

Json estimate_json(const Estimate& estimate) {
  if (estimate.samples == 0) return nullptr;
  Json out = {{"mean_us", estimate.mean}, {"samples", estimate.samples}};
  put(out, "deviation_us", estimate.samples >= 2 ? std::optional(estimate.deviation) : std::nullopt,
      "one-sample");
  return out;
}

}  // namespace

std::string diff_json(const Diff& diff, std::string_view name_a, std::string_view name_b, double threshold,
                      std::string_view version) {
  Json out;
  out["schema"] = "attnscope.diff/1";
  out["tool"] = {{"name", "attnscope"}, {"version", version}};
  out["a"] = name_a;
  out["b"] = name_b;
  out["threshold"] = threshold;
  out["verdict"] = diff_verdict(diff);
  out["regressed"] = diff.regressed();
  Json rows = Json::array();
  for (const DiffRow& row : diff.rows) {
    Json entry = {{"kind", diff_kind_name(row.kind)}, {"name", row.name}, {"figure", row.figure}};
    entry["a"] = estimate_json(row.a);
    entry["b"] = estimate_json(row.b);
    put(entry, "ratio", row.ratio > 0 ? std::optional(row.ratio) : std::nullopt, "only-on-one-side");
    const char* why = row.ratio > 0 ? "one-sample" : "only-on-one-side";
    put(entry, "low", row.low, why);
    put(entry, "high", row.high, why);
    entry["verdict"] = diff_verdict_name(row.verdict);
    entry["share_pct"] = row.share_percent;
    if (!row.note.empty()) entry["note"] = row.note;
    rows.push_back(std::move(entry));
  }
  out["rows"] = std::move(rows);
  out["left_out"] = diff.left_out;
  return dump(out);
}

}  // namespace attnscope::report
