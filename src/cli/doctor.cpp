// attnscope doctor: what this machine and this build can do, and why they cannot do the rest.
#include "compare/device.h"
#include "compare/machine.h"

#include "attnscope/attention.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>

namespace attnscope::cli {
namespace {

constexpr const char* kExample = "attnscope doctor --json -";

struct Report {
  compare::Machine machine;
  std::vector<compare::LibraryVersion> libraries;
  std::vector<BackendInfo> backends;
  std::string cuda;
  std::string verdict;
};

std::string_view device_name(DeviceType device) {
  return device == DeviceType::kCuda ? "cuda" : "cpu";
}

Report examine() {
  Report r;
  r.machine = compare::read_machine();
  r.libraries = compare::library_versions();
  r.backends = backends();
  r.cuda = compare::cuda_state();
  const auto usable =
      std::count_if(r.backends.begin(), r.backends.end(), [](const BackendInfo& b) { return b.available; });
  r.verdict = usable > 0 ? fmt::format("{} of {} backends can run here.", usable, r.backends.size())
                         : "No backend can run here.";
  return r;
}

std::string sharing(int by) {
  return by > 1 ? fmt::format(" (shared by {})", by) : "";
}

std::string caches_text(const std::vector<compare::CacheInfo>& caches) {
  std::vector<std::string> parts;
  for (const compare::CacheInfo& c : caches) {
    const char* kind = c.type == "Data" ? "d" : c.type == "Instruction" ? "i" : "";
    const bool mib = c.bytes >= 1 << 20;
    parts.push_back(fmt::format("L{}{} {} {}{}", c.level, kind, c.bytes >> (mib ? 20 : 10),
                                mib ? "MiB" : "KiB", sharing(c.shared_by)));
  }
  return parts.empty() ? "not told by the system" : join(parts, " · ");
}

// Words in lines of at most width columns, all but the first after `indent` spaces.
std::string wrapped(const std::string& said, size_t indent, int width) {
  std::string out;
  size_t column = indent;
  for (const std::string_view word : split(said, ' ')) {
    const size_t wide = display_width(word);
    if (!out.empty() && column + 1 + wide > static_cast<size_t>(width)) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += wide;
  }
  return out;
}

std::string text_of(const Report& r, const Terminal& terminal) {
  const auto paint = [colour = terminal.colour](const char* code, const std::string& s) {
    return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, s) : s;
  };
  const compare::Machine& m = r.machine;
  std::string text =
      paint("2", "attnscope " ATTNSCOPE_VERSION " · " + m.os) + "\n" + paint("1", r.verdict) + "\n\n";
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{}  {}\n", pad(name, 9), value);
  };
  line("CPU", fmt::format("{}, {} processors, {} usable threads ({})", m.cpu, m.processors, m.usable_threads,
                          m.architecture));
  line("ISA", m.isa.empty() ? "portable code only" : join(m.isa, " · "));
  line("caches", caches_text(m.caches));
  line("memory",
       fmt::format("{}, {} available to this process", format_bytes(static_cast<double>(m.memory_bytes)),
                   format_bytes(static_cast<double>(m.available_bytes))));
  line("CUDA", r.cuda);
  std::vector<std::string> versions;
  versions.reserve(r.libraries.size());
  for (const compare::LibraryVersion& l : r.libraries) versions.push_back(l.name + " " + l.version);
  for (size_t i = 0; i < versions.size(); i += 4)
    line(i == 0 ? "libraries" : "",
         join(std::span(versions).subspan(i, std::min<size_t>(4, versions.size() - i)), " · "));
  text += "\n" + paint("1", "Backends") + ", in order of preference\n";
  size_t name_width = 4;
  for (const BackendInfo& b : r.backends) name_width = std::max(name_width, display_width(b.name));
  for (const BackendInfo& b : r.backends) {
    const std::string state = b.available ? paint("32", "yes") : paint("31", "no ");
    const std::string said = b.available ? b.description : terminal_safe(b.why_not);
    text += fmt::format(" {}  {}  {}  {}\n", state, pad(device_name(b.device), 4), pad(b.name, name_width),
                        wrapped(said, 13 + name_width, terminal.width));
  }
  return text + "Next: attnscope compare\n";
}

std::string json_of(const Report& r) {
  using Json = nlohmann::ordered_json;
  Json caches = Json::array(), libraries = Json::array(), list = Json::array();
  for (const compare::CacheInfo& c : r.machine.caches)
    caches.push_back({{"level", c.level}, {"type", c.type}, {"bytes", c.bytes}, {"shared_by", c.shared_by}});
  for (const compare::LibraryVersion& l : r.libraries)
    libraries.push_back({{"name", l.name}, {"version", l.version}});
  for (const BackendInfo& b : r.backends)
    list.push_back({{"name", b.name},
                    {"device", device_name(b.device)},
                    {"description", b.description},
                    {"available", b.available},
                    {"why_not", b.available ? Json(nullptr) : Json(b.why_not)}});
  const compare::Machine& m = r.machine;
  const Json document{{"schema", "attnscope.doctor/1"},
                      {"tool", {{"name", "attnscope"}, {"version", ATTNSCOPE_VERSION}}},
                      {"machine",
                       {{"os", m.os},
                        {"cpu", m.cpu},
                        {"architecture", m.architecture},
                        {"processors", m.processors},
                        {"usable_threads", m.usable_threads},
                        {"isa", m.isa},
                        {"caches", caches},
                        {"memory_bytes", m.memory_bytes},
                        {"available_bytes", m.available_bytes}}},
                      {"cuda", r.cuda},
                      {"libraries", libraries},
                      {"backends", list}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run(Context& context, const Arguments& arguments) {
  CLI::App app("Show what this machine and this build can do, and why not the rest.", "doctor");
  OutputFiles files;
  files.add_to(app, OutputFiles::kJson);
  if (const auto code = parse(context, app, arguments)) return *code;
  if (const Status places = check_outputs(files.places()); !places)
    return print_error(context, places.error());
  const Report report = examine();
  if (!files.json.empty())
    if (const Status written = write_output(context, files.json, json_of(report)); !written)
      return print_error(context, written.error());
  if (!files.takes_stdout()) print_text(context, text_of(report, context.terminal));
  const bool any = std::any_of(report.backends.begin(), report.backends.end(),
                               [](const BackendInfo& b) { return b.available; });
  return any ? 0 : 4;
}

}  // namespace

extern const Command doctor_command;
const Command doctor_command{"doctor", "Show what this machine and build can do, and why not", kExample, run};

}  // namespace attnscope::cli
