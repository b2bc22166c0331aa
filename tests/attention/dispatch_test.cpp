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
#include <functional>
#include <limits>
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

TEST(Choose, AutoThatFindsNobodySaysWhyAsWell) {
  AttentionCase test(base());
  test.request().score_program = "score";
  for (const std::vector<std::string>& names : {std::vector<std::string>{}, std::vector<std::string>{"auto"},
                                                std::vector<std::string>{"naive", "auto"}}) {
    const auto planned = plan(test.request(), {names});
    ASSERT_FALSE(planned);
    EXPECT_THAT(planned.error().message, HasSubstr("math: score programs are not implemented"));
  }
}

TEST(Choose, ADeviceWithoutBackendsIsNamed) {
  for (const Backend* backend : registered_backends())
    if (backend->device() == DeviceType::kCuda) GTEST_SKIP() << "this build has CUDA backends";
  AttentionCase test(base());
  for (TensorView* v : {&test.request().q, &test.request().k, &test.request().v})
    v->device = {DeviceType::kCuda, 0};
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{}, std::vector<std::string>{"auto"}, std::vector<std::string>{"flash"}}) {
    const auto planned = plan(test.request(), {names});
    ASSERT_FALSE(planned);
    EXPECT_THAT(planned.error().message, HasSubstr("this build has none for CUDA tensors"));
    EXPECT_THAT(planned.error().remedy, HasSubstr("ATTNSCOPE_CUDA=ON"));
  }
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

TEST(Refuse, EveryCode) {
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
  CaseSpec wide = base();
  wide.dtype = DType::kF64;
  for (const char* name : {"flash", "efficient"}) {
    expect(name, "dtype", [](Request&) {}, wide);
    expect(name, "sinks", [&](Request& r) { r.sinks = sinks; });
    expect(name, "alibi", [&](Request& r) { r.alibi_slopes = sinks; });
    expect(name, "score-program", [](Request& r) { r.score_program = "score"; });
    expect(name, "too-big-for-memory", [](Request& r) { r.limits.memory_bytes = 1000; });
  }
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

// Every field but contents, seeds and addresses: two requests that differ in it have no plan in common.
TEST(Plans, EveryFieldIsInTheKey) {
  CaseSpec dense = base(), packed = base(), paged = base();
  dense.kv_lengths = true;
  dense.mask = MaskSpec::kBoolFull;
  packed.packed = true;
  packed.B = 1;
  paged.paged = paged.append = true;
  alignas(64) static float numbers[64] = {};
  const auto vector_of = [](int64_t n) {
    TensorView v = TensorView::contiguous(numbers, DType::kF32, {n, 1, 1, 1});
    v.rank = 1;
    return v;
  };
  using Change = std::function<void(Request&)>;
  const auto changes_of = [](TensorView& (*view)(Request&)) {
    return std::vector<Change>{
        [view](Request& r) { view(r).dtype = view(r).dtype == DType::kI32 ? DType::kI64 : DType::kI32; },
        [view](Request& r) { view(r).device = {DeviceType::kCuda, 0}; },
        [view](Request& r) { view(r).device.index = 1; },
        [view](Request& r) { view(r).rank = view(r).rank == 1 ? 2 : 1; },
        [view](Request& r) { ++view(r).sizes[0]; },
        [view](Request& r) {
          if (view(r).size(0) > 1) return static_cast<void>(++view(r).strides[0]);
          ++view(r).sizes[0];
        },
        [view](Request& r) { view(r).data = view(r).as<std::byte>() + 1; }};
  };
  const auto expect_keys_differ = [](const CaseSpec& spec, const std::vector<Change>& changes) {
    AttentionCase plain(spec);
    for (size_t n = 0; n < changes.size(); ++n) {
      Request other = plain.request();
      changes[n](other);
      EXPECT_TRUE(request_key(other) != request_key(plain.request())) << spec.name() << " change " << n;
    }
  };
  std::vector<Change> scalars{[](Request& r) { r.causal = CausalMode::kTopLeft; },
                              [](Request& r) { r.causal = CausalMode::kLowerRight; },
                              [](Request& r) { r.window.left = 3; },
                              [](Request& r) { r.window.right = 3; },
                              [](Request& r) { r.window.left = std::numeric_limits<int64_t>::max(); },
                              [](Request& r) { r.scale = 2.0; },
                              [](Request& r) { r.scale = -r.effective_scale(); },
                              [](Request& r) { r.softcap = 1.0; },
                              [](Request& r) { r.dropout.p = 0.5; },
                              [](Request& r) { r.dropout.seed_on_device = &r.dropout.seed; },
                              [&](Request& r) { r.sinks = vector_of(r.heads()); },
                              [&](Request& r) { r.alibi_slopes = vector_of(r.heads()); },
                              [](Request& r) { r.score_program = "score"; },
                              [](Request& r) { r.wants.lse = !r.wants.lse; },
                              [](Request& r) { r.wants.gradients = true; },
                              [](Request& r) { r.wants.deterministic = true; },
                              [](Request& r) { r.limits.sm_count = 1; },
                              [](Request& r) { r.limits.splits = 1; },
                              [](Request& r) { r.limits.threads = 1; },
                              [](Request& r) { r.limits.memory_bytes = 1; },
                              [](Request& r) { r.paging.page_size += 1; }};
  scalars.emplace_back(
      [](Request& r) { r.mask_kind = r.mask_kind == MaskKind::kNone ? MaskKind::kBias : MaskKind::kNone; });
  // One that is not given is another request than one that is; q, k, v and the mask may lack data in a plan.
  const auto absent = [](TensorView& (*view)(Request&)) -> Change {
    return [view](Request& r) { view(r).data = nullptr; };
  };
  const auto all = [&](const CaseSpec& spec, std::initializer_list<TensorView& (*)(Request&)> views) {
    std::vector<Change> changes = scalars;
    for (const auto view : views)
      for (Change& change : changes_of(view)) changes.push_back(std::move(change));
    if (spec.mask == MaskSpec::kNone)
      for (const auto view : views) changes.push_back(absent(view));
    expect_keys_differ(spec, changes);
  };
  all(dense,
      {[](Request& r) -> TensorView& { return r.q; }, [](Request& r) -> TensorView& { return r.k; },
       [](Request& r) -> TensorView& { return r.v; }, [](Request& r) -> TensorView& { return r.mask; }});
  dense.mask = MaskSpec::kNone;
  all(dense, {[](Request& r) -> TensorView& { return r.lengths.kv_lengths; }});
  all(packed, {[](Request& r) -> TensorView& { return r.lengths.cu_q; },
               [](Request& r) -> TensorView& { return r.lengths.cu_k; }});
  all(paged, {[](Request& r) -> TensorView& { return r.paging.block_table; },
              [](Request& r) -> TensorView& { return r.paging.append_k; },
              [](Request& r) -> TensorView& { return r.paging.append_v; }});
}

TEST(Plans, TheSeedIsReadAtTheRun) {
  CaseSpec spec = base();
  spec.dropout = 0.5;
  AttentionCase test(spec);
  for (const char* name : {"flash", "efficient", "math"}) {
    uint64_t words[2] = {test.request().dropout.seed, test.request().dropout.offset};
    Request there = test.request();
    there.dropout = {spec.dropout, 1, 1, words};
    const auto made = plan(there, {{name}});
    ASSERT_TRUE(made) << name;
    const double tolerance = tolerance_for(test.request(), false).out;
    ASSERT_TRUE(run(**made, there, test.outputs()));
    EXPECT_EQ(compare(test.out().view(), test.reference().out, tolerance), "") << name;
    for (uint64_t& word : words) {  // the same plan draws other bits
      word += 1;
      ASSERT_TRUE(run(**made, there, test.outputs()));
      EXPECT_NE(compare(test.out().view(), test.reference().out, tolerance), "") << name;
      EXPECT_EQ(compare(test.out().view(), reference_attention(there).out, tolerance), "") << name;
    }
  }
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

// The same call costs the same whoever runs it: kept scores counted one by one, bytes by hand.
TEST(Plans, CostsAreThoseOfTheRequest) {
  const auto check = [](const CaseSpec& spec, double k_and_v_bytes, double mask_bytes = 0) {
    AttentionCase test(spec);
    const Request& r = test.request();
    double kept = static_cast<double>(r.batch() * r.heads() * r.q_len() * r.kv_len());
    if (!spec.paged && spec.mask == MaskSpec::kNone) {
      const Reference oracle(r);
      kept = 0;
      for (int64_t b = 0; b < r.batch(); ++b)
        for (int64_t h = 0; h < r.heads(); ++h)
          for (int64_t i = 0; i < r.q_len(); ++i)
            for (int64_t j = 0; j < r.kv_len(); ++j) kept += oracle.sees(b, h, i, j) ? 1 : 0;
    }
    const auto rows = static_cast<double>(r.batch() * r.heads() * r.q_len());
    const double bytes =
        4 * rows * static_cast<double>(r.head_dim() + r.value_dim()) + k_and_v_bytes + mask_bytes;
    for (const Backend* backend : registered_backends()) {
      if (backend->device() != DeviceType::kCpu || !backend->refusals(r).empty()) continue;
      const CostModel cost = (*plan(r, {{std::string(backend->name())}}))->cost();
      EXPECT_EQ(cost.flops, 2 * kept * static_cast<double>(r.head_dim() + r.value_dim()))
          << backend->name() << " " << spec.name();
      EXPECT_EQ(cost.min_bytes, bytes) << backend->name() << " " << spec.name();
      EXPECT_GE(cost.moved_bytes, spec.append ? 2.0 * 4 * 2 * 2 * 3 * (8 + 12) : 0) << backend->name();
    }
  };
  CaseSpec spec = base();
  spec.Hq = 6;
  spec.L = 11;
  spec.S = 30;
  spec.Ev = 12;
  const double both = 4.0 * 2 * 2 * 30 * (8 + 12);
  for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight})
    for (const Window window : {Window{}, Window{3, -1}, Window{-1, 2}, Window{40, 0}}) {
      spec.causal = causal;
      spec.window = window;
      check(spec, both);
    }
  spec.causal = CausalMode::kNone;
  spec.window = {};
  spec.mask = MaskSpec::kBoolKeys;  // [B,1,1,S]
  check(spec, both, 2 * 30);
  spec.mask = MaskSpec::kNone;
  spec.layout = Layout::kHeadStride0;
  check(spec, both / 2);
  spec.layout = Layout::kBatchStride0;
  check(spec, both / 2);
  spec.layout = Layout::kDense;
  spec.paged = true;  // 2 · 8 of the 19 pages of 4 keys
  check(spec, both / 30 * 32);
  spec.append = true;
  check(spec, both / 30 * 32);
}

TEST(Plans, AreMadeAtOnceHoweverManyRowsThereAre) {
  AttentionCase test(base());
  Request& r = test.request();
  r.causal = CausalMode::kTopLeft;
  r.window = {std::numeric_limits<int64_t>::max(), 3};
  // One row, repeated 2^45 times, against one key repeated: nothing may be counted one by one.
  for (TensorView* v : {&r.q, &r.k, &r.v}) {
    v->sizes[2] = int64_t{1} << 45;
    v->strides[2] = 0;
  }
  const auto made = plan(r, {{"efficient"}});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_DOUBLE_EQ((*made)->cost().flops, 2.0 * 2 * 2 * 16 * 0x1p44 * (0x1p45 + 1));
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
