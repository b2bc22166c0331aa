// The sweep's state file: a first line that names the sweep, then one JSON line a finished point, all its
// variants in it.
#include "compare/sweep.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace attnscope::compare {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSchema = "attnscope.sweep-log/1";

Json to_json(const SweepPoint& p) {
  return {{"at", p.at},         {"series", p.series}, {"variant", p.variant},     {"x", p.x},
          {"ok", p.ok},         {"reason", p.reason}, {"device_us", p.device_us}, {"p10_us", p.p10_us},
          {"p90_us", p.p90_us}, {"tflops", p.tflops}, {"rel_l2", p.rel_l2}};
}

// False for anything that is not a whole point.
bool from_json(const Json& j, SweepPoint& p) {
  const auto text = [&](const char* key, std::string& out) {
    const auto it = j.find(key);
    if (it == j.end() || !it->is_string()) return false;
    out = it->get<std::string>();
    return true;
  };
  const auto number = [&](const char* key, double& out) {
    const auto it = j.find(key);
    if (it == j.end() || !it->is_number()) return false;
    out = it->get<double>();
    return true;
  };
  if (!j.is_object() || !j.contains("ok") || !j["ok"].is_boolean() || !j.contains("x") ||
      !j["x"].is_number_integer())
    return false;
  p.ok = j["ok"].get<bool>();
  p.x = j["x"].get<int64_t>();
  return text("at", p.at) && text("series", p.series) && text("variant", p.variant) &&
         text("reason", p.reason) && number("device_us", p.device_us) && number("p10_us", p.p10_us) &&
         number("p90_us", p.p90_us) && number("tflops", p.tflops) && number("rel_l2", p.rel_l2);
}

bool read_point(const Json& line, std::vector<SweepPoint>& out) {
  if (!line.is_array() || line.empty()) return false;
  for (const Json& variant : line) {
    SweepPoint point;
    if (!from_json(variant, point)) return false;
    // A time that is not above zero was never measured.
    if (point.ok && !(point.device_us > 0 && point.tflops >= 0)) return false;
    out.push_back(std::move(point));
  }
  return true;
}

Status append(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::app | std::ios::binary);
  file << text << std::flush;
  if (!file)
    return fail(ErrorCode::kIo, fmt::format("cannot write {}", path),
                "name a file in a folder that you may write");
  return {};
}

}  // namespace

Result<SweepLog> SweepLog::open(const std::string& path, const std::string& identity) {
  SweepLog log;
  log.path_ = path;
  if (path.empty()) return log;
  std::error_code kind;
  if (std::filesystem::exists(path, kind) && !std::filesystem::is_regular_file(path, kind))
    return fail(ErrorCode::kBadInput, fmt::format("{} is not a regular file", path), "name another file");
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!file || !std::getline(file, line)) {
    ATTNSCOPE_TRY(append(path, Json{{"schema", kSchema}, {"sweep", identity}}.dump() + "\n"));
    return log;
  }
  const Json head = Json::parse(line, nullptr, false);
  const auto text_of = [&](const char* key) {
    const auto at = head.is_object() ? head.find(key) : head.end();
    return at != head.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  if (text_of("schema") != kSchema)
    return fail(ErrorCode::kBadInput, fmt::format("{} is not the log of a sweep", path), "name another file");
  if (text_of("sweep") != identity)
    return fail(ErrorCode::kBadInput,
                fmt::format("{} is the log of another sweep: {}", path, terminal_safe(text_of("sweep"), 300)),
                fmt::format("this one is: {}; name another file", identity));
  // A point counts when its line is whole: the writer may have been killed in the middle of the last.
  std::streamoff whole = file.tellg();
  while (std::getline(file, line)) {
    std::vector<SweepPoint> here;
    if (file.eof() || !read_point(Json::parse(line, nullptr, false), here)) break;
    for (SweepPoint& p : here) log.points_.push_back(std::move(p));
    whole = file.tellg();
  }
  file.close();
  std::error_code error;
  std::filesystem::resize_file(path, static_cast<uintmax_t>(whole), error);
  if (error)
    return fail(ErrorCode::kIo, fmt::format("cannot write {}: {}", path, error.message()),
                "name another file");
  return log;
}

bool SweepLog::has(const std::string& at) const {
  return std::any_of(points_.begin(), points_.end(), [&](const SweepPoint& p) { return p.at == at; });
}

Status SweepLog::add(std::vector<SweepPoint> points) {
  Json line = Json::array();
  for (SweepPoint& p : points) {
    line.push_back(to_json(p));
    points_.push_back(std::move(p));
  }
  return path_.empty() ? Status{}
                       : append(path_, line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace attnscope::compare
