#pragma once
// The members of the top-level object beside traceEvents.

#include "formats/chrome/intake.h"
#include "formats/chrome/scan.h"
#include "formats/looks_like.h"
#include "trace/builder.h"

#include <optional>
#include <string>
#include <string_view>

namespace attnscope::formats::chrome {

struct TopLevel {
  JsonShape shape;  // for saying what a file that is no trace looks like
  bool has_base = false;
  bool base_before_events = false;
  size_t other_bytes = 0;
  std::optional<trace::Era> era;  // written by our own writer: what the original was
};

// Takes one member into the trace's metadata; value may be odd (inf, N/A).
void take_top_level(const std::string& key, const Token& value, trace::TraceBuilder& builder, TopLevel& top);
// After everything was read: era and producer.
void finish_top_level(const TopLevel& top, EraMarks& marks, trace::TraceBuilder& builder);

}  // namespace attnscope::formats::chrome
