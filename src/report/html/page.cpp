#include "report/html/page.h"

#include "report/html/assets.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <map>
#include <random>

namespace attnscope::report {
namespace {

std::string base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t word = 0;
    for (size_t j = 0; j < 3; ++j)
      word = (word << 8) | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) {
      out += i + j <= bytes.size() ? kAlphabet[(word >> (18 - 6 * j)) & 63] : '=';
    }
  }
  return out;
}

// JSON inside a script element: "</script" and "<!--" must not appear, whatever a name holds.
std::string script_safe(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string fresh_nonce() {
  std::random_device device;
  std::string bytes;
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = device();
    for (int j = 0; j < 4; ++j) bytes += static_cast<char>((word >> (8 * j)) & 0xFF);
  }
  std::string nonce = base64(bytes);
  nonce.resize(nonce.find('='));
  return nonce;
}

// Names and kinds once, events as short arrays: a page of 100,000 events stays a few megabytes.
nlohmann::json timelines_json(const Page& page, nlohmann::json& names, nlohmann::json& kinds) {
  std::map<std::string, size_t> name_index, kind_index;
  const auto intern = [](std::map<std::string, size_t>& index, nlohmann::json& list,
                         const std::string& text) {
    const auto [it, fresh] = index.try_emplace(text, index.size());
    if (fresh) list.push_back(text);
    return it->second;
  };
  nlohmann::json out = nlohmann::json::array();
  for (const Timeline& timeline : page.timelines) {
    nlohmann::json events = nlohmann::json::array();
    for (const TimelineEvent& e : timeline.events) {
      events.push_back({e.lane, e.ts_us, e.dur_us, intern(name_index, names, e.name),
                        intern(kind_index, kinds, e.kind), e.ordinal, e.launched_by});
    }
    out.push_back({{"name", timeline.name},
                   {"events", std::move(events)},
                   {"left_out", timeline.left_out},
                   {"left_out_why", timeline.left_out_why}});
  }
  return out;
}

constexpr std::string_view kind_name(PageKind kind) {
  switch (kind) {
    case PageKind::kCompare: return "compare";
    case PageKind::kExplain: return "explain";
    case PageKind::kSweep: return "sweep";
  }
  return "";
}

std::string page_data(const Page& page) {
  nlohmann::json names = nlohmann::json::array(), kinds = nlohmann::json::array();
  nlohmann::json timelines = timelines_json(page, names, kinds);
  nlohmann::json traces = nlohmann::json::array();
  for (const EmbeddedTrace& t : page.traces) {
    traces.push_back({{"name", t.name}, {"file", t.file}, {"gzip_base64", base64(t.gzip)}});
  }
  nlohmann::json head = {{"kind", kind_name(page.kind)}, {"version", page.version},
                         {"verdict", page.verdict},      {"subtitle", page.subtitle},
                         {"method", page.method},        {"names", std::move(names)},
                         {"kinds", std::move(kinds)},    {"timelines", std::move(timelines)},
                         {"traces", std::move(traces)}};
  // Bad UTF-8 in a name becomes U+FFFD rather than an exception.
  std::string text = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.pop_back();
  return script_safe(text + ",\"result\":" + page.result_json + "}");
}

}  // namespace

std::string render_html(const Page& page) {
  const std::array<std::pair<std::string_view, std::string>, 6> values{
      {{"NONCE", fresh_nonce()},
       {"TITLE", html_escaped(page.verdict)},
       {"CSS", std::string(asset_css())},
       {"DATA", page_data(page)},
       {"CHART_LIBRARY", std::string(asset_chart_library())},
       {"JS", std::string(asset_js())}}};
  const std::string_view page_template = asset_html();
  std::string out;
  // One pass over the template: what is put in is never looked at again, so data cannot name a placeholder.
  for (size_t at = 0; at < page_template.size();) {
    const size_t open = page_template.find('@', at);
    out += page_template.substr(at, open == std::string_view::npos ? open : open - at);
    if (open == std::string_view::npos) break;
    const size_t close = page_template.find('@', open + 1);
    const std::string_view key = page_template.substr(open + 1, close - open - 1);
    for (const auto& [name, value] : values) {
      if (name == key) out += value;
    }
    at = close + 1;
  }
  return out;
}

}  // namespace attnscope::report
