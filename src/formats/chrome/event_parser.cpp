#include "formats/chrome/event_parser.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace attnscope::formats::chrome {

void RawEvent::clear() {
  for (Token& t : members) t.type = TokenType::kNone;
  args_seen = 0;
  first_number.type = TokenType::kNone;
  inputs_begin = inputs_end = nullptr;
  inputs_together = true;
  oddities = 0;
}

namespace {

inline const char* quick_space(const char* p, const char* end) {
  if (static_cast<unsigned char>(*p) > ' ') return p;
  if (static_cast<unsigned char>(p[1]) > ' ') return p + 1;
  return skip_space(p, end);
}

// Whether a key and its colon stand at p: `"ts":`.
bool key_at(const char* p, const char* end) {
  if (p >= end || *p != '"') return false;
  const char* q = p + 1;
  while (q < end && q - p < 64 && *q != '"' && *q != '\\' && static_cast<unsigned char>(*q) >= ' ') ++q;
  if (q >= end || *q != '"' || q == p + 1) return false;
  q = skip_space(q + 1, end);
  return q < end && *q == ':';
}

// A quote inside a name was not escaped: the string really ends where a key or the closing brace follows.
const char* real_string_end(const char* p, const char* end) {
  for (; p < end; ++p) {
    p = static_cast<const char*>(std::memchr(p, '"', static_cast<size_t>(end - p)));
    if (!p) return nullptr;
    const char* q = skip_space(p + 1, end);
    if (q < end && *q == '}') return p;
    if (q < end && *q == ',' && key_at(skip_space(q + 1, end), end)) return p;
  }
  return nullptr;
}

// Text that is no JSON stands before the next member: to the start of the next line, or the end of the event.
const char* skip_foreign(const char* p, const char* end) {
  const auto* newline = static_cast<const char*>(std::memchr(p, '\n', static_cast<size_t>(end - p)));
  return newline ? newline + 1 : nullptr;
}

constexpr uint64_t bit(Arg a) {
  return uint64_t{1} << static_cast<unsigned>(a);
}
constexpr uint64_t kInputArgs =
    bit(Arg::kInputDims) | bit(Arg::kInputStrides) | bit(Arg::kInputType) | bit(Arg::kConcreteInputs);
static_assert(static_cast<unsigned>(Arg::kCount) <= 64);

// One object's members, with what may be wrong between them.
template <const auto& kTable, typename Memory>
struct MemberLoop {
  MemberLoop(const char* first, const char* last, uint16_t& odd, Memory& gaps)
      : p(first), end(last), oddities(odd), memory(gaps) {}

  const char* p;
  const char* const end;
  uint16_t& oddities;
  Memory& memory;
  uint8_t row = kTable.kFirst;
  const char* string_begin = nullptr;  // of the last value, when it was a string
  Token* string_token = nullptr;
  const char* key_begin = nullptr;
  int foreign_lines = 0;

  enum class Step : uint8_t { kMember, kEnd, kMore, kDamaged };

  // Moves to the next key's value. Bytes past the end are zero and match nothing looked for here.
  [[gnu::always_inline]] Step next() {
    for (const Gap& gap : memory[row]) {
      if (!gap.stands_at(p)) continue;
      // More space than last time, or the end of the window.
      if (static_cast<unsigned char>(p[gap.length]) <= ' ') break;
      row = gap.row;
      key_begin = p + gap.key_at;
      p += gap.length;
      string_begin = nullptr;
      return Step::kMember;
    }
    return search();
  }

  // The same without a remembered gap; remembers the one found when nothing in it was odd.
  [[gnu::noinline]] Step search() {
    const char* const from = p;
    const uint8_t before = row;
    const char* q = quick_space(p, end);
    if (*q == ',') {
      q = quick_space(q + 1, end);
      if (*q != '"') return unusual();
    } else if (*q == '}' && q < end) {
      p = q + 1;
      return Step::kEnd;
    } else if (*q != '"' || key_begin) {
      return unusual();
    }
    p = q;
    const Step step = key_and_colon();
    if (step == Step::kMember) remember(memory[before], from);
    return step;
  }

  template <typename Ways>
  void remember(Ways& ways, const char* from) {
    const auto length = static_cast<size_t>(p - from);
    if (length > Gap::kMaxLength || std::memchr(from, '\0', length)) return;
    for (size_t w = ways.size() - 1; w > 0; --w) ways[w] = ways[w - 1];
    Gap& gap = ways[0];
    gap.text.fill('\0');
    std::memcpy(gap.text.data(), from, length);
    gap.length = static_cast<uint8_t>(length);
    gap.row = row;
    gap.key_at = static_cast<uint8_t>(key_begin - from);
  }

  Step key_and_colon() {
    key_begin = p;
    uint8_t flags = 0;
    const char* close = string_end(p + 1, end, flags);
    if (!close) return Step::kMore;
    row = kTable.find({p + 1, static_cast<size_t>(close - p - 1)});
    p = quick_space(close + 1, end);
    if (*p != ':') return p >= end ? Step::kMore : Step::kDamaged;
    p = quick_space(p + 1, end);
    if (p >= end) return Step::kMore;
    string_begin = nullptr;
    return Step::kMember;
  }

  // Whatever stands between members other than one comma: nothing before the first, or damage.
  [[gnu::noinline]] Step unusual() {
    bool comma = false;
    while (true) {
      p = skip_space(p, end);
      if (p >= end) return Step::kMore;
      if (*p == ',') {
        comma = true;
        ++p;
        continue;
      }
      if (*p == '}') return ++p, Step::kEnd;
      if (*p == '"' && (comma || !string_begin || key_at(p, end))) break;
      if (!recover()) return failed_;
      comma = true;
    }
    if (!comma && key_begin) oddities |= kOddMissingComma;
    return key_and_colon();
  }

  [[gnu::always_inline]] bool value(Token& token) {
    const char* behind = nullptr;
    if (!read_value(p, end, token, behind)) return false;
    if (token.flags & kTooDeepFlag) oddities |= kOddTooDeep;
    if (token.type == TokenType::kString) {
      string_begin = token.begin;
      string_token = &token;
    }
    p = behind;
    return true;
  }

 private:
  Step failed_ = Step::kDamaged;

  // p stands at something that is neither a key nor an end. False: give up with failed_.
  [[gnu::noinline]] bool recover() {
    if (string_begin) {
      const char* close = real_string_end(string_begin, end);
      if (!close) return failed_ = Step::kMore, false;
      oddities |= kOddRawQuote;
      string_token->length = static_cast<uint32_t>(close - string_begin);
      string_token->flags |= kEscaped | kControl | kHigh;  // looked at again by whoever decodes it
      string_begin = nullptr;
      p = close + 1;
      return true;
    }
    if (*p == '{' || *p == '[' || *p == ']' || ++foreign_lines > 64) return failed_ = Step::kDamaged, false;
    const char* next_line = skip_foreign(p, end);
    if (!next_line) return failed_ = Step::kMore, false;
    oddities |= kOddForeignText;
    p = next_line;
    return true;
  }
};

Parse parse_args(const char*& p, const char* end, RawEvent& event) {
  // Events of one kind have the same arguments in the same order: kinds by category, metadata by its name.
  const Token& cat = event.member(EventKey::kCat);
  const Token& name = event.member(EventKey::kName);
  size_t kind = 0;
  if (cat) {
    kind =
        cat.length > 2 ? (cat.length + static_cast<unsigned char>(cat.begin[2])) % (RawEvent::kKinds / 2) : 0;
  } else if (name) {
    kind = RawEvent::kKinds / 2 + name.length % (RawEvent::kKinds / 2);
  }
  using Loop = MemberLoop<kArgTable, std::decay_t<decltype(event.arg_gaps[kind])>>;
  Loop loop(p + 1, end, event.oddities, event.arg_gaps[kind]);
  Token ignored;
  while (true) {
    switch (loop.next()) {
      case Loop::Step::kMember: break;
      case Loop::Step::kEnd: p = loop.p; return Parse::kDone;
      case Loop::Step::kMore: return Parse::kMore;
      case Loop::Step::kDamaged: p = loop.p; return Parse::kDamaged;
    }
    const Arg a = kArgTable.key(loop.row);
    Token& slot = a == Arg::kCount ? ignored : event.args[static_cast<size_t>(a)];
    if (!loop.value(slot)) return Parse::kMore;
    if (slot.type == TokenType::kNumber && !event.first_number) event.first_number = slot;
    if (a == Arg::kCount) continue;
    event.args_seen |= bit(a);
    if (bit(a) & kInputArgs) {
      // Together: nothing but these four between the first and the last.
      if (event.inputs_begin) {
        const auto gap = static_cast<size_t>(loop.key_begin - event.inputs_end);
        event.inputs_together &= gap <= 8;
      } else {
        event.inputs_begin = loop.key_begin;
      }
      event.inputs_end = loop.p;
      if (slot.flags & kTooDeepFlag) event.inputs_together = false;
    }
  }
}

}  // namespace

Parse parse_event(const char*& p, const char* end, RawEvent& event) {
  event.clear();
  using Loop = MemberLoop<kEventTable, decltype(event.event_gaps)>;
  Loop loop(p + 1, end, event.oddities, event.event_gaps);
  Token ignored;
  while (true) {
    switch (loop.next()) {
      case Loop::Step::kMember: break;
      case Loop::Step::kEnd: p = loop.p; return Parse::kDone;
      case Loop::Step::kMore: return Parse::kMore;
      case Loop::Step::kDamaged: p = loop.p; return Parse::kDamaged;
    }
    const EventKey k = kEventTable.key(loop.row);
    if (k == EventKey::kArgs && *loop.p == '{') {
      event.members[static_cast<size_t>(k)].type = TokenType::kContainer;
      const Parse result = parse_args(loop.p, end, event);
      if (result != Parse::kDone) {
        p = loop.p;
        return result;
      }
      continue;
    }
    Token& slot = k == EventKey::kCount ? ignored : event.members[static_cast<size_t>(k)];
    if (k != EventKey::kCount && slot) event.oddities |= kOddDuplicateKey;
    if (!loop.value(slot)) return Parse::kMore;
  }
}

namespace {

std::string_view key_text(const char* quote, const char* end) {
  uint8_t flags = 0;
  const char* const close = string_end(quote + 1, end, flags);
  return {quote + 1, close ? static_cast<size_t>(close - quote - 1) : 0};
}

// Takes the members of one object; nested(loop) may take a value in its own way and then says so.
template <typename Loop, typename Nested>
void take_members(Loop& loop, std::deque<RawMember>& members, Nested&& nested) {
  while (loop.next() == Loop::Step::kMember) {
    RawMember& member = members.emplace_back();
    member.key = key_text(loop.key_begin, loop.end);
    if (!nested(loop) && !loop.value(member.value)) return;
  }
}

}  // namespace

EventMembers read_members(const char* p, const char* end) {
  EventMembers members;
  uint16_t oddities = 0;
  decltype(RawEvent::event_gaps) event_gaps{};
  decltype(RawEvent::arg_gaps)::value_type arg_gaps{};
  MemberLoop<kEventTable, decltype(event_gaps)> loop(p + 1, end, oddities, event_gaps);
  take_members(loop, members.event, [&](auto& event) {
    if (kEventTable.key(event.row) != EventKey::kArgs || *event.p != '{') return false;
    MemberLoop<kArgTable, decltype(arg_gaps)> args(event.p + 1, end, oddities, arg_gaps);
    take_members(args, members.args, [](auto&) { return false; });
    event.p = args.p;
    return members.has_args = true;
  });
  return members;
}

const char* find_event_start(const char* p, const char* end) {
  constexpr std::string_view kFirst[] = {"\"ph\"",  "\"name\"", "\"cat\"",  "\"pid\"",
                                         "\"tid\"", "\"ts\"",   "\"args\"", "\"id\""};
  const char* const begin = p;
  for (; p < end; ++p) {
    p = static_cast<const char*>(std::memchr(p, '{', static_cast<size_t>(end - p)));
    if (!p) return nullptr;
    const char* before = p;
    while (before > begin && static_cast<unsigned char>(before[-1]) <= ' ') --before;
    if (before > begin && before[-1] == ':') continue;  // a member's object, not an event
    const char* q = skip_space(p + 1, end);
    const std::string_view rest(q, static_cast<size_t>(end - q));
    for (const std::string_view first : kFirst)
      if (rest.substr(0, first.size()) == first) return p;
  }
  return nullptr;
}

}  // namespace attnscope::formats::chrome
