#include "formats/chrome/strict.h"

#include "formats/chrome/scan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace attnscope::formats::chrome {
namespace {

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

// One value of strict JSON, without recursion.
class Checker {
 public:
  explicit Checker(std::string_view s) : s_(s) {}

  bool value() {
    while (true) {
      space();
      if (at_ == s_.size()) return false;
      const char c = s_[at_];
      if (c == '{' || c == '[') {
        ++at_;
        if (open_.size() == kMaxDepth) return false;
        open_ += c == '{' ? '}' : ']';
        if (next_is(open_.back())) {
          open_.pop_back();
        } else {
          if (open_.back() == '}' && !key()) return false;
          continue;
        }
      } else if (c == '"' ? !string() : !scalar()) {
        return false;
      }
      // A value stands complete: another follows, or its container ends.
      while (!open_.empty() && next_is(open_.back())) open_.pop_back();
      if (open_.empty()) return space(), at_ == s_.size();
      if (!next_is(',') || (open_.back() == '}' && !key())) return false;
    }
  }

 private:
  void space() {
    while (at_ < s_.size() && (s_[at_] == ' ' || s_[at_] == '\n' || s_[at_] == '\t' || s_[at_] == '\r'))
      ++at_;
  }
  bool next_is(char c) {
    space();
    if (at_ == s_.size() || s_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool key() {
    space();
    return at_ < s_.size() && s_[at_] == '"' && string() && next_is(':');
  }
  // at_ at the opening quote. The bytes' encoding is looked at once, over the whole text.
  bool string() {
    for (++at_; at_ < s_.size(); ++at_) {
      const char c = s_[at_];
      if (c == '"') return ++at_, true;
      if (static_cast<unsigned char>(c) < 0x20 || (c == '\\' && !escape())) return false;
    }
    return false;
  }
  // at_ at the backslash; then at the escape's last character.
  bool escape() {
    if (++at_ == s_.size()) return false;
    if (s_[at_] != 'u') return std::string_view("\"\\/bfnrt").find(s_[at_]) != std::string_view::npos;
    const int first = unit();
    if (first < 0xD800 || first > 0xDFFF) return first >= 0;
    if (first > 0xDBFF || s_.substr(at_ + 1, 2) != "\\u") return false;
    at_ += 2;
    const int second = unit();
    return second >= 0xDC00 && second <= 0xDFFF;
  }
  // at_ at the 'u'; then at the last of its four digits. -1: they are none.
  int unit() {
    int value = 0;
    for (int i = 0; i < 4; ++i) {
      if (++at_ >= s_.size()) return -1;
      const char c = s_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return -1;
      value = value * 16 + digit;
    }
    return value;
  }
  bool scalar() {
    const size_t stop = std::min(s_.find_first_of(",]} \n\t\r", at_), s_.size());
    const std::string_view word = s_.substr(at_, stop - at_);
    at_ = stop;
    return word == "true" || word == "false" || word == "null" || strict_number(word);
  }

  std::string_view s_;
  size_t at_ = 0;
  std::string open_;  // the closing brackets that are due
};

}  // namespace

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
  // Parsers refuse what no double holds: 1e999.
  const bool may_overflow = s.size() > 300 || s.find_first_of("eE") != std::string_view::npos;
  return i == s.size() && (!may_overflow || std::isfinite(std::strtod(std::string(s).c_str(), nullptr)));
}

bool is_strict(std::string_view text) {
  return valid_utf8(text) && Checker(text).value();
}

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
