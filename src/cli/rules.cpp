// attnscope rules: the rules that explain applies, one page each, and the kinds a guess's sequence speaks of.

#include "analysis/kernel_name.h"
#include "analysis/rule.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "report/text/layout.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <ostream>

namespace attnscope::cli {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Rule& rule) {
  Json thresholds = Json::array();
  for (const Threshold& t : rule.thresholds)
    thresholds.push_back({{"name", t.name}, {"value", t.value}, {"unit", t.unit}, {"meaning", t.meaning}});
  return {{"id", rule.id},
          {"category", category_name(rule.category)},
          {"severity", severity_name(rule.severity)},
          {"summary", rule.summary},
          {"what", rule.what},
          {"why", rule.why},
          {"remedy", rule.remedy},
          {"false_positives", rule.false_positives},
          {"thresholds", thresholds}};
}

std::string list_text(size_t terminal_width) {
  size_t width = 0;
  for (const Rule* rule : rules()) width = std::max(width, rule->id.size());
  std::string text;
  RuleCategory category = RuleCategory::kAttention;
  bool first = true;
  for (const RuleCategory c : {RuleCategory::kAttention, RuleCategory::kMemory, RuleCategory::kOccupancy,
                               RuleCategory::kHost, RuleCategory::kMeasurement}) {
    for (const Rule* rule : rules()) {
      if (rule->category != c) continue;
      if (first || category != c) text += fmt::format("{}{}\n", first ? "" : "\n", category_name(c));
      first = false;
      category = c;
      text += fmt::format("  {}  {}  {}\n", pad(rule->id, width), pad(severity_name(rule->severity), 7),
                          report::wrap(rule->summary, terminal_width, width + 13, width + 13));
    }
  }
  return text +
         "\nOne rule's page: attnscope rules ID\nkinds of a guess's sequence: attnscope rules "
         "sequence-kinds\n";
}

std::string kinds_text(size_t width) {
  std::string text;
  for (const KindDescription& k : sequence_kinds())
    text += fmt::format("{}  {}\n", pad(k.name, 12), report::wrap(k.meaning, width, 14, 14));
  return text;
}

// Markdown paragraphs folded to the terminal's width; headings, tables and lists stay as they are.
std::string folded(std::string_view markdown, size_t width) {
  std::string out;
  for (std::string_view line : split(markdown, '\n')) {
    if (line.starts_with("#") || line.starts_with("|") || display_width(line) <= width) {
      out += std::string(line) + "\n";
      continue;
    }
    out += report::wrap(line, width, 0);
    out += "\n";
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

int run(Context& context, const Arguments& arguments) {
  std::string id;
  OutputFiles files;
  CLI::App app("The rules that explain applies; with an id, that rule's page.", "rules");
  app.add_option("ID", id, "a rule's id, or sequence-kinds");
  files.add_to(app, OutputFiles::kJson | OutputFiles::kMarkdown);
  if (const std::optional<int> done = parse(context, app, arguments)) return *done;
  if (const Status places = check_outputs(files.places()); !places)
    return print_error(context, places.error());

  const bool kinds = id == "sequence-kinds";
  const Rule* one = id.empty() || kinds ? nullptr : find_rule(id);
  if (!id.empty() && !kinds && !one) {
    std::vector<std::string> known = {"sequence-kinds"};
    for (const Rule* rule : rules()) known.emplace_back(rule->id);
    const std::string near = closest(id, known);
    return print_error(
        context, Error{ErrorCode::kInvalidArgument, fmt::format("there is no rule '{}'", id),
                       near.empty() ? "the list: attnscope rules" : fmt::format("did you mean '{}'?", near)});
  }
  std::string markdown;
  Json document = {{"schema", "attnscope.rules/1"}};
  if (kinds) {
    Json list = Json::array();
    for (const KindDescription& k : sequence_kinds()) {
      list.push_back({{"name", k.name}, {"meaning", k.meaning}});
      markdown += fmt::format("- `{}`: {}\n", k.name, k.meaning);
    }
    document["sequence_kinds"] = list;
  } else {
    Json list = Json::array();
    for (const Rule* rule : rules()) {
      if (one && rule != one) continue;
      list.push_back(json_of(*rule));
      markdown += (markdown.empty() ? "" : "\n") + rule_page(*rule);
    }
    document["rules"] = list;
  }
  if (!files.json.empty())
    if (const Status written = write_output(context, files.json, document.dump(2) + "\n"); !written)
      return print_error(context, written.error());
  if (!files.markdown.empty())
    if (const Status written = write_output(context, files.markdown, markdown); !written)
      return print_error(context, written.error());
  const auto width = static_cast<size_t>(context.terminal.width);
  if (!files.takes_stdout())
    print_text(context, kinds ? kinds_text(width) : one ? folded(markdown, width) : list_text(width));
  return 0;
}

}  // namespace

extern const Command rules_command;
const Command rules_command{"rules", "the rules that explain applies, one page each",
                            "attnscope rules hidden-copy", run};

}  // namespace attnscope::cli
