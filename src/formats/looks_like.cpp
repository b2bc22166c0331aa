#include "formats/looks_like.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnscope::formats {
namespace {

struct Signature {
  std::string_view first, second;  // members that must both be there; second may be empty
  std::string_view what;
};
constexpr Signature kSignatures[] = {
    {"schema", "nodes",
     "a PyTorch execution trace (Chakra): the graph without times; export_chrome_trace() writes "
     "the one with times"},
    {"$schema", "profiles", "a speedscope profile: sampled stacks without device work"},
    {"segments", "device_traces", "a PyTorch memory snapshot: open it at pytorch.org/memory_viz"},
    {"nodes", "samples", "a V8 CPU profile: sampled stacks without device work"},
    {"cells", "nbformat", "a Jupyter notebook"},
    {"resourceSpans", "", "an OpenTelemetry export"},
    {"metadata", "weight_map", "an index of safetensors weights"},
    {"benchmarks", "context", "a Google Benchmark result"},
    {"model_type", "", "a model configuration"},
    {"architectures", "", "a model configuration"},
};

std::string member_list(const JsonShape& shape) {
  std::string out;
  for (size_t i = 0; i < shape.members.size() && i < 5; ++i)
    out += (i ? ", " : "") + terminal_safe(shape.members[i].first, 40);
  if (shape.members.size() > 5) out += ", …";
  return out;
}

std::string_view unquoted(std::string_view text) {
  return text.size() > 1 && text.front() == '"' && text.back() == '"' ? text.substr(1, text.size() - 2)
                                                                      : text;
}

// Of a JSON value by its first byte.
std::string_view kind_of(std::string_view value) {
  if (value.empty()) return "nothing";
  switch (value.front()) {
    case '{': return "an object";
    case '"': return "a string";
    case '[': return "a second list";
    case 'n': return "null";
    default: return "a single value";
  }
}

std::string describe_array(const JsonShape& shape) {
  const std::string& first = shape.first_entry;
  if (first.empty() || first[0] == ']') return "it is an empty list";
  if (first[0] == '[') {
    const size_t inner = first.find_first_not_of(" \t\r\n", 1);
    const bool numbers =
        inner != std::string::npos && (first[inner] == '-' || (first[inner] >= '0' && first[inner] <= '9'));
    return numbers ? "it is a list of number lists, like torch.profiler's memory timeline "
                     "(export_memory_timeline)"
                   : "it is a list of lists";
  }
  if (first[0] == '{')
    return "it is a list of objects, and none of the first thousand has a phase (\"ph\") as events have";
  return "it is a plain list of values";
}

}  // namespace

std::string describe_json(const JsonShape& shape) {
  if (shape.is_array) return describe_array(shape);
  if (shape.has_events) return "its traceEvents hold no event";
  for (const auto& [key, value] : shape.members)
    if (key == "schema" && value.find("attnscope.") != std::string::npos)
      return fmt::format("it is a result of attnscope itself ({}){}", terminal_safe(unquoted(value)),
                         value.find("attnscope.compare/") != std::string::npos
                             ? "; `attnscope diff` reads two of those"
                             : ", not the trace it was made from");
  for (const auto& [key, value] : shape.members)
    if (key == "traceEvents") return fmt::format("its traceEvents is {}, not a list", kind_of(value));
  for (const Signature& s : kSignatures)
    if (shape.has_member(s.first) && (s.second.empty() || shape.has_member(s.second)))
      return fmt::format("it looks like {}", s.what);
  if (shape.members.empty()) return "it is an empty JSON object";
  return fmt::format("it is a JSON object with {}, but without traceEvents", member_list(shape));
}

std::string describe_bytes(std::string_view start) {
  const auto begins = [&](std::string_view magic) { return start.substr(0, magic.size()) == magic; };
  if (begins("\x7f"
             "ELF"))
    return "it is an ELF program or library";
  if (begins("PK\x03\x04")) return "it is a zip archive; unpack it first";
  if (begins("SQLite format 3")) return "it is an SQLite database, as Nsight Systems exports";
  if (begins("\x89PNG")) return "it is a picture";
  if (begins("%PDF")) return "it is a PDF";
  if (begins("BZh")) return "it is bzip2; unpack it first";
  if (begins("\xFD"
             "7zXZ"))
    return "it is xz; unpack it first";
  if (begins("\x80")) return "it looks like a Python pickle";
  if (begins("\x1f\x8b") || begins("\x28\xb5\x2f\xfd")) return "it was compressed twice; unpack it once";
  if (begins("<!DOCTYPE") || begins("<html") || begins("<HTML"))
    return "it is a web page; the download probably failed";
  if (begins("version https://git-lfs"))
    return "it is a Git LFS pointer; fetch the file itself (git lfs pull)";
  if (begins("\x0a") && start.size() > 2 && static_cast<unsigned char>(start[2]) < ' ')
    return "it may be a Perfetto protobuf trace, which is not read";
  start.remove_prefix(std::min(start.find_first_not_of(" \t\r\n"), start.size()));
  const std::string_view first_line = start.substr(0, std::min(start.find('\n'), size_t{60}));
  const bool text = std::all_of(first_line.begin(), first_line.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\t' || c == '\r';
  });
  if (!text) return "it is binary data";
  return fmt::format("it starts with \"{}\"", terminal_safe(first_line, 60));
}

}  // namespace attnscope::formats
