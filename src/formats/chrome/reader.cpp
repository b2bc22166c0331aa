#include "formats/chrome/reader.h"

#include "base/text.h"
#include "formats/chrome/event_parser.h"
#include "formats/chrome/intake.h"
#include "formats/chrome/metadata.h"
#include "formats/chrome/repair.h"
#include "formats/chrome/utf16.h"
#include "formats/chrome/window.h"
#include "formats/looks_like.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

namespace attnscope::formats::chrome {

using trace::Diag;

namespace {

constexpr size_t kMaxMemberBytes = size_t{1} << 20;  // top-level members other than the events
constexpr size_t kSuspicious = size_t{1} << 20;      // an event this long with others inside is a damaged one
constexpr uint64_t kMaxSwallowed = 4096;             // damaged events that reach that far, per file
constexpr uint64_t kEntriesBeforeRefusal = 1000;     // a list whose first entries are no events is no trace

class Reader {
 public:
  Reader(ByteSource& source, const std::string& name, const ReadOptions& options)
      : window_(source, options.max_event_bytes), name_(name), intake_(builder_), repair_(options.repair) {}

  Result<trace::Trace> read(ByteSource& source);
  uint64_t bytes_read() const { return window_.bytes_read(); }
  void note(Diag d) { diagnostics().add(d); }

 private:
  Status find_document();
  Status read_object();
  Status read_events();
  void read_whole_events();
  void accept(const char* end);
  Result<bool> read_event();
  Result<bool> read_entry();
  Status read_member();
  Status after_document();
  Status skip_value();
  Result<bool> peek();
  Result<bool> skip_foreign();
  Status not_a_trace();
  void finish(ByteSource& source);
  void cut_short() {
    builder_.diagnostics().add(Diag::kTruncatedFile, builder_.next_ordinal());
    builder_.set_truncated();
    stop_ = true;
  }
  trace::Diagnostics& diagnostics() { return builder_.diagnostics(); }

  Window window_;
  std::string name_;
  trace::TraceBuilder builder_;
  Intake intake_;
  RawEvent event_;
  TopLevel top_;
  RepairWriter* repair_;
  bool events_seen_ = false;  // the event list was reached
  bool stop_ = false;         // nothing more can be read
  uint64_t swallowed_ = 0;
};

// Skips white space; false at the end of the stream.
Result<bool> Reader::peek() {
  while (true) {
    window_.p = skip_space(window_.p, window_.end());
    if (window_.p < window_.end()) return true;
    if (window_.at_end()) return false;
    ATTNSCOPE_TRY(window_.refill());
  }
}

// Text that is no JSON: to the next line or the next event, whichever is nearer. False at the end.
Result<bool> Reader::skip_foreign() {
  diagnostics().add(Diag::kForeignText, builder_.next_ordinal());
  while (true) {
    const char* const from = window_.p;
    const auto left = static_cast<size_t>(window_.end() - from);
    const auto* newline = static_cast<const char*>(std::memchr(from, '\n', left));
    const char* const until = newline ? newline : window_.end();
    if (const char* event = find_event_start(from, until)) {
      window_.p = event;
      return true;
    }
    if (newline) {
      window_.p = newline + 1;
      return true;
    }
    // Keep a little: an event's start may be cut in two.
    window_.p = window_.end() - std::min<size_t>(left, 64);
    const uint64_t before = window_.bytes_read();
    ATTNSCOPE_TRY(window_.refill());
    if (window_.bytes_read() == before) {
      window_.p = window_.end();
      return false;
    }
  }
}

// Skips a value of any length at p without holding it.
Status Reader::skip_value() {
  size_t depth = 0;
  bool in_string = false, escaped = false, any = false;
  while (true) {
    for (; window_.p < window_.end(); ++window_.p) {
      const char c = *window_.p;
      if (in_string) {
        if (escaped) {
          escaped = false;
        } else if (c == '\\') {
          escaped = true;
        } else if (c == '"') {
          in_string = false;
          if (depth == 0) return ++window_.p, Status{};
        }
        continue;
      }
      if (depth == 0 && any && (c == ',' || c == '}' || c == ']')) return {};
      any = true;
      if (c == '"') in_string = true;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) return ++window_.p, Status{};
    }
    if (window_.at_end()) return {};
    ATTNSCOPE_TRY(window_.refill());
  }
}

// Takes the event that was parsed from window_.p to end.
void Reader::accept(const char* end) {
  const bool kept = intake_.accept(event_);
  if (repair_ && kept) repair_->event({window_.p, static_cast<size_t>(end - window_.p)}, event_);
}

// One event at p. False when nothing more can be read.
Result<bool> Reader::read_event() {
  while (true) {
    const char* p = window_.p;
    const char* const end = window_.end();
    switch (parse_event(p, end, event_)) {
      case Parse::kDone:
        accept(p);
        window_.p = p;
        return true;
      case Parse::kDamaged:
        diagnostics().add(Diag::kDamagedEvent, builder_.next_ordinal());
        builder_.skip_entry();
        window_.p = std::max(p, window_.p + 1);
        return true;  // read_entry finds the next one
      case Parse::kMore: break;
    }
    const auto held = static_cast<size_t>(end - window_.p);
    if (held >= kSuspicious || window_.at_end()) {
      // Either long (or cut short), or its damage swallowed what follows.
      if (const char* next = find_event_start(window_.p + 1, end)) {
        diagnostics().add(Diag::kDamagedEvent, builder_.next_ordinal());
        builder_.skip_entry();
        window_.p = next;
        if (++swallowed_ <= kMaxSwallowed) return true;
        cut_short();
        return false;
      }
    }
    if (window_.at_end()) {
      cut_short();
      return false;
    }
    if (window_.full()) {
      diagnostics().add(Diag::kEventTooLong, builder_.next_ordinal());
      builder_.skip_entry();
      ATTNSCOPE_TRY(skip_value());
      return true;
    }
    ATTNSCOPE_TRY(window_.refill());
  }
}

// One entry of the event list at p, a comma, or the list's end. False when the list is over.
Result<bool> Reader::read_entry() {
  ATTNSCOPE_ASSIGN(const bool more, peek());
  if (!more) {
    cut_short();
    return false;
  }
  switch (*window_.p) {
    case ',': ++window_.p; return true;
    case '{': return read_event();
    case ']': ++window_.p; return false;
    case '"':
    case '[':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
      intake_.reject(Diag::kNotAnEvent);
      ATTNSCOPE_TRY(skip_value());
      return true;
    default: {
      ATTNSCOPE_ASSIGN(const bool found, skip_foreign());
      if (!found) cut_short();
      return found;
    }
  }
}

// The common case: events and commas that lie whole in the window. Leaves p at anything else.
void Reader::read_whole_events() {
  const char* p = window_.p;
  const char* const end = window_.end();
  while (true) {
    p = skip_space(p, end);
    if (*p == ',') {
      ++p;
      continue;
    }
    window_.p = p;
    if (*p != '{' || parse_event(p, end, event_) != Parse::kDone) return;
    accept(p);
  }
}

// p behind '['.
Status Reader::read_events() {
  events_seen_ = true;
  if (repair_) repair_->open_events();
  while (true) {
    read_whole_events();
    ATTNSCOPE_ASSIGN(const bool more, read_entry());
    if (!more) {
      if (repair_ && !stop_) repair_->close_events();
      return {};
    }
    const uint64_t entries = builder_.next_ordinal();
    if (entries >= kEntriesBeforeRefusal && intake_.events_with_phase() == 0) return not_a_trace();
  }
}

Status Reader::not_a_trace() {
  return fail(ErrorCode::kBadInput,
              fmt::format("{} is not a trace: {}", terminal_safe(name_), describe_json(top_.shape)),
              "attnscope explain reads Chrome JSON traces: torch.profiler's export_chrome_trace(), "
              "`attnscope record`");
}

// One member of the top-level object: p at its key's quote.
Status Reader::read_member() {
  uint8_t flags = 0;
  const char* close = nullptr;
  while (!(close = string_end(window_.p + 1, window_.end(), flags))) {
    if (window_.at_end() || window_.full()) return cut_short(), Status{};
    ATTNSCOPE_TRY(window_.refill());
  }
  const std::string key(window_.p + 1, close);
  window_.p = close + 1;
  ATTNSCOPE_ASSIGN(bool more, peek());
  if (more && *window_.p == ':') {
    ++window_.p;
    ATTNSCOPE_ASSIGN(more, peek());
  }
  if (!more) return cut_short(), Status{};
  if (key == "traceEvents" && *window_.p == '[' && !events_seen_) {
    ++window_.p;
    top_.shape.has_events = true;
    top_.base_before_events = top_.has_base;
    return read_events();
  }
  Token value;
  const char* behind = nullptr;
  while (!read_value(window_.p, window_.end(), value, behind)) {
    // A repaired file keeps what the trace itself has no use for.
    const bool may_hold = repair_ && !window_.full() && !window_.at_end();
    if (static_cast<size_t>(window_.end() - window_.p) > kMaxMemberBytes && !may_hold) {
      if (events_seen_) diagnostics().add(Diag::kMemberTooLong);
      top_.shape.add_member(key, std::string_view(window_.p, 256));
      return skip_value();
    }
    if (window_.at_end()) return cut_short(), Status{};
    ATTNSCOPE_TRY(window_.refill());
  }
  top_.shape.add_member(key, std::string_view(window_.p, static_cast<size_t>(behind - window_.p)));
  if (value.length <= kMaxMemberBytes)
    take_top_level(key, value, builder_, top_);
  else if (events_seen_)
    diagnostics().add(Diag::kMemberTooLong);
  if (repair_ && key != "traceEvents") repair_->member(key, value);
  window_.p = behind;
  return {};
}

// p behind '{'.
Status Reader::read_object() {
  while (!stop_) {
    ATTNSCOPE_ASSIGN(const bool more, peek());
    if (!more) {
      cut_short();
      break;
    }
    const char c = *window_.p;
    if (c == ',') {
      ++window_.p;
    } else if (c == '}') {
      ++window_.p;
      break;
    } else if (c == '"') {
      ATTNSCOPE_TRY(read_member());
    } else {
      diagnostics().add(Diag::kForeignText, builder_.next_ordinal());
      const char* const end = window_.end();
      const auto* newline =
          static_cast<const char*>(std::memchr(window_.p, '\n', static_cast<size_t>(end - window_.p)));
      window_.p = newline ? newline + 1 : end;
    }
  }
  if (!events_seen_) return not_a_trace();
  return {};
}

// Moves to the document's first bracket; log lines may stand before it.
Status Reader::find_document() {
  ATTNSCOPE_TRY(window_.refill());
  if (window_.end() - window_.p >= 3 && std::memcmp(window_.p, "\xEF\xBB\xBF", 3) == 0) {
    diagnostics().add(Diag::kByteOrderMark);
    window_.p += 3;
  }
  const std::string first(window_.p, std::min<size_t>(static_cast<size_t>(window_.end() - window_.p), 64));
  // Zeros count as white space, and a device may have no end of them.
  if (window_.p < window_.end() && std::all_of(window_.p, window_.end(), [](char c) { return c == '\0'; }))
    return fail(ErrorCode::kBadInput, fmt::format("{} holds nothing but zeros", terminal_safe(name_)),
                "record the trace again; the disk was full, or the machine stopped while it was written");
  ATTNSCOPE_ASSIGN(const bool more, peek());
  if (!more)
    return fail(ErrorCode::kBadInput, fmt::format("{} is empty", terminal_safe(name_)),
                "record the trace again; the writer probably failed or ran out of disk");
  const std::string_view start(window_.p, static_cast<size_t>(window_.end() - window_.p));
  const auto opens = [&](size_t at) {
    const size_t next = start.find_first_not_of(" \t\r\n", at + 1);
    const char after = next == std::string_view::npos ? '\0' : start[next];
    if (start[at] == '{') return after == '"' || after == '}' || after == '\0';
    return after == '{' || after == ']' || after == '\0' || after == '[' || after == '"' ||
           (after >= '0' && after <= '9');
  };
  if (start[0] == '{' || (start[0] == '[' && opens(0))) return {};
  // A document that begins after lines of a log.
  for (size_t at = start.find('\n'); at != std::string_view::npos; at = start.find('\n', at)) {
    ++at;
    if (at >= start.size() || (start[at] != '{' && start[at] != '[') || !opens(at)) continue;
    diagnostics().add(Diag::kForeignText);
    window_.p += at;
    return {};
  }
  return fail(ErrorCode::kBadInput,
              fmt::format("{} is not JSON: {}", terminal_safe(name_), describe_bytes(first)),
              "attnscope explain reads Chrome JSON traces, plain, .gz or .zst");
}

Status Reader::after_document() {
  if (stop_) return {};
  ATTNSCOPE_ASSIGN(const bool more, peek());
  if (!more || *window_.p == '\0') return {};
  const bool document = *window_.p == '{' || *window_.p == '[';
  diagnostics().add(document ? Diag::kSecondDocument : Diag::kTrailingData);
  return {};
}

void Reader::finish(ByteSource& source) {
  intake_.finish();
  if (source.damaged()) diagnostics().add(Diag::kTruncatedCompression);
  if (source.trailing()) diagnostics().add(Diag::kTrailingData);
  if (source.shrank()) {
    diagnostics().add(Diag::kFileChanged);
    builder_.set_truncated();
  }
  const bool temporary = name_.size() > 4 && name_.compare(name_.size() - 4, 4, ".tmp") == 0;
  if (temporary) diagnostics().add(Diag::kTemporaryFile);
  finish_top_level(top_, intake_.marks(), builder_);
}

Result<trace::Trace> Reader::read(ByteSource& source) {
  ATTNSCOPE_TRY(find_document());
  const bool array = *window_.p == '[';
  ++window_.p;
  if (repair_) repair_->open(array);
  if (array) {
    intake_.marks().top_level_array = true;
    top_.shape.is_array = true;
    ATTNSCOPE_ASSIGN(const bool more, peek());
    if (more) {
      const auto left = static_cast<size_t>(window_.end() - window_.p);
      top_.shape.first_entry.assign(window_.p, std::min<size_t>(left, 4096));
    }
    ATTNSCOPE_TRY(read_events());
  } else {
    ATTNSCOPE_TRY(read_object());
  }
  const bool events = intake_.events_with_phase() > 0;
  if (!events && (array || builder_.next_ordinal() > 0)) ATTNSCOPE_TRY(not_a_trace());
  ATTNSCOPE_TRY(after_document());
  finish(source);
  return builder_.finish();
}

}  // namespace

Result<trace::Trace> read_source(std::unique_ptr<ByteSource> packed, const std::string& name,
                                 const ReadOptions& options, ReadStats* stats) {
  try {
    ATTNSCOPE_ASSIGN(std::unique_ptr<ByteSource> plain, unpack(std::move(packed), options.limits));
    ATTNSCOPE_ASSIGN(const bool utf16, sniff_utf16(plain));
    Reader reader(*plain, name, options);
    if (utf16) reader.note(Diag::kUtf16);
    Result<trace::Trace> result = reader.read(*plain);
    if (stats) stats->plain_bytes = reader.bytes_read();
    // Errors of the layers below (a limit, a failed read) do not know the name.
    if (!result && result.error().message.find(terminal_safe(name)) == std::string::npos)
      result.error().message = fmt::format("{}: {}", terminal_safe(name), result.error().message);
    return result;
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, fmt::format("not enough memory to read {}", terminal_safe(name)),
                "read it on a machine with more memory; a trace takes about a fifth of its plain JSON");
  } catch (const std::exception& e) {
    return fail(ErrorCode::kInternal, fmt::format("reading {} failed: {}", terminal_safe(name), e.what()));
  }
}

Result<trace::Trace> read_file(const std::string& path, const ReadOptions& options, ReadStats* stats) {
  ATTNSCOPE_ASSIGN(std::unique_ptr<ByteSource> file, open_file(path));
  return read_source(std::move(file), path == "-" ? "standard input" : path, options, stats);
}

Result<trace::Trace> read_memory(std::string_view bytes, const std::string& name, const ReadOptions& options,
                                 ReadStats* stats) {
  return read_source(open_memory(bytes), name, options, stats);
}

}  // namespace attnscope::formats::chrome
