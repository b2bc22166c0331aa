#include "analysis/op_inputs.h"

#include <charconv>

namespace attnscope {
namespace {

constexpr size_t kMaxArguments = 256;
constexpr size_t kMaxDims = 64;

// Walks raw JSON text. Every step either moves forward or ends the walk, so hostile text costs its length.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool done() { return peek() == '\0'; }

  std::string string() {
    std::string out;
    if (!take('"')) return out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;  // \" and \\; longer escapes stay as letters
      out += text_[at_++];
    }
    if (at_ < text_.size()) ++at_;
    return out;
  }
  bool integer(int64_t& value) {
    skip_space();
    const char* begin = text_.data() + at_;
    const char* end = text_.data() + text_.size();
    const auto [after, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || after == begin) return false;
    at_ += static_cast<size_t>(after - begin);
    return true;
  }
  // Passes over one value of any kind.
  void skip_value() {
    int depth = 0;
    do {
      switch (peek()) {
        case '\0': return;
        case '"': string(); break;
        case '[':
        case '{':
          ++at_;
          ++depth;
          break;
        case ']':
        case '}':
          if (depth == 0) return;
          ++at_;
          --depth;
          break;
        case ',':
          if (depth == 0) return;
          ++at_;
          break;
        default: ++at_;
      }
    } while (depth > 0 ||
             (at_ < text_.size() && text_[at_] != ',' && text_[at_] != ']' && text_[at_] != '}'));
  }

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  std::string_view text_;
  size_t at_ = 0;
};

// Calls `element(cursor)` at each element of the array under the cursor.
template <typename F>
void each(Cursor& cursor, F&& element) {
  if (!cursor.take('[')) {
    cursor.skip_value();
    return;
  }
  while (!cursor.done()) {
    if (cursor.take(']')) return;
    if (cursor.take(',')) continue;
    if (cursor.peek() == '}') return;
    element(cursor);
  }
}

using Numbers = std::vector<int64_t>;

// "[[8, 16], [], [[1], [2]]]" -> the numbers of each argument, or of each member of a list argument.
void read_shapes(std::string_view text, std::vector<OpInput>& inputs, Numbers OpInput::* field) {
  Cursor cursor(text);
  size_t argument = 0;
  each(cursor, [&](Cursor& c) {
    if (argument >= kMaxArguments) return c.skip_value();
    if (inputs.size() <= argument) inputs.resize(argument + 1);
    OpInput& input = inputs[argument++];
    size_t member = 0;
    each(c, [&](Cursor& inner) {
      if (inner.peek() == '[') {
        if (member >= kMaxArguments) return inner.skip_value();
        if (input.members.size() <= member) input.members.resize(member + 1);
        Numbers& numbers = input.members[member++].*field;
        each(inner, [&](Cursor& number) {
          int64_t value = 0;
          if (!number.integer(value)) return number.skip_value();
          if (numbers.size() < kMaxDims) numbers.push_back(value);
        });
        return;
      }
      int64_t value = 0;
      if (!inner.integer(value)) return inner.skip_value();
      if ((input.*field).size() < kMaxDims) (input.*field).push_back(value);
    });
  });
}

void read_strings(std::string_view text, std::vector<OpInput>& inputs, std::string OpInput::* field) {
  Cursor cursor(text);
  size_t argument = 0;
  each(cursor, [&](Cursor& c) {
    if (argument >= kMaxArguments || c.peek() != '"') {
      ++argument;
      return c.skip_value();
    }
    if (inputs.size() <= argument) inputs.resize(argument + 1);
    inputs[argument++].*field = c.string();
  });
}

}  // namespace

std::vector<OpInput> parse_op_inputs(const trace::OperatorArgs& args) {
  std::vector<OpInput> inputs;
  read_shapes(args.input_dims, inputs, &OpInput::dims);
  read_shapes(args.input_strides, inputs, &OpInput::strides);
  read_strings(args.input_types, inputs, &OpInput::type);
  read_strings(args.concrete_inputs, inputs, &OpInput::concrete);
  return inputs;
}

}  // namespace attnscope
