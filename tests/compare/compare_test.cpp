#include "compare/compare.h"

#include "profiler/export.h"
#include "trace/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnscope::compare {
namespace {

using ::testing::HasSubstr;

CompareRequest request_of(DType dtype, CausalMode causal = CausalMode::kTopLeft) {
  CompareRequest r;
  Problem& p = r.problem;
  p.batch = 1;
  p.heads = p.kv_heads = 2;
  p.q_len = p.kv_len = 64;
  p.head_dim = p.value_dim = 32;
  p.dtype = dtype;
  p.causal = causal;
  r.measure.rounds = 2;
  r.measure.peaks = false;
  r.keep_recordings = true;
  return r;
}

CompareResult run(const CompareRequest& request) {
  const auto device = open_cpu_device(2);
  auto result = compare(*device, request);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result ? std::move(*result) : CompareResult{};
}

struct Expected {
  const char* variant;
  int kernels, copies;
};

TEST(Compare, CountsWhatReallyRan) {
  const CompareResult result = run(request_of(DType::kF32));
  for (const auto& [name, kernels, copies] :
       {Expected{"naive", 5, 1}, {"inplace", 5, 0}, {"efficient", 1, 0}, {"flash", 1, 0}}) {
    const VariantResult* v = result.find(name);
    ASSERT_NE(v, nullptr) << name;
    ASSERT_TRUE(v->ok()) << name;
    EXPECT_EQ(v->counts.kernels, kernels) << name;
    EXPECT_EQ(v->counts.copies, copies) << name;
    EXPECT_EQ(v->counts.fills, 0) << name;
    EXPECT_TRUE(v->counts.steady) << name;
    EXPECT_TRUE(v->accuracy.within()) << name;
    EXPECT_EQ(v->device_us.samples, 2) << name;
    EXPECT_EQ(v->counts.kernels, v->cost.kernels) << name << ": the plan expects something else";
    EXPECT_EQ(v->counts.copies, v->cost.copies) << name;
  }
  const VariantResult* math = result.find("math");
  ASSERT_NE(math, nullptr);
  EXPECT_GT(math->counts.kernels, 10);
  EXPECT_EQ(static_cast<size_t>(math->counts.kernels + math->counts.copies + math->counts.fills),
            math->counts.rows.size());
  EXPECT_EQ(math->breaks.size(), 1u);
}

TEST(Compare, MathTakesTwentyKernelsForCausalBf16) {
  CompareRequest request = request_of(DType::kBF16);
  request.variants = {"math"};
  const CompareResult result = run(request);
  EXPECT_EQ(result.find("math")->counts.kernels, 20);
}

TEST(Compare, LengthsCountTheKeysThatThereAre) {
  CompareRequest request = request_of(DType::kF32, CausalMode::kNone);
  Problem& p = request.problem;
  p.batch = 3;
  p.lengths = {64, 0, 10};
  p.mask_kind = MaskKind::kBool;
  p.mask_sizes = {1, 1, 64, 64};
  request.variants = {"flash", "math"};
  const CompareResult result = run(request);
  const double rows = 2 * 64, keys = 64 + 10;
  const double bytes = 4 * 3 * rows * (32 + 32) + 4 * 2 * keys * (32 + 32) + 64 * 64;
  EXPECT_EQ(result.expectation.flops, 2 * rows * keys * (32 + 32));
  EXPECT_EQ(result.expectation.min_bytes, bytes);
  for (const VariantResult& v : result.variants) {
    EXPECT_TRUE(v.ok()) << v.name;
    EXPECT_EQ(v.cost.min_bytes, bytes) << v.name;
  }
}

TEST(Compare, TheTraceHoldsExactlyWhatIsCounted) {
  const CompareResult result = run(request_of(DType::kF32));
  for (const VariantResult& v : result.variants) {
    const trace::Trace t = profiler::to_trace(v.recording);
    const trace::Links links = trace::Links::build(t);
    const trace::RangeSum sum = links.range_sum(t.find_text("attn_fwd"));
    const auto calls = static_cast<uint64_t>(v.counts.calls);
    EXPECT_EQ(sum.calls, calls) << v.name;
    EXPECT_EQ(sum.own_thread.kernels, calls * static_cast<uint64_t>(v.counts.kernels)) << v.name;
    EXPECT_EQ(sum.own_thread.copies, calls * static_cast<uint64_t>(v.counts.copies)) << v.name;
    EXPECT_EQ(sum.own_thread.fills, calls * static_cast<uint64_t>(v.counts.fills)) << v.name;
    EXPECT_EQ(t.totals().kernels, sum.own_thread.kernels) << v.name;
  }
}

TEST(Compare, EveryVariantTakesGroupedHeadsAndOddSizesOrSaysWhyNot) {
  CompareRequest request = request_of(DType::kBF16);
  Problem& p = request.problem;
  p.batch = 2;
  p.heads = 6;
  p.kv_heads = 2;
  p.q_len = 100;
  p.kv_len = 77;
  p.head_dim = 40;
  p.value_dim = 24;
  const CompareResult result = run(request);
  EXPECT_EQ(result.variants.size(), known_variants(DeviceType::kCpu).size());
  for (const VariantResult& v : result.variants)
    EXPECT_TRUE(v.ok() || !v.reasons.empty()) << v.name << " " << status_name(v.status);
}

TEST(Compare, GradientsRefuseTheInPlaceVariant) {
  CompareRequest request = request_of(DType::kF32);
  request.problem.train = true;
  const CompareResult result = run(request);
  const VariantResult* inplace = result.find("inplace");
  EXPECT_EQ(inplace->status, VariantStatus::kRefused);
  EXPECT_FALSE(inplace->reasons.front().message.empty());
  EXPECT_EQ(inplace->device_us.samples, 0) << "a refused variant is never a number";
}

TEST(Compare, FullyMaskedRowsAreNaNInNaiveOnlyAndSaid) {
  CompareRequest request = request_of(DType::kF32, CausalMode::kLowerRight);
  request.problem.kv_len = 60;  // 64 queries: the first four rows see nothing
  const CompareResult result = run(request);
  EXPECT_EQ(result.find("naive")->accuracy.empty_nan_rows, 2 * 4);
  EXPECT_TRUE(result.find("naive")->ok());
  EXPECT_EQ(result.find("flash")->accuracy.empty_nan_rows, 0);
  EXPECT_EQ(result.find("flash")->accuracy.empty_rows, 2 * 4);
}

TEST(Compare, TooBigForMemoryIsARefusalWithBothSizesWhileFusedOnesRun) {
  CompareRequest request = request_of(DType::kF32);
  request.problem.memory_limit = 100'000;  // two heads of 64 × 64 scores and their copy need more
  request.problem.q_len = request.problem.kv_len = 512;
  const CompareResult result = run(request);
  for (const char* name : {"naive", "inplace", "math"}) {
    const VariantResult* v = result.find(name);
    ASSERT_EQ(v->status, VariantStatus::kRefused) << name;
    EXPECT_EQ(v->reasons.front().code, "too-big-for-memory") << name;
    EXPECT_THAT(v->reasons.front().message, HasSubstr("100 kB")) << name;
  }
}

TEST(Compare, TensorsThatDoNotFitAreRefusedBeforeAnythingIsTaken) {
  CompareRequest request = request_of(DType::kF32);
  request.problem.batch = int64_t{1} << 30;
  const auto device = open_cpu_device(1);
  const Status checked = check(*device, request);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(checked.error().message, HasSubstr("the tensors alone need"));
}

TEST(Compare, UnknownVariantsListTheKnown) {
  CompareRequest request = request_of(DType::kF32);
  request.variants = {"flsh"};
  const auto device = open_cpu_device(1);
  const Status checked = check(*device, request);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(checked.error().remedy, HasSubstr("did you mean 'flash'"));
  EXPECT_THAT(checked.error().remedy, HasSubstr("naive"));
}

TEST(Compare, HugeShapesNeitherOverflowNorCrash) {
  CompareRequest request = request_of(DType::kF32);
  Problem& p = request.problem;
  p.batch = p.heads = p.kv_heads = p.q_len = p.kv_len = p.head_dim = p.value_dim = int64_t{1} << 40;
  const auto device = open_cpu_device(1);
  EXPECT_FALSE(check(*device, request));
}

TEST(Compare, StatedGuessesReplaceTheFormula) {
  CompareRequest request = request_of(DType::kF32);
  request.guess.source = "asked";
  request.guess.by_variant["flash"].kernels = 3;
  const CompareResult result = run(request);
  ASSERT_EQ(result.find("flash")->breaks.size(), 1u);
  EXPECT_EQ(result.find("flash")->breaks[0].guessed, 3);
  const VariantResult* math = result.find("math");
  EXPECT_EQ(math->guess.kernels, std::nullopt) << "not mentioned, not guessed";
  EXPECT_TRUE(math->breaks.empty());
}

TEST(Compare, TheRulesCountTheFormulaAsTheGuessDoes) {
  for (const auto& [causal, formula] : {std::pair(CausalMode::kNone, 4), {CausalMode::kTopLeft, 5}}) {
    CompareRequest request = request_of(DType::kF32, causal);
    request.variants = {"math"};
    const CompareResult result = run(request);
    const VariantResult& math = *result.find("math");
    EXPECT_EQ(math.guess.kernels, formula);
    const auto anatomy = std::find_if(math.findings.begin(), math.findings.end(),
                                      [](const Finding& f) { return f.id == "attention-anatomy"; });
    ASSERT_NE(anatomy, math.findings.end());
    EXPECT_THAT(anatomy->title, HasSubstr("where the formula has " + std::to_string(formula) + ":"));
  }
}

TEST(Compare, NoPeakIsClaimedForFloat64) {
  CompareRequest request = request_of(DType::kF64);
  request.variants = {"math"};
  request.measure.peaks = true;
  const CompareResult result = run(request);
  EXPECT_EQ(result.peaks.flops_per_s, 0) << result.peaks.flops_how;
  EXPECT_LT(result.expectation.compute_us, 0);
  EXPECT_GT(result.peaks.bytes_per_s, 0);
}

}  // namespace
}  // namespace attnscope::compare
