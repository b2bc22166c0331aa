#pragma once
// One self-contained page out of a command's JSON document: assets, chart library and data in one file that
// opens offline. The page renders; nothing is computed here.

#include "attnscope/result.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::report {

// One bar of a timeline. Times are relative to the timeline's own zero.
struct TimelineEvent {
  int lane = 0;  // 0 host, 1 device
  double ts_us = 0;
  double dur_us = 0;
  std::string name;
  std::string kind;          // one of timeline_kinds()
  uint64_t ordinal = 0;      // the event's identity in findings
  int64_t launched_by = -1;  // index of the launching event in the same timeline
};

struct Timeline {
  std::string name;
  std::vector<TimelineEvent> events;
  uint64_t left_out = 0;  // events of the trace that are not shown
  std::string left_out_why;
};

// A trace to be downloaded from the page, or handed to Perfetto.
struct EmbeddedTrace {
  std::string name;  // what the button says
  std::string file;  // name of the downloaded file
  std::string gzip;  // the .json.gz itself
};

enum class PageKind { kCompare, kExplain, kSweep };

struct Page {
  PageKind kind = PageKind::kCompare;
  std::string version;      // of the program
  std::string verdict;      // one sentence, the page's heading
  std::string subtitle;     // machine and request
  std::string method;       // how it was measured
  std::string result_json;  // the command's --json document
  std::vector<Timeline> timelines;
  std::vector<EmbeddedTrace> traces;
};

// The page as text. Every string may be hostile: data is JSON with '<' escaped, shown as text only, under a
// content security policy that forbids network access and inline handlers. The nonce is fresh for every page.
std::string render_html(const Page& page);

}  // namespace attnscope::report
