// The rules on their fixtures (tests/analysis/rules/<id>), and what must be true of every declaration.
#include "analysis/rule.h"

#include "formats/chrome/reader.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

namespace attnscope {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// A fixture: a trace with its metrics, and what its rule must make of it.
struct Fixture {
  std::string text;
  nlohmann::json expect;
  std::unique_ptr<trace::Trace> trace;
  std::unique_ptr<trace::Links> links;
  std::unique_ptr<Metrics> metrics;
};

Fixture load(std::string_view rule, std::string_view which) {
  Fixture f;
  f.text = read_text(std::filesystem::path(ATTNSCOPE_SOURCE_DIR) / "tests/analysis/rules" / rule /
                     (std::string(which) + ".json"));
  f.expect = nlohmann::json::parse(f.text, nullptr, false).value("expect", nlohmann::json::object());
  Result<trace::Trace> read = formats::chrome::read_memory(f.text);
  if (!read) return f;
  f.trace = std::make_unique<trace::Trace>(std::move(*read));
  f.links = std::make_unique<trace::Links>(trace::Links::build(*f.trace));
  f.metrics = std::make_unique<Metrics>(compute_metrics(*f.trace, *f.links));
  return f;
}

RuleReport run_one(const Fixture& f, const Rule& rule, std::vector<ThresholdValue> thresholds = {}) {
  RuleOptions options;
  options.only = {std::string(rule.id)};
  options.thresholds = std::move(thresholds);
  return run_rules(*f.metrics, options);
}

std::vector<std::string> rule_ids() {
  std::vector<std::string> ids;
  for (const Rule* rule : rules()) ids.emplace_back(rule->id);
  return ids;
}

class EveryRule : public testing::TestWithParam<std::string> {};

TEST_P(EveryRule, DoesOnItsFixturesWhatTheyExpect) {
  const Rule& rule = *find_rule(GetParam());
  for (const char* which : {"fires", "quiet", "edge"}) {
    const Fixture f = load(rule.id, which);
    ASSERT_TRUE(f.metrics) << rule.id << "/" << which;
    ASSERT_TRUE(f.expect.contains("findings")) << rule.id << "/" << which;
    const RuleReport report = run_one(f, rule);
    std::string seen;
    for (const Finding& finding : report.findings) seen += "\n  " + finding.title;
    for (const NotEvaluated& n : report.not_evaluated) seen += "\n  not evaluated: " + n.reason;
    ASSERT_EQ(report.findings.size(), f.expect["findings"].get<size_t>()) << rule.id << "/" << which << seen;
    if (f.expect.contains("title")) {
      EXPECT_NE(report.findings[0].title.find(f.expect["title"].get<std::string>()), std::string::npos)
          << rule.id << "/" << which << "\n  wanted " << f.expect["title"] << seen;
    }
    if (f.expect.contains("severity")) {
      EXPECT_EQ(severity_name(report.findings[0].severity), f.expect["severity"].get<std::string>()) << seen;
    }
  }
}

TEST_P(EveryRule, FiresAndStaysQuietSomewhere) {
  EXPECT_GE(load(GetParam(), "fires").expect.value("findings", 0), 1);
  EXPECT_EQ(load(GetParam(), "quiet").expect.value("findings", -1), 0);
}

TEST_P(EveryRule, FindingsAreWhole) {
  const Fixture f = load(GetParam(), "fires");
  for (const Finding& finding : run_one(f, *find_rule(GetParam())).findings) {
    EXPECT_EQ(finding.id, GetParam());
    EXPECT_FALSE(finding.title.empty());
    EXPECT_EQ(finding.title.find('\n'), std::string::npos);
    EXPECT_FALSE(finding.why.empty());
    EXPECT_FALSE(finding.remedy.empty());
    EXPECT_FALSE(finding.saving_basis.empty()) << "a saving, or its absence, has a basis";
    if (finding.saving_us.has_value()) {
      EXPECT_FALSE(finding.saving_per.empty());
    }
    EXPECT_FALSE(finding.evidence.empty());
    EXPECT_GE(finding.evidence_total, finding.evidence.size());
    for (const Evidence& e : finding.evidence) {
      EXPECT_EQ(f.trace->at_ordinal(e.ordinal), e.event);
      EXPECT_EQ(f.trace->ts_ns(e.event), e.ns);
    }
  }
}

// Each threshold decides: some other value of it changes what the rule says on one of its fixtures.
TEST_P(EveryRule, EveryThresholdHasTwoSides) {
  const Rule& rule = *find_rule(GetParam());
  for (const Threshold& threshold : rule.thresholds) {
    bool decides = false;
    for (const char* which : {"fires", "edge", "quiet"}) {
      const Fixture f = load(rule.id, which);
      const auto outcome = [&](std::vector<ThresholdValue> replaced) {
        std::string text;
        for (const Finding& finding : run_one(f, rule, std::move(replaced)).findings)
          text += std::string(severity_name(finding.severity)) + finding.title;
        return text;
      };
      const std::string name = std::string(rule.id) + "." + std::string(threshold.name);
      const std::string normal = outcome({});
      for (double value : {0.0, 1e18}) decides |= outcome({{name, value}}) != normal;
    }
    EXPECT_TRUE(decides) << rule.id << ": " << threshold.name << " makes no difference on any fixture";
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, testing::ValuesIn(rule_ids()), [](const auto& rule_info) {
  std::string name = rule_info.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
});

TEST(Rules, AreAllThereOnce) {
  const std::vector<std::string> ids = rule_ids();
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  EXPECT_GE(ids.size(), 22u);
}

TEST(Rules, EveryFixtureFolderHasItsRule) {
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(ATTNSCOPE_SOURCE_DIR) /
                                                               "tests/analysis/rules"))
    EXPECT_TRUE(!entry.is_directory() || find_rule(entry.path().filename().string())) << entry.path();
}

TEST(Rules, AreWordedForPeople) {
  for (const Rule* rule : rules()) {
    for (std::string_view text :
         {rule->summary, rule->what, rule->why, rule->remedy, rule->false_positives}) {
      ASSERT_FALSE(text.empty()) << rule->id;
      EXPECT_EQ(text.find("  "), std::string_view::npos) << rule->id << ": " << text;
      EXPECT_TRUE(text.ends_with(".")) << rule->id << ": " << text;
      EXPECT_TRUE(text.front() >= 'A' && text.front() <= 'Z') << rule->id << ": " << text;
    }
    EXPECT_LE(rule->summary.size(), 120u) << rule->id;
    for (char c : rule->id)
      EXPECT_TRUE((c >= 'a' && c <= 'z') || c == '-' || (c >= '0' && c <= '9')) << rule->id;
    for (const Threshold& t : rule->thresholds) {
      EXPECT_FALSE(t.unit.empty()) << rule->id << "." << t.name;
      EXPECT_FALSE(t.meaning.empty()) << rule->id << "." << t.name;
    }
  }
}

TEST(Rules, PagesInTheDocsAreThoseOfTheDeclarations) {
  for (const Rule* rule : rules())
    EXPECT_TRUE(read_text(std::filesystem::path(ATTNSCOPE_SOURCE_DIR) / "docs/rules" /
                          (std::string(rule->id) + ".md")) == rule_page(*rule))
        << "write it again: attnscope rules " << rule->id << " --markdown docs/rules/" << rule->id << ".md";
}

TEST(Rules, MissingInputsAreSaid) {
  const std::string text =
      R"({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 1, "tid": 1,
                              "ts": 1, "dur": 2}]})";
  Result<trace::Trace> read = formats::chrome::read_memory(text);
  ASSERT_TRUE(read);
  const trace::Links links = trace::Links::build(*read);
  const Metrics metrics = compute_metrics(*read, links);
  const RuleReport report = run_rules(metrics);
  std::set<std::string> ids;
  for (const NotEvaluated& n : report.not_evaluated) {
    ids.insert(n.id);
    EXPECT_FALSE(n.reason.empty());
  }
  EXPECT_TRUE(ids.contains("launch-bound"));
  EXPECT_TRUE(ids.contains("false-zero-occupancy"));
}

}  // namespace
}  // namespace attnscope
