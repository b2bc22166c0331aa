// What the rules must say about the article's traces, and what they must not.
#include "analysis/rule.h"
#include "support/trace_files.h"

#include <gtest/gtest.h>

#include <map>

namespace attnscope {
namespace {

// Findings of one of the article's traces, by rule.
std::multimap<std::string, Finding> findings_of(const std::string& variant) {
  const auto loaded = support::load_trace("article/" + variant + ".json.gz");
  const Metrics metrics = compute_metrics(loaded->trace, loaded->links);
  std::multimap<std::string, Finding> by_rule;
  for (Finding& finding : run_rules(metrics).findings) {
    std::string id = finding.id;
    by_rule.emplace(std::move(id), std::move(finding));
  }
  return by_rule;
}

testing::AssertionResult says(const std::multimap<std::string, Finding>& findings, const std::string& rule,
                              const std::string& part) {
  std::string titles;
  for (auto [at, end] = findings.equal_range(rule); at != end; ++at) {
    if (at->second.title.find(part) != std::string::npos) return testing::AssertionSuccess();
    titles += "\n  " + at->second.title;
  }
  return testing::AssertionFailure() << rule << " does not say '" << part
                                     << "' but:" << (titles.empty() ? " nothing" : titles);
}

TEST(ArticleFindings, NaiveShowsTheHiddenCopy) {
  const auto findings = findings_of("naive");
  EXPECT_TRUE(says(findings, "hidden-copy",
                   "268,435,456 B copied inside aten::masked_fill > aten::clone: 127 µs per call"));
  ASSERT_EQ(findings.count("hidden-copy"), 1u);
  const Finding& copy = findings.find("hidden-copy")->second;
  EXPECT_EQ(copy.severity, Severity::kWarning);
  EXPECT_EQ(copy.range, "attn_fwd");
  EXPECT_EQ(copy.evidence_total, 3u);
  EXPECT_NEAR(*copy.saving_us, 126.8, 0.1);
  EXPECT_TRUE(says(findings, "unfused-attention", "attention written out in 5 kernels"));
}

TEST(ArticleFindings, InPlaceHasNoCopy) {
  const auto findings = findings_of("inplace");
  EXPECT_EQ(findings.count("hidden-copy"), 0u);
  EXPECT_TRUE(says(findings, "unfused-attention", "attention written out in 5 kernels"));
}

TEST(ArticleFindings, MathIsTakenApart) {
  const auto findings = findings_of("math");
  EXPECT_TRUE(says(findings, "attention-anatomy", "20 kernels where the formula has 5"));
  EXPECT_TRUE(says(findings, "attention-anatomy", "2 products (951 µs, 36 %), 2 of them on FMA units"));
  EXPECT_TRUE(says(findings, "attention-anatomy", "4 guard against empty rows (663 µs, 25 %)"));
  EXPECT_TRUE(says(findings, "attention-anatomy", "5 mask (11.2 µs, 0.43 %)"));
  EXPECT_TRUE(says(findings, "attention-anatomy", "5 casts (276 µs, 11 %)"));
  EXPECT_TRUE(says(findings, "dtype-upcast", "3 casts, 2 back, 276 µs per call (11 % of device time)"));
  EXPECT_TRUE(says(findings, "fp32-on-cuda-cores",
                   "2 matrix products of 16-bit data ran in f32 on the FMA units: 951 µs per call (36 %"));
  EXPECT_TRUE(says(findings, "mask-rebuilt", "the mask is built anew in each of 3 equal calls: 5 kernels"));
  EXPECT_TRUE(
      says(findings, "safe-softmax-cost", "4 kernels, 663 µs per call beside 279 µs of softmax (25 %"));
  EXPECT_TRUE(says(findings, "backend-fallback", "3 calls ran the math path, forced"));
  EXPECT_EQ(findings.count("unfused-attention"), 0u);
  EXPECT_EQ(findings.count("fp32-on-cuda-cores"), 1u)
      << "the product of before the window is nobody's choice";
}

TEST(ArticleFindings, FlashIsLowByDesign) {
  const auto findings = findings_of("flash");
  EXPECT_TRUE(
      says(findings, "low-occupancy-by-design", "12.5 % occupancy by design: 128 threads × 255 registers"));
  EXPECT_EQ(findings.count("low-occupancy-problem"), 0u);
  EXPECT_EQ(findings.count("false-zero-occupancy"), 0u);
}

TEST(ArticleFindings, CudnnsZeroIsFalse) {
  const auto findings = findings_of("cudnn");
  EXPECT_TRUE(says(findings, "false-zero-occupancy", "3 kernels reported 0 %, really 18.75 %"));
  EXPECT_TRUE(says(findings, "false-zero-occupancy", "134,144 B of shared memory > 49,152 B"));
  EXPECT_TRUE(says(findings, "annotation-percent", "the row attn_fwd reads 149 % of the device total"));
}

TEST(ArticleFindings, EarlierWorkLeaksIntoThreeOfThem) {
  for (const char* variant : {"auto", "cudnn", "efficient", "flash", "flex_compiled", "inplace", "math",
                              "naive", "naive_compiled"}) {
    const std::string name = variant;
    const bool leaks = name == "naive" || name == "inplace" || name == "math";
    EXPECT_EQ(findings_of(name).count("kernels-leak-across-steps"), leaks ? 1u : 0u) << name;
  }
}

TEST(ArticleFindings, CompiledKernelsAreDecoded) {
  EXPECT_TRUE(says(findings_of("naive_compiled"), "fused-opaque",
                   "fuses _softmax, exp, masked_fill, mul, prepare_softmax_online, sub, view"));
  EXPECT_TRUE(says(findings_of("flex_compiled"), "fused-opaque", "FlexAttention"));
}

// Nothing of one group is counted twice by mistake: findings on the same time share a group.
TEST(ArticleFindings, OverlappingSavingsShareAGroup) {
  for (const auto& [rule, finding] : findings_of("math"))
    if (finding.saving_us.value_or(0) > 0) {
      EXPECT_EQ(finding.group, "attention:attn_fwd") << rule;
    }
}

}  // namespace
}  // namespace attnscope
