// The guess that a trace fulfils.

#include "analysis/check.h"
#include "analysis/check_subject.h"
#include "base/text.h"
#include "base/total.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace attnscope {
namespace {

constexpr size_t kMostSubjects = 24;
constexpr size_t kLongestSequence = 40;

// The code point at the start of valid UTF-8, and its bytes.
std::pair<char32_t, size_t> first_code_point(std::string_view s) {
  const auto lead = static_cast<unsigned char>(s[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t code = lead & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(s[i]) & 0x3fu);
  return {code, length};
}

// A basic TOML string; what a terminal or an editor would not show stands as its number. Names that are no
// valid UTF-8 cannot be written; the caller leaves them out.
std::string quoted(std::string_view name) {
  std::string out = "\"";
  while (!name.empty()) {
    const auto [code, length] = first_code_point(name);
    const std::string_view text = name.substr(0, length);
    if (code == '"' || code == '\\')
      out += std::string("\\") += text;
    else if (terminal_safe(text) != text)
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(code));
    else
      out += text;
    name.remove_prefix(length);
  }
  return out + '"';
}

bool valid_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    const size_t more = c < 0x80                ? 0
                        : c >= 0xc2 && c < 0xe0 ? 1
                        : c >= 0xe0 && c < 0xf0 ? 2
                        : c >= 0xf0 && c < 0xf5 ? 3
                                                : 4;
    if (more == 4 || i + more >= s.size()) return false;
    for (size_t k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(s[i + k]) & 0xc0) != 0x80) return false;
    const auto second = more > 0 ? static_cast<unsigned char>(s[i + 1]) : 0;
    if ((c == 0xe0 && second < 0xa0) || (c == 0xed && second > 0x9f) || (c == 0xf0 && second < 0x90) ||
        (c == 0xf4 && second > 0x8f))
      return false;
    i += more + 1;
  }
  return true;
}

bool is_step(std::string_view name) {
  return name.starts_with("ProfilerStep#");
}

// The names to guess about: the user's ranges, attention operators, else the costliest operators.
std::vector<std::string> subjects_of(const RuleFacts& facts) {
  const Metrics& m = facts.metrics();
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (name.empty() || name.size() > 500 || !valid_utf8(name) || names.size() >= kMostSubjects) return;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const RangeStats& range : m.ranges) {
    const std::string_view name = facts.trace().text(range.name);
    if (range.cls == trace::EventClass::kUserRange && !is_step(name) && range.process.device_ns > 0)
      add(name);
  }
  for (const AttentionCall& call : m.attention_calls)
    if (!call.bare_kernel && !call.hand_written) add(call.op);
  if (!names.empty()) return names;
  std::vector<const RangeStats*> costly;
  for (const RangeStats& range : m.ranges)
    if (range.cls == trace::EventClass::kOperator || range.cls == trace::EventClass::kUserRange)
      costly.push_back(&range);
  std::stable_sort(costly.begin(), costly.end(), [](const RangeStats* a, const RangeStats* b) {
    if (a->process.device_ns != b->process.device_ns) return a->process.device_ns > b->process.device_ns;
    return a->host_ns > b->host_ns;
  });
  for (size_t i = 0; i < costly.size() && i < 5; ++i) add(facts.trace().text(costly[i]->name));
  return names;
}

// "kernels = 5", or the total when the calls differ.
std::string count_line(const GuessedCalls& found, std::string_view key, int64_t GuessedCall::* member) {
  Total total;
  bool same = true;
  for (const GuessedCall& call : found.calls) {
    total += call.*member;
    same &= call.*member == found.calls.front().*member;
  }
  return same ? fmt::format("{} = {}\n", key, found.calls.front().*member)
              : fmt::format("{}_total = {}\n", key, total);
}

// A quarter above what was seen, to two digits.
std::string time_line(std::string_view key, int64_t ns) {
  const double us_limit = us(ns) * 1.25;
  if (us_limit <= 0) return {};
  const double step = std::pow(10.0, std::floor(std::log10(us_limit)) - 1);
  return fmt::format("{} = \"<= {:g} us\"\n", key, std::ceil(us_limit / step) * step);
}

std::string sequence_line(const GuessedCalls& found) {
  const std::vector<KernelKind> first = sequence_of(found.calls.front());
  if (first.empty() || first.size() > kLongestSequence) return {};
  for (const GuessedCall& call : found.calls)
    if (sequence_of(call) != first) return {};
  std::string text;
  for (KernelKind kind : first) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", kind_name(kind));
  return fmt::format("sequence = [{}]\n", text);
}

std::string write_subject(const RuleFacts& facts, const WorkByLaunch& work, const std::string& name) {
  GuessTable table;
  table.name = name;
  const GuessedCalls found = find_calls(facts, work, table);
  if (found.calls.empty()) return {};
  std::string text = fmt::format("[{}]\n", quoted(name));
  text += count_line(found, "kernels", &GuessedCall::kernels);
  text += count_line(found, "copies", &GuessedCall::copies);
  text += count_line(found, "fills", &GuessedCall::fills);
  text += sequence_line(found);
  if (const Named backends = backends_of(facts, found); backends.names.size() == 1)
    text += fmt::format("backend = \"{}\"\n", backends.names.front());
  if (const UnitCount units = tensor_core_use(found); units.known > 0 && units.unknown == 0) {
    if (units.off.empty()) text += "tensor_cores = true\n";
    if (units.on.empty()) text += "tensor_cores = false\n";
  }
  static constexpr std::string_view kWritable[] = {"f64", "f32", "tf32", "f16", "bf16", "f8", "f4", "i8"};
  if (const Named dtypes = dtypes_of(facts, found); dtypes.names.size() == 1)
    if (std::find(std::begin(kWritable), std::end(kWritable), dtypes.names.front()) != std::end(kWritable))
      text += fmt::format("dtype = \"{}\"\n", dtypes.names.front());
  text += time_line("device_time", found.median_device_ns());
  text += time_line("host_time", found.median_host_ns());
  if (const OccupancyRange range = occupancy_of(facts, found); range.known > 0)
    text += fmt::format("occupancy = \">= {:g} %\"\n", std::floor(range.least));
  return text + "\n";
}

}  // namespace

Result<std::string> write_guess(const Metrics& metrics) {
  const RuleFacts facts(metrics);
  const WorkByLaunch work(facts);
  const std::string head =
      "# What this trace shows, as a guess to hold later ones against. Figures are per call; times are a "
      "quarter\n"
      "# above the median seen here. Delete what does not matter.\n\n";
  std::string text;
  for (const std::string& name : subjects_of(facts)) text += write_subject(facts, work, name);
  if (text.empty())
    return fail(
        ErrorCode::kBadInput, "the trace holds no range or operator that a guess could be about",
        "record operators too (ProfilerActivity.CPU), or mark the code with record_function(\"name\")");
  return head + text;
}

}  // namespace attnscope
