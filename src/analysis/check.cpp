#include "analysis/check.h"

#include "analysis/check_subject.h"
#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace attnscope {

using trace::EventIndex;
using trace::kNoEvent;

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHeld: return "held";
    case Verdict::kBroken: return "broken";
    case Verdict::kUnknown: return "unknown";
  }
  return "unknown";
}

namespace {

constexpr size_t kMostEvidence = 16;

void cite(const RuleFacts& facts, CheckLine& line, std::span<const EventIndex> events) {
  line.evidence_total += events.size();
  for (EventIndex e : events)
    if (line.evidence.size() < kMostEvidence) line.evidence.push_back(facts.evidence(e));
}

trace::EventClass class_of(GuessKey key) {
  return key == GuessKey::kCopies  ? trace::EventClass::kMemcpy
         : key == GuessKey::kFills ? trace::EventClass::kMemset
                                   : trace::EventClass::kKernel;
}

bool is_of(const Work& work, GuessKey key) {
  const bool transfer = work.cls == trace::EventClass::kMemcpy || work.cls == trace::EventClass::kMemset;
  return key == GuessKey::kKernels ? !transfer : work.cls == class_of(key);
}

int64_t count_of(const GuessedCall& call, GuessKey key) {
  return key == GuessKey::kCopies ? call.copies : key == GuessKey::kFills ? call.fills : call.kernels;
}

// "Memcpy DtoD, 268,435,456 B, under aten::masked_fill > aten::clone" or "softmax under aten::softmax".
std::string describe_event(const RuleFacts& facts, const Work& work) {
  const Above above = facts.above(work.event);
  std::string text;
  if (work.cls == trace::EventClass::kMemcpy || work.cls == trace::EventClass::kMemset) {
    text = terminal_safe(facts.trace().name(work.event), 60);
    if (const size_t paren = text.find(" ("); paren != std::string::npos) text.resize(paren);
    if (const int64_t bytes = facts.trace().copy(work.event).bytes; bytes >= 0)
      text += ", " + group_digits(bytes) + " B";
  } else {
    text = terminal_safe(short_kernel_name(*work.name), 60);
  }
  std::string path;
  for (auto op = above.operators.rbegin(); op != above.operators.rend(); ++op) {
    if (facts.trace().name(*op) == "aten::copy_" && !path.empty()) break;  // every copy ends there
    path += (path.empty() ? "" : " > ") + terminal_safe(facts.trace().name(*op), 60);
  }
  return path.empty() ? text : text + ", under " + path;
}

// "5 per call × 3 calls", "4 to 6 per call, 3 calls".
std::string count_text(int64_t least, int64_t most, size_t calls) {
  if (least == most) return fmt::format("{} per call × {}", group_digits(least), counted(calls, "call"));
  return fmt::format("{} to {} per call, {}", group_digits(least), group_digits(most),
                     counted(calls, "call"));
}

void check_count(const RuleFacts& facts, const GuessedCalls& found, const Expectation& e, CheckLine& line) {
  const auto& wanted = std::get<Comparison>(e.value);
  int64_t least = INT64_MAX, most = 0, total = 0;
  const GuessedCall* wrong = nullptr;
  for (const GuessedCall& call : found.calls) {
    const int64_t n = count_of(call, e.key);
    least = std::min(least, n);
    most = std::max(most, n);
    total += n;
    if (!e.total && !wanted.holds(static_cast<double>(n)) && !wrong) wrong = &call;
  }
  const bool held = e.total ? wanted.holds(static_cast<double>(total)) : wrong == nullptr;
  line.verdict = held ? Verdict::kHeld : Verdict::kBroken;
  line.seen = e.total ? fmt::format("{} in {}", group_digits(total), counted(found.calls.size(), "call"))
                      : count_text(least, most, found.calls.size());
  if (held) return;
  // Work that should not be there is shown from every call; otherwise what the first wrong call holds.
  const bool none_wanted = wanted.op == CompareOp::kEqual && wanted.value == 0;
  std::vector<EventIndex> events;
  const Work* example = nullptr;
  for (const GuessedCall& call : found.calls) {
    if (!none_wanted && !e.total && &call != wrong) continue;
    for (const Work& work : call.work) {
      if (!is_of(work, e.key)) continue;
      events.push_back(work.event);
      if (!example) example = &work;
    }
  }
  if (none_wanted && example) line.seen += ": " + describe_event(facts, *example);
  cite(facts, line, events);
}

void check_time(const RuleFacts& facts, const GuessedCalls& found, const Expectation& e, CheckLine& line) {
  const auto& wanted = std::get<Comparison>(e.value);
  const bool host = e.key == GuessKey::kHostTime;
  Total total;
  int64_t least = INT64_MAX, most = 0;
  EventIndex slowest = kNoEvent;
  for (const GuessedCall& call : found.calls) {
    const int64_t ns = host ? call.host_ns : int64_t{call.device_ns};
    least = std::min(least, ns);
    if (ns >= most) slowest = call.event;
    most = std::max(most, ns);
    total += ns;
  }
  const int64_t seen = e.total ? int64_t{total} : host ? found.median_host_ns() : found.median_device_ns();
  line.verdict = wanted.holds(static_cast<double>(seen)) ? Verdict::kHeld : Verdict::kBroken;
  line.seen =
      e.total ? fmt::format("{} in {}", format_time_us(us(total)), counted(found.calls.size(), "call"))
              : fmt::format("median {} ({} to {}), {}", format_time_us(us(seen)), format_time_us(us(least)),
                            format_time_us(us(most)), counted(found.calls.size(), "call"));
  if (line.verdict == Verdict::kBroken && slowest != kNoEvent) cite(facts, line, std::span(&slowest, 1));
}

std::string kinds_text(const std::vector<KernelKind>& kinds) {
  std::string text;
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (i == 24) return text + fmt::format(", … ({} in all)", kinds.size());
    text += (i == 0 ? "" : ", ") + std::string(kind_name(kinds[i]));
  }
  return text.empty() ? "no kernels" : text;
}

void check_sequence(const RuleFacts& facts, const GuessedCalls& found, const Expectation& e,
                    CheckLine& line) {
  const auto& wanted = std::get<std::vector<KernelKind>>(e.value);
  for (const GuessedCall& call : found.calls) {
    const std::vector<KernelKind> seen = sequence_of(call);
    if (seen == wanted) continue;
    line.verdict = Verdict::kBroken;
    line.seen = kinds_text(seen);
    // The kernel at which they part.
    const auto differ = static_cast<size_t>(
        std::mismatch(seen.begin(), seen.end(), wanted.begin(), wanted.end()).first - seen.begin());
    size_t at = 0;
    for (const Work& work : call.work) {
      if (!is_of(work, GuessKey::kKernels)) continue;
      if (at++ != differ) continue;
      line.seen += fmt::format("; parts at kernel {}: {}", differ + 1, describe_event(facts, work));
      cite(facts, line, std::span(&work.event, 1));
    }
    return;
  }
  line.seen = fmt::format("the same in {}", counted(found.calls.size(), "call"));
}

void check_units(const RuleFacts& facts, const GuessedCalls& found, const Expectation& e, CheckLine& line) {
  const bool wanted = std::get<bool>(e.value);
  const UnitCount count = tensor_core_use(found);
  if (count.known == 0) {
    line.verdict = Verdict::kUnknown;
    line.seen = count.unknown > 0 ? "no product's name says which unit it ran on"
                                  : "no matrix product or attention kernel";
    return;
  }
  line.seen = fmt::format("{} of {} products on tensor cores ({})", count.on_tensor_cores, count.known,
                          terminal_safe(count.example, 60));
  const std::vector<EventIndex>& against = wanted ? count.off : count.on;
  if (!against.empty()) {
    line.verdict = Verdict::kBroken;
    cite(facts, line, against);
  } else if (count.unknown > 0) {
    line.verdict = Verdict::kUnknown;
    line.seen += fmt::format(", {} more not known", count.unknown);
  }
}

void check_name(const RuleFacts& facts, const Named& named, const Expectation& e, std::string_view nothing,
                CheckLine& line) {
  const auto& wanted = std::get<std::string>(e.value);
  if (named.names.empty()) {
    line.verdict = Verdict::kUnknown;
    line.seen = nothing;
    return;
  }
  line.seen = fmt::format("{}", fmt::join(named.names, ", "));
  for (size_t i = 0; i < named.names.size(); ++i) {
    if (named.names[i] == wanted) continue;
    line.verdict = Verdict::kBroken;
    cite(facts, line, named.events[i]);
  }
}

void check_occupancy(const RuleFacts& facts, const GuessedCalls& found, const Expectation& e,
                     CheckLine& line) {
  const auto& wanted = std::get<Comparison>(e.value);
  const OccupancyRange range = occupancy_of(facts, found);
  if (range.known == 0) {
    line.verdict = Verdict::kUnknown;
    line.seen = "the trace does not record the kernels' registers and blocks";
    return;
  }
  std::vector<EventIndex> against;
  for (const auto& [percent, event] : range.kernels)
    if (!wanted.holds(percent)) against.push_back(event);
  line.verdict = against.empty() ? Verdict::kHeld : Verdict::kBroken;
  line.seen = range.least == range.most
                  ? format_percent(range.least)
                  : fmt::format("{} to {}", format_percent(range.least), format_percent(range.most));
  line.seen += fmt::format(" in {}", counted(range.known, "kernel"));
  cite(facts, line, against);
}

CheckLine check_line(const RuleFacts& facts, const GuessedCalls& found, const Expectation& e) {
  CheckLine line;
  line.key = e.name;
  line.text = e.text;
  line.line = e.line;
  switch (e.key) {
    case GuessKey::kKernels:
    case GuessKey::kCopies:
    case GuessKey::kFills: check_count(facts, found, e, line); break;
    case GuessKey::kDeviceTime:
    case GuessKey::kHostTime: check_time(facts, found, e, line); break;
    case GuessKey::kSequence: check_sequence(facts, found, e, line); break;
    case GuessKey::kTensorCores: check_units(facts, found, e, line); break;
    case GuessKey::kDtype:
      check_name(facts, dtypes_of(facts, found), e, "no product or attention kernel whose dtype is known",
                 line);
      break;
    case GuessKey::kBackend:
      check_name(facts, backends_of(facts, found), e, "no attention call", line);
      break;
    case GuessKey::kOccupancy: check_occupancy(facts, found, e, line); break;
  }
  return line;
}

// Nothing of that name: what is near, or what there is.
CheckLine missing_line(const RuleFacts& facts, const GuessTable& table) {
  CheckLine line;
  line.key = "name";
  line.text = table.name;
  line.line = table.line;
  line.verdict = Verdict::kBroken;
  std::vector<std::string> names, ranges;
  for (const RangeStats& range : facts.metrics().ranges) {
    names.push_back(terminal_safe(facts.trace().text(range.name), 80));
    if (range.cls == trace::EventClass::kUserRange && ranges.size() < 8) ranges.push_back(names.back());
  }
  line.seen =
      table.pattern ? "no range or operator matches this pattern" : "no range or operator of this name";
  if (const std::string near = closest(table.name, names); !near.empty())
    line.seen += fmt::format("; did you mean '{}'?", near);
  else if (!ranges.empty())
    line.seen += fmt::format("; ranges of this trace: {}", fmt::join(ranges, ", "));
  return line;
}

// In a file that was cut, what holds may hold only because the rest is missing.
void doubt(std::vector<CheckLine>& lines) {
  for (CheckLine& line : lines) {
    if (line.verdict != Verdict::kHeld) continue;
    line.verdict = Verdict::kUnknown;
    line.seen += " (the file is cut: later events are missing)";
  }
}

}  // namespace

CheckReport check_guess(const Metrics& metrics, const Guess& guess) {
  const RuleFacts facts(metrics);
  const WorkByLaunch work(facts);
  CheckReport report;
  for (const GuessTable& table : guess.tables) {
    CheckSubject subject;
    subject.name = table.name;
    const GuessedCalls found = find_calls(facts, work, table);
    subject.calls = found.calls.size();
    if (found.calls.empty()) {
      subject.lines.push_back(missing_line(facts, table));
    } else {
      for (const Expectation& e : table.expectations) subject.lines.push_back(check_line(facts, found, e));
    }
    if (metrics.trace->truncated()) doubt(subject.lines);
    for (const CheckLine& line : subject.lines)
      (line.verdict == Verdict::kHeld     ? report.held
       : line.verdict == Verdict::kBroken ? report.broken
                                          : report.unknown) += 1;
    report.subjects.push_back(std::move(subject));
  }
  return report;
}

}  // namespace attnscope
