#include "formats/chrome/strict.h"

#include "formats/chrome/scan.h"

#include <vector>

namespace attnscope::formats::chrome {
namespace {

// -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)?
bool strict_number(std::string_view s) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t from = i;
    while (i < s.size() && s[i] >= '0' && s[i] <= '9') ++i;
    return i - from;
  };
  if (i < s.size() && s[i] == '-') ++i;
  const size_t first = i;
  const size_t whole = digits();
  if (whole == 0 || (whole > 1 && s[first] == '0')) return false;
  if (i < s.size() && s[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < s.size() && (s[i] == 'e' || s[i] == 'E')) {
    ++i;
    if (i < s.size() && (s[i] == '+' || s[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == s.size();
}

class Rewriter {
 public:
  explicit Rewriter(std::string& out) : out_(out) {}

  void string(std::string_view raw) {
    bool ignored = false;
    decode_string(raw, text_, ignored, ignored);
    place(true);
    append_string(text_, out_);
    placed();
  }
  void scalar(std::string_view word) {
    const bool plain = word == "true" || word == "false" || word == "null" || strict_number(word);
    const bool key = place(plain);
    if (plain && !key) {
      out_.append(word);
    } else {
      bool ignored = false;
      decode_string(word, text_, ignored, ignored);
      append_string(text_, out_);
    }
    placed();
  }
  void open(bool object) {
    if (place(false)) {  // a container cannot be a key: give it one
      out_ += "\"\"";
      placed();
      place(false);
    }
    out_ += object ? '{' : '[';
    levels_.push_back({object, true, true});
  }
  void close() {
    if (levels_.empty()) return;
    const Level level = levels_.back();
    if (level.object && !level.expects_key) out_ += "null";
    out_ += level.object ? '}' : ']';
    levels_.pop_back();
    placed();
  }
  void finish() {
    while (!levels_.empty()) close();
    if (!any_) out_ += "null";
  }
  // A document is one value; what follows it is dropped.
  bool complete() const { return any_ && levels_.empty(); }

 private:
  struct Level {
    bool object, expects_key, empty;
  };
  // Writes the separator before the next token; true when it will be a key.
  bool place(bool) {
    if (levels_.empty()) return false;
    Level& level = levels_.back();
    if (!level.object || level.expects_key) {
      if (!level.empty) out_ += ", ";
      level.empty = false;
    }
    return level.object && level.expects_key;
  }
  void placed() {
    if (levels_.empty()) {
      any_ = true;
      return;
    }
    Level& level = levels_.back();
    if (!level.object) return;
    if (level.expects_key) out_ += ": ";
    level.expects_key = !level.expects_key;
  }

  std::string& out_;
  std::string text_;
  std::vector<Level> levels_;
  bool any_ = false;
};

}  // namespace

void append_string(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  const bool clean = valid_utf8(text);
  std::string repaired;
  if (!clean) {
    bool ignored = false;
    // Backslashes are doubled first so that only the bytes are repaired.
    std::string doubled;
    for (const char c : text) doubled.append(c == '\\' ? 2 : 1, c);
    decode_string(doubled, repaired, ignored, ignored);
    text = repaired;
  }
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_strict(std::string_view raw, std::string& out) {
  // The scanner reads past its end: give it room.
  std::string bytes(raw);
  bytes.append(kPadding, '\0');
  const char* p = bytes.data();
  const char* const end = p + raw.size();
  Rewriter rewriter(out);
  while (!rewriter.complete()) {
    p = skip_space(p, end);
    if (p >= end) break;
    const char c = *p;
    if (c == '"') {
      uint8_t flags = 0;
      const char* close = string_end(p + 1, end, flags);
      if (!close) close = end;
      rewriter.string({p + 1, static_cast<size_t>(close - p - 1)});
      p = close < end ? close + 1 : end;
    } else if (c == '{' || c == '[') {
      rewriter.open(c == '{');
      ++p;
    } else if (c == '}' || c == ']') {
      rewriter.close();
      ++p;
    } else if (c == ',' || c == ':') {
      ++p;
    } else {
      const char* stop = p;
      while (stop < end && *stop != ',' && *stop != ':' && *stop != '}' && *stop != ']' && *stop != '"' &&
             *stop != '{' && *stop != '[' && static_cast<unsigned char>(*stop) > ' ')
        ++stop;
      rewriter.scalar({p, static_cast<size_t>(stop - p)});
      p = stop;
    }
  }
  rewriter.finish();
}

}  // namespace attnscope::formats::chrome
