#pragma once
// One event, from its opening brace to its closing one, into tokens that point into the window.

#include "formats/chrome/keys.h"
#include "formats/chrome/scan.h"

#include <array>
#include <cstdint>
#include <deque>
#include <string_view>

namespace attnscope::formats::chrome {

// Oddities met inside one event, for the diagnostics.
enum EventOddity : uint16_t {
  kOddMissingComma = 1,
  kOddForeignText = 2,
  kOddDuplicateKey = 4,
  kOddRawQuote = 8,
  kOddTooDeep = 16,
};

struct RawEvent {
  std::array<Token, static_cast<size_t>(EventKey::kCount)> members;
  std::array<Token, static_cast<size_t>(Arg::kCount)> args;
  uint64_t args_seen = 0;
  Token first_number;  // the first numeric argument of any name: a counter's value
  // The recorded inputs (dims, strides, types, concrete values) when they stand together, else nullptr.
  const char* inputs_begin = nullptr;
  const char* inputs_end = nullptr;
  bool inputs_together = true;
  uint16_t oddities = 0;
  // Not part of the event: what stood between members lately, for arguments by kind of event.
  static constexpr size_t kKinds = 32;
  GapMemory<decltype(kEventTable), 3> event_gaps{};
  std::array<GapMemory<decltype(kArgTable), 1>, kKinds> arg_gaps{};

  const Token& member(EventKey k) const { return members[static_cast<size_t>(k)]; }
  bool has(Arg a) const { return args_seen >> static_cast<unsigned>(a) & 1; }
  const Token& arg(Arg a) const { return args[static_cast<size_t>(a)]; }
  void clear();
};

enum class Parse : uint8_t {
  kDone,
  kMore,     // the window ends inside the event
  kDamaged,  // not readable as an event; `p` is where to look for the next one
};

// p at '{'. On kDone p is behind '}'. Reads up to kPadding bytes past end, never uses them.
Parse parse_event(const char*& p, const char* end, RawEvent& event);

// One member of an object: the key as it stands between its quotes.
struct RawMember {
  std::string_view key;
  Token value;
};
// The members of an event that parse_event has read, in their order, and of its args: p at '{', end behind
// '}', with kPadding zero bytes there.
struct EventMembers {
  std::deque<RawMember> event, args;
  bool has_args = false;  // args is an object; its member's value is then empty
};
EventMembers read_members(const char* p, const char* end);

// The next place from p on that looks like the start of an event, or nullptr.
const char* find_event_start(const char* p, const char* end);

}  // namespace attnscope::formats::chrome
