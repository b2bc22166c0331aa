// attnscope verify: correctness cases on every backend that accepts them. Without files the set in the
// binary: a self-test after a driver or library upgrade.
#include "verify/runner.h"

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <ostream>

namespace attnscope::cli {
namespace {

using verify::BackendResult;
using verify::CaseResult;
using verify::Outcome;

constexpr const char* kExample = "attnscope verify --backends flash,efficient --json verify.json";

struct VerifyArguments {
  std::vector<std::string> files, only;
  std::string backends, device = "cpu";
  bool large = false, all = false;
  OutputFiles output;
};

const char* outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk: return "ok";
    case Outcome::kRefused: return "refused";
    case Outcome::kDeviates: return "deviates";
    case Outcome::kFailed: return "FAILED";
  }
  return "?";
}

Result<std::vector<verify::Case>> load(const std::vector<std::string>& files) {
  if (files.empty()) return verify::parse_cases(verify::builtin_cases(), "the built-in set");
  std::vector<verify::Case> all;
  for (const std::string& file : files) {
    std::error_code error;
    std::ifstream stream(file, std::ios::binary);
    if (!stream || std::filesystem::is_directory(file, error))
      return fail(ErrorCode::kIo, fmt::format("cannot read {}", terminal_safe(file)),
                  "name a file of cases (JSON lines), or none for the built-in set");
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    ATTNSCOPE_ASSIGN(auto cases, verify::parse_cases(text, terminal_safe(file)));
    if (cases.empty())
      return fail(ErrorCode::kBadInput, fmt::format("{} holds no case", terminal_safe(file)),
                  "a case is one line of JSON: tests/cases/README.md");
    std::move(cases.begin(), cases.end(), std::back_inserter(all));
  }
  return all;
}

// Per backend: how many cases ended how.
using Tally = std::map<std::string, std::map<Outcome, int>>;

Tally tally_of(const std::vector<CaseResult>& results) {
  Tally tally;
  for (const CaseResult& r : results)
    for (const BackendResult& b : r.backends) ++tally[b.backend][b.outcome];
  return tally;
}

struct Totals {
  int ran = 0, failed = 0, skipped = 0, backward = 0;
};
Totals totals_of(const std::vector<CaseResult>& results) {
  Totals t;
  for (const CaseResult& r : results) {
    ++(r.skipped.empty() ? t.ran : t.skipped);
    t.failed += r.failed() ? 1 : 0;
    t.backward += r.skipped.empty() && r.needs_backward ? 1 : 0;
  }
  return t;
}

std::string render_text(const std::vector<CaseResult>& results, bool all) {
  const Totals t = totals_of(results);
  std::string text = t.failed == 0 ? fmt::format("Right: {} cases ran, none failed.\n", t.ran)
                                   : fmt::format("WRONG: {} of {} cases failed.\n", t.failed, t.ran);
  if (t.backward > 0)
    text += fmt::format(
        "{} of them also concern gradients: their forward part ran, backward is not checked yet.\n",
        t.backward);
  text += "\nbackend          ok  refused  deviates  failed\n";
  for (auto& [backend, counts] : tally_of(results)) {
    const auto count = [&counts = counts](Outcome o) {
      const auto it = counts.find(o);
      return it == counts.end() ? 0 : it->second;
    };
    text += fmt::format("{} {:>6} {:>8} {:>9} {:>7}\n", pad(backend, 12), count(Outcome::kOk),
                        count(Outcome::kRefused), count(Outcome::kDeviates), count(Outcome::kFailed));
  }
  const auto section = [&](const char* title, Outcome outcome) {
    std::string lines;
    for (const CaseResult& r : results)
      for (const BackendResult& b : r.backends)
        if (b.outcome == outcome)
          lines += fmt::format("  {} {} {}{}\n", pad(r.id, 14), pad(b.backend, 10),
                               b.code.empty() ? "" : b.code + ": ", terminal_safe(b.detail));
    if (!lines.empty()) text += fmt::format("\n{}\n{}", title, lines);
  };
  section("Failed", Outcome::kFailed);
  section("Known to deviate", Outcome::kDeviates);
  if (all) section("Refused", Outcome::kRefused);
  std::string skipped;
  for (const CaseResult& r : results)
    if (!r.skipped.empty()) skipped += fmt::format("  {} {}\n", pad(r.id, 14), terminal_safe(r.skipped));
  if (!skipped.empty()) text += fmt::format("\nNot run ({})\n{}", t.skipped, skipped);
  if (all) {
    text += "\nEvery case\n";
    for (const CaseResult& r : results) {
      if (!r.skipped.empty()) continue;
      std::string line;
      for (const BackendResult& b : r.backends)
        line += fmt::format("  {} {}", b.backend, outcome_name(b.outcome));
      text += fmt::format("  {} {}\n  {}{}\n", pad(r.id, 14), terminal_safe(r.fault), pad("", 13), line);
    }
  } else {
    text += "\nEvery case and every refusal: attnscope verify --all\n";
  }
  return text;
}

std::string render_json(const std::vector<CaseResult>& results, const std::string& device) {
  const Totals t = totals_of(results);
  nlohmann::ordered_json j{{"schema", "attnscope.verify/1"},
                           {"device", device},
                           {"ran", t.ran},
                           {"failed", t.failed},
                           {"skipped", t.skipped},
                           {"needs_backward", t.backward}};
  j["cases"] = nlohmann::ordered_json::array();
  for (const CaseResult& r : results) {
    nlohmann::ordered_json one{
        {"id", r.id}, {"source", r.source}, {"fault", r.fault}, {"needs_backward", r.needs_backward}};
    one["skipped"] = r.skipped.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(r.skipped);
    one["backends"] = nlohmann::ordered_json::array();
    for (const BackendResult& b : r.backends) {
      std::string outcome = outcome_name(b.outcome);
      std::transform(outcome.begin(), outcome.end(), outcome.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      one["backends"].push_back(
          {{"name", b.backend}, {"outcome", outcome}, {"code", b.code}, {"detail", b.detail}});
    }
    j["cases"].push_back(std::move(one));
  }
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run_verify(Context& context, const Arguments& arguments) {
  VerifyArguments a;
  CLI::App app("Runs correctness cases on every backend that accepts them; exit code 1 when one is wrong.",
               "verify");
  app.add_option("files", a.files,
                 "case files (JSON lines; format: tests/cases/README.md); none: the built-in set");
  app.add_option("--backends", a.backends, "only these, comma-separated");
  app.add_option("--device", a.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--case", a.only, "only the cases with these ids");
  app.add_flag("--large", a.large, "also the cases that take gigabytes or minutes");
  app.add_flag("--all", a.all, "list every case and every refusal");
  a.output.add_to(app, OutputFiles::kJson);
  if (const auto code = parse(context, app, arguments)) return *code;
  if (const Status places = check_outputs(a.output.places(), a.files); !places)
    return print_error(context, places.error());

  verify::Options options;
  options.large = a.large;
  options.device = a.device == "cuda" ? DeviceType::kCuda : DeviceType::kCpu;
  if (!a.backends.empty())
    for (const std::string_view name : split(a.backends, ',')) options.backends.emplace_back(name);
  if (const Status status = verify::check_options(options); !status)
    return print_error(context, status.error());
  auto cases = load(a.files);
  if (!cases) return print_error(context, cases.error());
  for (const std::string& id : a.only)
    if (std::none_of(cases->begin(), cases->end(), [&](const verify::Case& c) { return c.id == id; }))
      return print_error(context,
                         Error{ErrorCode::kInvalidArgument, fmt::format("no case '{}'", terminal_safe(id)),
                               "attnscope verify --all lists the ids"});

  std::vector<CaseResult> results;
  for (const verify::Case& c : *cases) {
    if (!a.only.empty() && std::find(a.only.begin(), a.only.end(), c.id) == a.only.end()) continue;
    if (context.terminal.live) context.err << fmt::format("\r\033[K{}", terminal_safe(c.id)) << std::flush;
    results.push_back(verify::run_case(c, options));
  }
  if (context.terminal.live) context.err << "\r\033[K" << std::flush;
  if (!a.output.takes_stdout()) print_text(context, render_text(results, a.all));
  if (!a.output.json.empty())
    if (const Status status = write_output(context, a.output.json, render_json(results, a.device)); !status)
      return print_error(context, status.error());
  return totals_of(results).failed > 0 ? 1 : 0;
}

}  // namespace

extern const Command verify_command;
const Command verify_command{
    "verify",
    "Run the corpus of reported faults on every backend: a self-test after an upgrade",
    kExample,
    run_verify,
};

}  // namespace attnscope::cli
