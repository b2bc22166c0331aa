#pragma once
// A trace as clean, strict JSON that keeps all of the original: every event and argument that was read, those
// that the trace itself has no use for included, in their order and with their values.

#include "formats/chrome/event_parser.h"
#include "formats/chrome/reader.h"
#include "formats/sink.h"

#include <string>
#include <string_view>

namespace attnscope::formats::chrome {

// Reads the trace at `in` and writes it to `out`, as write_file() names them, in the same pass and in bounded
// memory. What the reader rejects with a diagnostic (damage, events without a time) is left out; times become
// numbers, a missing duration 0; a list that was cut ends with a mark, so that reading it again says so.
// Errors: those of read_file(), kIo.
Result<trace::Trace> repair_file(const std::string& in, const std::string& out,
                                 const ReadOptions& options = {});
// The same from bytes in memory to a sink, which it finishes.
Result<trace::Trace> repair_memory(std::string_view bytes, Sink& sink, const ReadOptions& options = {});

// What the reader tells of its read. A failed write is kept for finish().
class RepairWriter {
 public:
  explicit RepairWriter(Sink& sink) : sink_(sink) {}

  void open(bool array);
  void member(std::string_view raw_key, const Token& value);
  void open_events();
  // text: from the event's opening brace to behind its closing one.
  void event(std::string_view text, const RawEvent& parsed);
  void close_events();
  // Closes what is open; truncated: the list of events was cut.
  Status finish(bool truncated);

 private:
  void separate(std::string_view separator);
  void string(std::string_view raw);
  void value(const Token& token);
  void time(const Token& token, bool is_duration);
  void members_of(std::string_view text, const RawEvent& parsed);
  void flush(bool always);

  Sink& sink_;
  Status status_;
  std::string out_, scratch_, padded_;
  bool array_ = false, in_events_ = false, first_ = true;
};

}  // namespace attnscope::formats::chrome
