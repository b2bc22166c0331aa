#include "formats/chrome/repair.h"

#include "formats/chrome/strict.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <utility>

namespace attnscope::formats::chrome {
namespace {

constexpr size_t kFlushBytes = size_t{1} << 20;

bool is_plain_number(const Token& token) {
  return token.type == TokenType::kNumber && strict_number(token.text());
}

bool is_complete_event(const RawEvent& e) {
  return e.member(EventKey::kPh).text() == "X";
}

// Whether the event's text can stand as it is.
bool is_sound(std::string_view text, const RawEvent& e) {
  const Token& ts = e.member(EventKey::kTs);
  const Token& dur = e.member(EventKey::kDur);
  return e.oddities == 0 && (!ts || is_plain_number(ts)) &&
         (dur ? is_plain_number(dur) : !is_complete_event(e)) && is_strict(text);
}

}  // namespace

void RepairWriter::separate(std::string_view separator) {
  if (!first_) out_ += separator;
  first_ = false;
}

void RepairWriter::string(std::string_view raw) {
  bool ignored = false;
  decode_string(raw, scratch_, ignored, ignored);
  append_string(scratch_, out_);
}

void RepairWriter::value(const Token& token) {
  if (token.type == TokenType::kString) {
    string(token.text());
  } else if (token.type == TokenType::kContainer && is_strict(token.text())) {
    out_ += token.text();
  } else if (token.flags & kTooDeepFlag) {
    out_ += "null";
  } else {
    append_strict(token.text(), out_);
  }
}

// Microseconds, as a number; exactly those that the reader took.
void RepairWriter::time(const Token& token, bool is_duration) {
  if (is_plain_number(token)) {
    out_ += token.text();
    return;
  }
  int64_t ns = 0;
  uint8_t flags = 0;
  const bool known = token && token.type != TokenType::kContainer && micros_to_ns(token.text(), ns, flags);
  if (!known && !is_duration) return value(token);  // a flow's or metadata's: nobody asks for it
  if (!known) ns = 0;
  const uint64_t magnitude = ns < 0 ? 0 - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  fmt::format_to(std::back_inserter(out_), "{}{}", ns < 0 ? "-" : "", magnitude / 1000);
  if (magnitude % 1000 != 0) fmt::format_to(std::back_inserter(out_), ".{:03}", magnitude % 1000);
}

// An event with something odd in it, member by member. Of a key that stands twice the reader takes the last.
void RepairWriter::members_of(std::string_view text, const RawEvent& parsed) {
  padded_.assign(text).append(kPadding, '\0');
  const EventMembers members = read_members(padded_.data(), padded_.data() + text.size());
  std::array<size_t, static_cast<size_t>(EventKey::kCount)> last{};
  const auto key_of = [](const RawMember& m) { return kEventTable.key(kEventTable.find(m.key)); };
  for (size_t i = 0; i < members.event.size(); ++i)
    if (const EventKey k = key_of(members.event[i]); k != EventKey::kCount) last[static_cast<size_t>(k)] = i;
  out_ += '{';
  bool first = true;
  const auto key = [&](std::string_view raw) {
    if (!std::exchange(first, false)) out_ += ", ";
    string(raw);
    out_ += ": ";
  };
  for (size_t i = 0; i < members.event.size(); ++i) {
    const RawMember& member = members.event[i];
    const EventKey k = key_of(member);
    if (k != EventKey::kCount && last[static_cast<size_t>(k)] != i) continue;
    key(member.key);
    if (k == EventKey::kTs || k == EventKey::kDur) {
      time(member.value, k == EventKey::kDur);
    } else if (k == EventKey::kArgs && members.has_args) {
      out_ += '{';
      first = true;
      for (const RawMember& arg : members.args) {
        key(arg.key);
        value(arg.value);
      }
      out_ += '}';
      first = false;
    } else {
      value(member.value);
    }
  }
  if (is_complete_event(parsed) && !parsed.member(EventKey::kDur)) {
    key("dur");
    out_ += '0';
  }
  out_ += '}';
}

void RepairWriter::open(bool array) {
  array_ = array;
  if (!array) out_ += '{';
}

void RepairWriter::member(std::string_view raw_key, const Token& token) {
  separate(",\n");
  string(raw_key);
  out_ += ": ";
  value(token);
  flush(false);
}

void RepairWriter::open_events() {
  if (!array_) {
    separate(",\n");
    out_ += "\"traceEvents\": ";
  }
  out_ += '[';
  in_events_ = first_ = true;
}

void RepairWriter::event(std::string_view text, const RawEvent& parsed) {
  separate(",");
  out_ += '\n';
  if (is_sound(text, parsed))
    out_ += text;
  else
    members_of(text, parsed);
  flush(false);
}

void RepairWriter::close_events() {
  out_ += "\n]";
  in_events_ = first_ = false;
}

Status RepairWriter::finish(bool truncated) {
  if (in_events_) {
    if (truncated) {
      separate(",");
      out_ += "\n{\"name\": ";
      append_string(kTruncatedMark, out_);
      out_ += R"(, "ph": "M", "ts": 0, "pid": 0, "tid": 0, "args": {}})";
    }
    close_events();
  }
  out_ += array_ ? "\n" : "}\n";
  flush(true);
  return status_;
}

void RepairWriter::flush(bool always) {
  if (!always && out_.size() < kFlushBytes) return;
  if (status_) status_ = sink_.write(out_);
  out_.clear();
}

namespace {

template <typename Read>
Result<trace::Trace> repair_to(Sink& sink, const ReadOptions& options, Read&& read) {
  RepairWriter writer(sink);
  ReadOptions followed = options;
  followed.repair = &writer;
  ATTNSCOPE_ASSIGN(trace::Trace trace, read(followed));
  ATTNSCOPE_TRY(writer.finish(trace.truncated()));
  ATTNSCOPE_TRY(sink.finish());
  return trace;
}

}  // namespace

Result<trace::Trace> repair_file(const std::string& in, const std::string& out, const ReadOptions& options) {
  ATTNSCOPE_ASSIGN(const std::unique_ptr<Sink> sink, create_file(out));
  return repair_to(*sink, options, [&](const ReadOptions& followed) { return read_file(in, followed); });
}

Result<trace::Trace> repair_memory(std::string_view bytes, Sink& sink, const ReadOptions& options) {
  return repair_to(sink, options,
                   [&](const ReadOptions& followed) { return read_memory(bytes, "trace", followed); });
}

}  // namespace attnscope::formats::chrome
