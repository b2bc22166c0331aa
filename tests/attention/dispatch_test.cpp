// Choice, refusals, plans and their cache.
#include "attention/backend.h"
#include "attention/plan_cache.h"
#include "attention/refusal.h"
#include "attention/request_key.h"
#include "support/attention_case.h"
#include "tensor/fill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace attnscope::testing {
namespace {

using ::testing::HasSubstr;

CaseSpec base() {
  CaseSpec spec;
  spec.B = 2;
  spec.Hq = spec.Hk = spec.Hv = 2;
  spec.L = spec.S = 16;
  spec.E = spec.Ev = 8;
  spec.lse = false;
  return spec;
}

std::vector<std::string> codes(const std::vector<Refusal>& refusals, std::string_view backend) {
  std::vector<std::string> found;
  for (const Refusal& r : refusals)
    if (r.backend == backend) found.push_back(r.code);
  return found;
}

TEST(Choose, AutomaticTakesNeitherNaiveNorInplace) {
  AttentionCase test(base());
  const Decision decision = choose(test.request());
  ASSERT_NE(decision.winner, nullptr);
  EXPECT_TRUE(decision.winner->automatic());
  EXPECT_NE(decision.winner_name, "naive");
}

TEST(Choose, ForcedBackendIsTheOneOrAnError) {
  AttentionCase test(base());
  EXPECT_EQ(choose(test.request(), {{"naive"}}).winner_name, "naive");
  test.request().softcap = 5;
  const Decision refused = choose(test.request(), {{"naive"}});
  EXPECT_EQ(refused.winner, nullptr);
  EXPECT_EQ(codes(refused.refusals, "naive"), std::vector<std::string>{"softcap"});
  const auto planned = plan(test.request(), {{"naive"}});
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(planned.error().message, HasSubstr("softcap 5"));
  // A list falls through in its order.
  EXPECT_EQ(choose(test.request(), {{"naive", "math"}}).winner_name, "math");
}

TEST(Choose, UnknownBackendListsTheKnown) {
  AttentionCase test(base());
  const auto planned = plan(test.request(), {{"flahs"}});
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(planned.error().message, HasSubstr("did you mean 'flash'?"));
  EXPECT_THAT(planned.error().message, HasSubstr("naive"));
}

TEST(Choose, EveryRefusalIsThereEvenWithAWinner) {
  AttentionCase test(base());
  test.request().softcap = 5;
  test.request().dropout.p = 0.5;
  test.request().wants.gradients = true;
  const Decision decision = choose(test.request());
  ASSERT_NE(decision.winner, nullptr);
  EXPECT_EQ(codes(decision.refusals, "naive"), (std::vector<std::string>{"softcap", "dropout"}));
  EXPECT_EQ(codes(decision.refusals, "inplace"),
            (std::vector<std::string>{"overwrites-saved-value", "softcap", "dropout"}));
}

TEST(Refuse, EveryCodeOfTheUnfusedBackends) {
  const auto expect = [](const char* backend, const char* code, auto spoil, CaseSpec spec = base()) {
    AttentionCase test(spec);
    spoil(test.request());
    const auto found = codes(find_backend(backend, DeviceType::kCpu)->refusals(test.request()), backend);
    EXPECT_TRUE(std::find(found.begin(), found.end(), code) != found.end()) << backend << " " << code;
  };
  static float sink[2] = {0, 0};
  TensorView sinks;
  sinks.data = sink;
  sinks.rank = 1;
  sinks.sizes[0] = 2;
  CaseSpec packed = base(), paged = base();
  packed.packed = true;
  packed.B = 1;
  paged.paged = true;
  for (const char* name : {"naive", "inplace"}) {
    expect(name, "softcap", [](Request& r) { r.softcap = 1; });
    expect(name, "dropout", [](Request& r) { r.dropout.p = 0.1; });
    expect(name, "lse", [](Request& r) { r.wants.lse = true; });
    expect(name, "packed-sequences", [](Request&) {}, packed);
    expect(name, "paged-cache", [](Request&) {}, paged);
  }
  expect("inplace", "overwrites-saved-value", [](Request& r) { r.wants.gradients = true; });
  for (const char* name : {"naive", "inplace", "math"}) {
    expect(name, "sinks", [&](Request& r) { r.sinks = sinks; });
    expect(name, "alibi", [&](Request& r) { r.alibi_slopes = sinks; });
    expect(name, "score-program", [](Request& r) { r.score_program = "score"; });
    expect(name, "splits", [](Request& r) { r.limits.splits = 3; });
    expect(name, "too-big-for-memory", [](Request& r) { r.limits.memory_bytes = 1000; });
  }
}

TEST(Refuse, TooBigForMemoryNamesBothSizesAndFusedOnesRun) {
  CaseSpec spec = base();
  spec.B = 1;
  AttentionCase test(spec);
  // Shapes of a long sequence; no data is touched before a backend has accepted.
  for (TensorView* v : {&test.request().q, &test.request().k, &test.request().v}) {
    v->sizes[2] = 4'000'000;
    v->strides[0] = v->strides[1] = 8 * 4'000'000;
  }
  const Decision decision = choose(test.request());
  for (const char* name : {"naive", "inplace", "math"}) {
    const auto found = codes(decision.refusals, name);
    EXPECT_EQ(found, std::vector<std::string>{"too-big-for-memory"}) << name;
  }
  for (const Refusal& r : decision.refusals)
    if (r.backend == "naive") {
      EXPECT_THAT(r.message, HasSubstr("256 TB"));
      EXPECT_THAT(r.message, HasSubstr("is available"));
    }
  for (const char* fused : {"efficient", "flash"})
    EXPECT_TRUE(codes(decision.refusals, fused).empty()) << fused;
}

TEST(Plans, AreCachedBySizesStridesDtypesAndFlags) {
  AttentionCase test(base());
  const auto first = *plan(test.request(), {{"math"}});
  EXPECT_EQ(*plan(test.request(), {{"math"}}), first);
  // The stride of a dimension of size 1 never matters; any other does.
  CaseSpec single = base();
  single.B = 1;
  AttentionCase one(single);
  const auto before = *plan(one.request(), {{"math"}});
  one.request().q.strides[0] = 12345;
  EXPECT_EQ(*plan(one.request(), {{"math"}}), before);

  const auto differs = [&](auto change) {
    AttentionCase other(base());
    change(other.request());
    return request_key(other.request()) != request_key(test.request());
  };
  EXPECT_TRUE(differs([](Request& r) { r.k.strides[2] += 1; }));
  EXPECT_TRUE(differs([](Request& r) { r.q.dtype = r.k.dtype = r.v.dtype = DType::kBF16; }));
  EXPECT_TRUE(differs([](Request& r) { r.causal = CausalMode::kTopLeft; }));
  EXPECT_TRUE(differs([](Request& r) { r.scale = 2.0; }));
  EXPECT_TRUE(differs([](Request& r) { r.v.data = r.v.as<float>() + 1; }));  // alignment
  EXPECT_TRUE(differs([](Request& r) { r.wants.deterministic = true; }));
  EXPECT_TRUE(differs([](Request& r) { r.limits.threads = 1; }));
  EXPECT_TRUE(differs([](Request& r) { r.window.left = 3; }));
  EXPECT_FALSE(differs([](Request& r) { r.dropout.seed = 99; }));  // read at run time
}

TEST(Plans, OtherStridesGetTheirOwnPlan) {
  // One after the other, as the case that leaked across: dense, then k and v interleaved in one buffer.
  for (const Layout layout : {Layout::kDense, Layout::kInterleaved, Layout::kDense}) {
    for (const DType dtype : {DType::kF16, DType::kF32}) {
      CaseSpec spec = base();
      spec.dtype = dtype;
      spec.layout = layout;
      for (const Backend* backend : registered_backends()) {
        if (backend->device() != DeviceType::kCpu) continue;
        AttentionCase test(spec);
        ASSERT_TRUE(sdpa(test.request(), test.outputs(), {{std::string(backend->name())}}));
        EXPECT_EQ(compare(test.out().view(), test.reference().out, tolerance_for(test.request(), true).out),
                  "")
            << backend->name();
      }
    }
  }
}

TEST(Plans, CacheIsBoundedAndDropsTheLeastRecentlyUsed) {
  AttentionCase test(base());
  const auto made = *plan(test.request(), {{"math"}});
  PlanCache cache(3);
  for (const char* key : {"a", "b", "c"}) cache.insert(key, made);
  EXPECT_NE(cache.find("a"), nullptr);
  cache.insert("d", made);
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(cache.find("b"), nullptr);
  EXPECT_NE(cache.find("a"), nullptr);
}

TEST(Plans, ARequestOfAnotherKeyIsRefused) {
  AttentionCase test(base());
  CaseSpec other_spec = base();
  other_spec.layout = Layout::kSeqMajor;
  AttentionCase other(other_spec);
  const auto made = *plan(test.request(), {{"math"}});
  EXPECT_TRUE(run(*made, test.request(), test.outputs()));
  const Status status = run(*made, other.request(), other.outputs());
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().remedy, HasSubstr("plan()"));
}

TEST(Plans, DescribeNamesEveryStepAndRefusal) {
  CaseSpec spec = base();
  spec.dtype = DType::kBF16;
  spec.causal = CausalMode::kTopLeft;
  AttentionCase test(spec);
  test.request().softcap = 0;
  const std::string naive = (*plan(test.request(), {{"naive"}}))->describe();
  EXPECT_THAT(naive, HasSubstr("5 kernels, 1 copy, 0 fills"));
  EXPECT_THAT(naive, HasSubstr("copy   attnscope::masked_fill"));
  const std::string inplace = (*plan(test.request(), {{"inplace"}}))->describe();
  EXPECT_THAT(inplace, HasSubstr("5 kernels, 0 copies, 0 fills"));
  const std::string math = (*plan(test.request(), {{"math"}}))->describe();
  EXPECT_THAT(math, HasSubstr("20 kernels, 0 copies, 0 fills"));
  test.request().softcap = 3;
  EXPECT_THAT((*plan(test.request(), {{"math"}}))->describe(), HasSubstr("naive: softcap 3 is no step"));
}

TEST(Plans, RunFromTwoThreadsIsBitwiseEqual) {
  CaseSpec spec = base();
  spec.causal = CausalMode::kTopLeft;
  spec.L = spec.S = 150;
  for (const Backend* backend : registered_backends()) {
    if (backend->device() != DeviceType::kCpu) continue;
    AttentionCase first(spec), second(spec);
    const auto made = *plan(first.request(), {{std::string(backend->name())}});
    Status a, b;
    std::thread other([&] {
      for (int n = 0; n < 5; ++n) b = run(*made, second.request(), second.outputs());
    });
    for (int n = 0; n < 5; ++n) a = run(*made, first.request(), first.outputs());
    other.join();
    ASSERT_TRUE(a && b);
    EXPECT_EQ(std::memcmp(first.out().view().data, second.out().view().data,
                          static_cast<size_t>(first.out().view().numel()) * 4),
              0)
        << backend->name();
  }
}

TEST(Plans, CallersWorkspaceIsUsedOrRefused) {
  AttentionCase test(base());
  const auto made = *plan(test.request(), {{"math"}});
  ASSERT_GT(made->workspace_bytes(), 0u);
  const HostBuffer buffer = *HostBuffer::allocate(made->workspace_bytes());
  EXPECT_TRUE(run(*made, test.request(), test.outputs(), {nullptr, buffer.data(), buffer.bytes()}));
  EXPECT_EQ(compare(test.out().view(), test.reference().out, 1e-4), "");
  const Status small = run(*made, test.request(), test.outputs(), {nullptr, buffer.data(), 64});
  ASSERT_FALSE(small);
  EXPECT_THAT(small.error().message, HasSubstr("the workspace holds 64 bytes"));
}

}  // namespace
}  // namespace attnscope::testing
