#include "analysis/guess.h"

#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <re2/re2.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

// Errors as values, and the parser compiled into this file: Debian's shared library has only the throwing
// form. Its assertions are left out: one of toml++ 3.3 fails on the input "[:", which the code after it
// refuses properly.
// clang-format off
#define TOML_EXCEPTIONS 0
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/impl/preprocessor.h>
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT_ASSUME(expr) static_assert(true)
#include <toml++/toml.h>
// clang-format on

namespace attnscope {
namespace {

constexpr size_t kLargestFile = size_t{1} << 20;
constexpr size_t kLongestPattern = 512;
constexpr int kDeepestName = 32;

struct Key {
  std::string_view name;
  GuessKey key;
  GuessUnit unit;
  bool may_total;
};
constexpr std::array kKeys = {Key{"kernels", GuessKey::kKernels, GuessUnit::kCount, true},
                              Key{"copies", GuessKey::kCopies, GuessUnit::kCount, true},
                              Key{"fills", GuessKey::kFills, GuessUnit::kCount, true},
                              Key{"sequence", GuessKey::kSequence, GuessUnit::kCount, false},
                              Key{"backend", GuessKey::kBackend, GuessUnit::kCount, false},
                              Key{"tensor_cores", GuessKey::kTensorCores, GuessUnit::kCount, false},
                              Key{"dtype", GuessKey::kDtype, GuessUnit::kCount, false},
                              Key{"device_time", GuessKey::kDeviceTime, GuessUnit::kTime, true},
                              Key{"host_time", GuessKey::kHostTime, GuessUnit::kTime, true},
                              Key{"occupancy", GuessKey::kOccupancy, GuessUnit::kPercent, false}};

std::vector<std::string> known_keys() {
  std::vector<std::string> names = {"match"};
  for (const Key& k : kKeys) {
    names.emplace_back(k.name);
    if (k.may_total) names.push_back(std::string(k.name) + "_total");
  }
  return names;
}

std::vector<std::string> known_backends() {
  std::vector<std::string> names = {"unfused"};
  for (int i = static_cast<int>(AttentionImpl::kAtenMath); i <= static_cast<int>(AttentionImpl::kOther); ++i)
    names.emplace_back(implementation_name(static_cast<AttentionImpl>(i)));
  return names;
}

std::vector<std::string> known_dtypes() {
  return {"f64", "f32", "tf32", "f16", "bf16", "f8", "f4", "i8"};
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = closest(word, known);
  return near.empty() ? fmt::format("known: {}", fmt::join(known, ", "))
                      : fmt::format("did you mean '{}'?", near);
}

tl::unexpected<Error> bad(std::string_view source, int line, std::string message, std::string remedy = {}) {
  return fail(ErrorCode::kBadInput, fmt::format("{}:{}: {}", source, line, message), std::move(remedy));
}

// What is refused before the parser sees it: things that no guess needs and that toml++ 3.3 does not survive.
// Names nested thousands deep would be taken apart by recursion; characters beyond ASCII outside quotes,
// which TOML does not allow either, reach a table of its that has a hole.
struct Refused {
  int line = 0;
  std::string_view message, remedy;
};

std::optional<Refused> refuse_early(std::string_view toml) {
  if (toml.starts_with("\xef\xbb\xbf")) toml.remove_prefix(3);
  int line = 1, dots = 0;
  char quote = 0;
  bool comment = false;
  for (size_t i = 0; i < toml.size(); ++i) {
    const char c = toml[i];
    const std::string_view rest = toml.substr(i);
    if (c == '\n') {
      ++line;
      dots = 0;
      quote = 0;
      comment = false;
      continue;
    }
    if (c == '\r' && rest.starts_with("\r\n")) continue;
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f || rest.starts_with("\xc2\x85") ||
        rest.starts_with("\xe2\x80\xa8") || rest.starts_with("\xe2\x80\xa9"))
      return Refused{line, "a control character or an unusual line end", "lines end with \\n or \\r\\n"};
    if (comment) continue;
    if (quote != 0) {
      if (c == '\\' && quote == '"' && i + 1 < toml.size() && toml[i + 1] != '\n')
        ++i;
      else if (c == quote)
        quote = 0;
      continue;
    }
    if (rest.starts_with("\"\"\"") || rest.starts_with("'''"))
      return Refused{line, "a string of several lines", "names and values stand on one line"};
    if (c == '#') comment = true;
    if (c == '"' || c == '\'') quote = c;
    if (static_cast<unsigned char>(c) >= 0x80)
      return Refused{line, "a character beyond ASCII outside quotes",
                     "a range's name with such characters stands in quotes"};
    if (c == '.' && ++dots > kDeepestName)
      return Refused{line, "a name is nested more than 32 deep", "quote a name that holds dots"};
  }
  return std::nullopt;
}

std::string node_text(const toml::node& node) {
  if (const auto s = node.value<std::string>(); s && node.is_string())
    return fmt::format("\"{}\"", terminal_safe(*s, 60));
  if (node.is_integer()) return fmt::format("{}", *node.value<int64_t>());
  if (node.is_floating_point()) return fmt::format("{}", *node.value<double>());
  if (node.is_boolean()) return *node.value<bool>() ? "true" : "false";
  if (node.is_array()) return "an array";
  return node.is_table() ? "a table" : "a date or time";
}

// One key of a table.
class KeyReader {
 public:
  KeyReader(std::string_view source, std::string_view written, const toml::node& node)
      : source_(source), written_(written), node_(node), line_(static_cast<int>(node.source().begin.line)) {}

  Result<Expectation> read() {
    std::string_view base = written_;
    const bool total = base.ends_with("_total");
    if (total) base.remove_suffix(6);
    const auto key = std::find_if(kKeys.begin(), kKeys.end(), [&](const Key& k) { return k.name == base; });
    if (key == kKeys.end() || (total && !key->may_total))
      return bad(source_, line_, fmt::format("unknown key '{}'", terminal_safe(written_, 60)),
                 did_you_mean(written_, known_keys()));
    Expectation e;
    e.key = key->key;
    e.total = total;
    e.name = written_;
    e.line = line_;
    e.text = fmt::format("{} = {}", written_, node_text(node_));
    switch (key->key) {
      case GuessKey::kSequence: ATTNSCOPE_TRY(read_sequence(e)); break;
      case GuessKey::kBackend: ATTNSCOPE_TRY(read_word(e, known_backends())); break;
      case GuessKey::kDtype: ATTNSCOPE_TRY(read_word(e, known_dtypes())); break;
      case GuessKey::kTensorCores: {
        if (!node_.is_boolean()) return wrong("true or false");
        e.value = *node_.value<bool>();
        break;
      }
      default: ATTNSCOPE_TRY(read_figure(e, key->unit)); break;
    }
    return e;
  }

 private:
  tl::unexpected<Error> wrong(std::string_view expected) const {
    return bad(source_, line_, fmt::format("{} is {}; it takes {}", written_, node_text(node_), expected));
  }

  Status read_sequence(Expectation& e) const {
    const toml::array* array = node_.as_array();
    if (!array) return wrong("a list of kinds, such as [\"gemm\", \"softmax\", \"gemm\"]");
    std::vector<std::string> known;
    for (const KindDescription& k : sequence_kinds()) known.emplace_back(k.name);
    std::vector<KernelKind> kinds;
    std::string text;
    for (const toml::node& element : *array) {
      const std::string word = element.is_string() ? *element.value<std::string>() : std::string();
      const auto kind = std::find_if(sequence_kinds().begin(), sequence_kinds().end(),
                                     [&](const KindDescription& k) { return k.name == word; });
      if (kind == sequence_kinds().end())
        return bad(source_, line_, fmt::format("unknown kind {} in {}", node_text(element), written_),
                   did_you_mean(word, known));
      kinds.push_back(kind->kind);
      text += (text.empty() ? "" : ", ") + word;
    }
    e.text = fmt::format("{} = [{}]", written_, text);
    e.value = std::move(kinds);
    return {};
  }

  Status read_word(Expectation& e, const std::vector<std::string>& known) const {
    if (!node_.is_string()) return wrong("a name in quotes");
    const std::string word = *node_.value<std::string>();
    if (std::find(known.begin(), known.end(), word) == known.end())
      return bad(source_, line_, fmt::format("unknown {} '{}'", written_, terminal_safe(word, 60)),
                 did_you_mean(word, known));
    e.value = word;
    return {};
  }

  Status read_figure(Expectation& e, GuessUnit unit) const {
    if (node_.is_integer() && unit == GuessUnit::kCount) {
      const int64_t n = *node_.value<int64_t>();
      if (n < 0) return wrong("a count of 0 or more");
      Comparison c;
      c.value = static_cast<double>(n);
      c.text = fmt::format("{}", n);
      e.value = c;
      return {};
    }
    const std::string_view expected = unit == GuessUnit::kCount ? "a count, or a comparison such as \"<= 5\""
                                      : unit == GuessUnit::kTime
                                          ? "a comparison with a unit, such as \"<= 200 us\""
                                          : "a comparison such as \">= 12 %\"";
    if (!node_.is_string()) return wrong(expected);
    Result<Comparison> c = parse_comparison(*node_.value<std::string>(), unit);
    if (!c) return wrong(expected);
    e.value = std::move(*c);
    return {};
  }

  std::string_view source_, written_;
  const toml::node& node_;
  int line_;
};

Result<GuessTable> read_table(std::string_view source, std::string_view name, const toml::table& table) {
  GuessTable out;
  out.name = name;
  out.line = static_cast<int>(table.source().begin.line);
  for (const auto& [key, node] : table) {
    const std::string_view written = key.str();
    const int line = static_cast<int>(node.source().begin.line);
    if (written == "match") {
      const std::string how = node.is_string() ? *node.value<std::string>() : std::string();
      if (how == "exact") continue;
      if (how != "regex")
        return bad(source, line,
                   fmt::format("match is {}; it takes \"exact\" or \"regex\"", node_text(node)));
      Result<NamePattern> pattern = NamePattern::compile(name);
      if (!pattern) return bad(source, line, pattern.error().message, pattern.error().remedy);
      out.pattern = std::move(*pattern);
      continue;
    }
    if (node.is_table())
      return bad(
          source, line,
          fmt::format("'{}' is a table inside '{}'", terminal_safe(written, 60), terminal_safe(name, 60)),
          "quote a name that holds dots, such as [\"aten::mm.out\"]");
    ATTNSCOPE_ASSIGN(Expectation expectation, KeyReader(source, written, node).read());
    out.expectations.push_back(std::move(expectation));
  }
  std::sort(out.expectations.begin(), out.expectations.end(),
            [](const Expectation& a, const Expectation& b) { return a.line < b.line; });
  return out;
}

}  // namespace

bool Comparison::holds(double seen) const {
  switch (op) {
    case CompareOp::kEqual: return seen == value;
    case CompareOp::kNotEqual: return seen != value;
    case CompareOp::kLess: return seen < value;
    case CompareOp::kLessEqual: return seen <= value;
    case CompareOp::kGreater: return seen > value;
    case CompareOp::kGreaterEqual: return seen >= value;
  }
  return false;
}

struct NamePattern::Impl {
  explicit Impl(std::string_view pattern, const RE2::Options& options)
      : re(re2::StringPiece(pattern.data(), pattern.size()), options) {}
  RE2 re;
};

Result<NamePattern> NamePattern::compile(std::string_view pattern) {
  if (pattern.size() > kLongestPattern)
    return fail(ErrorCode::kBadInput,
                fmt::format("a pattern of {} characters; the most is {}", pattern.size(), kLongestPattern));
  RE2::Options options(RE2::Quiet);
  options.set_max_mem(1 << 20);
  options.set_encoding(RE2::Options::EncodingLatin1);  // names may be no valid UTF-8
  auto impl = std::make_shared<const Impl>(pattern, options);
  if (!impl->re.ok())
    return fail(ErrorCode::kBadInput,
                fmt::format("the pattern '{}' cannot be read: {}", terminal_safe(pattern, 80),
                            terminal_safe(impl->re.error(), 80)),
                "patterns are RE2's: no back references, no look-around");
  NamePattern out;
  out.impl_ = std::move(impl);
  return out;
}

bool NamePattern::matches(std::string_view name) const {
  return impl_ && RE2::FullMatch(re2::StringPiece(name.data(), name.size()), impl_->re);
}

Result<Comparison> parse_comparison(std::string_view text, GuessUnit unit) {
  Comparison c;
  c.text = text;
  const auto skip = [&] {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  };
  skip();
  struct Op {
    std::string_view word;
    CompareOp op;
  };
  for (const Op& o : {Op{"<=", CompareOp::kLessEqual}, Op{">=", CompareOp::kGreaterEqual},
                      Op{"==", CompareOp::kEqual}, Op{"!=", CompareOp::kNotEqual}, Op{"<", CompareOp::kLess},
                      Op{">", CompareOp::kGreater}, Op{"=", CompareOp::kEqual}})
    if (text.starts_with(o.word)) {
      c.op = o.op;
      text.remove_prefix(o.word.size());
      break;
    }
  skip();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), c.value);
  if (error != std::errc() || !std::isfinite(c.value) || c.value < 0)
    return fail(ErrorCode::kBadInput,
                fmt::format("'{}' holds no number of 0 or more", terminal_safe(c.text, 60)));
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  skip();
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  double scale = 0;
  if (unit == GuessUnit::kCount && text.empty()) scale = 1;
  if (unit == GuessUnit::kPercent && (text == "%" || text.empty())) scale = 1;
  if (unit == GuessUnit::kTime) {
    if (text == "ns") scale = 1;
    if (text == "us" || text == "µs" || text == "μs") scale = 1e3;
    if (text == "ms") scale = 1e6;
    if (text == "s") scale = 1e9;
  }
  if (scale == 0)
    return fail(ErrorCode::kBadInput, fmt::format("'{}' has the wrong unit", terminal_safe(c.text, 60)),
                unit == GuessUnit::kTime ? "times take ns, us, ms or s" : "");
  c.value *= scale;
  return c;
}

Result<Guess> parse_guess(std::string_view toml, std::string_view source) {
  if (toml.size() > kLargestFile)
    return fail(ErrorCode::kBadInput, fmt::format("{}: {} is too large for a guess; the most is 1 MiB",
                                                  source, format_bytes(static_cast<double>(toml.size()))));
  if (const std::optional<Refused> refused = refuse_early(toml))
    return bad(source, refused->line, std::string(refused->message), std::string(refused->remedy));
  toml::parse_result parsed = toml::parse(toml, std::string(source));
  if (!parsed)
    return bad(source, static_cast<int>(parsed.error().source().begin.line),
               terminal_safe(parsed.error().description(), 200),
               "a range's name with punctuation stands in quotes: [\"aten::mm\"]");
  Guess guess;
  for (const auto& [key, node] : parsed.table()) {
    const toml::table* table = node.as_table();
    if (!table)
      return bad(source, static_cast<int>(node.source().begin.line),
                 fmt::format("'{}' stands outside a table", terminal_safe(key.str(), 60)),
                 "begin with the name of a range: [\"attn_fwd\"]");
    ATTNSCOPE_ASSIGN(GuessTable read, read_table(source, key.str(), *table));
    guess.tables.push_back(std::move(read));
  }
  std::sort(guess.tables.begin(), guess.tables.end(),
            [](const GuessTable& a, const GuessTable& b) { return a.line < b.line; });
  if (guess.tables.empty())
    return fail(ErrorCode::kBadInput, fmt::format("{} holds no guess", source),
                "begin with the name of a range: [\"attn_fwd\"]");
  return guess;
}

Result<Guess> read_guess_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(ErrorCode::kIo, fmt::format("{} cannot be opened", terminal_safe(path, 200)));
  std::string content(kLargestFile + 1, '\0');
  in.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (in.bad() || (in.fail() && !in.eof()))
    return fail(ErrorCode::kIo, fmt::format("{} cannot be read", terminal_safe(path, 200)));
  content.resize(static_cast<size_t>(in.gcount()));
  return parse_guess(content, terminal_safe(path, 200));
}

}  // namespace attnscope
