// The decode kernels' source on the software model of tests/support/cuda_model, without a GPU, against the
// float64 oracle: who computes what, pipeline, masks, pages, joins. Every case with copies that land at once
// and late.
#include "backends/cuda_append/arguments.h"
#include "backends/cuda_append/kernel.cuh"
#include "backends/cuda_decode/arguments.h"
#include "backends/cuda_decode/combine.cuh"
#include "backends/cuda_decode/kernel.cuh"  // through the model, which comes first on the include path
#include "support/attention_case.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace attnscope::decode {
namespace {

using testing::AttentionCase;
using testing::CaseSpec;
using testing::Layout;

template <class C>
std::string run_on_model(AttentionCase& test, const Sharing& sharing, bool late) {
  const Request& r = test.request();
  Params p = constant_params(r, C::kRows, C::kTile, sharing);
  std::vector<float> workspace(workspace_of(p).total() / sizeof(float) + 64,
                               std::numeric_limits<float>::quiet_NaN());
  void* at = workspace.data();
  if (reinterpret_cast<uintptr_t>(at) % 16 != 0) at = workspace.data() + 2;
  test.out().poison();
  test.lse().poison();
  set_addresses(r, test.outputs(), at, &p);
  if (p.problem.appended > 0) {
    const append::Params rows = append::params_of(r);
    cuda_model::run({p.problem.batch * p.problem.appended, append::kThreads},
                    [&](void*) { append::cache_append(rows); });
  }
  cuda_model::Launch launch{static_cast<int>(forward_blocks(p)), C::kThreads};
  launch.cluster = sharing.join == Join::kCluster ? sharing.parts : 1;
  launch.shared_bytes = sizeof(SharedStorage<C>);
  launch.copies_land_late = late;
  const bool simple = is_simple(p, C::kE, C::kEv);
  cuda_model::run(launch, [&](void* shared) {
    simple ? decode_forward_simple<typename C::SimpleToo>(p, shared) : decode_forward<C>(p, shared);
  });
  if (combine_blocks(p) > 0)
    cuda_model::run({static_cast<int>(combine_blocks(p)), kCombineThreads},
                    [&](void*) { decode_combine<C::kType>(p); });
  const ReferenceResult& expected = test.reference();
  Tolerance tolerance = tolerance_for(r, false);
  std::string wrong = testing::compare(test.out().view(), expected.out, 4 * tolerance.out);
  if (wrong.empty() && r.wants.lse)
    wrong = testing::compare(test.lse().view(), expected.lse, 4 * tolerance.lse + 1e-4);
  if (wrong.empty()) wrong = test.out().damage();
  return wrong;
}

// Small enough that a block has several steps within few keys.
using Narrow = Config<Type16::kBf16, 32, 32, 1, 2, 1, 2, 1>;   // 16 rows, 2 teams, key tiles of 32
using Deep = Config<Type16::kF16, 64, 32, 1, 2, 2, 3, 1>;      // 2 units a step, 3 stages
using Tall = Config<Type16::kBf16, 32, 48, 4, 1, 4, 2, 1>;     // 64 rows, 4 warps share a chunk of 64 keys
using Between = Config<Type16::kBf16, 80, 48, 1, 2, 1, 2, 1>;  // sizes of instances compiled at first use
using Pairs = Config<Type16::kF16, 32, 32, 2, 2, 2, 2, 1>;     // 32 rows, 2 teams of 2 warps

template <class C>
CaseSpec spec(int64_t L, int64_t S) {
  CaseSpec s;
  s.dtype = C::kType == Type16::kBf16 ? DType::kBF16 : DType::kF16;
  s.B = 2, s.Hq = 4, s.Hk = 2, s.Hv = 2, s.L = L, s.S = S, s.E = C::kE, s.Ev = C::kEv;
  return s;
}

const Sharing kShares[] = {
    {1, 0, Join::kNone}, {3, 0, Join::kWorkspace}, {0, 5, Join::kWorkspace}, {2, 0, Join::kCluster}};

template <class C>
void check(const CaseSpec& s, bool all_shares = true) {
  static int n = 0;
  for (const Sharing& sharing : kShares) {
    if (!all_shares && &sharing - kShares > 1) break;
    ++n;
    AttentionCase test(s);
    test.reference();  // before an append changes the cache
    EXPECT_EQ(run_on_model<C>(test, sharing, n % 2 == 0), "")
        << s.name() << " parts " << sharing.parts << " join " << static_cast<int>(sharing.join);
  }
}

TEST(DecodeKernel, EveryWayToShareTheKeys) {
  for (const int64_t keys : {1, 31, 33, 200}) {
    check<Narrow>(spec<Narrow>(1, keys));
    check<Deep>(spec<Deep>(2, keys));
  }
  check<Tall>(spec<Tall>(5, 150));
  check<Between>(spec<Between>(2, 90));
  check<Pairs>(spec<Pairs>(9, 100));
}

TEST(DecodeKernel, MasksAndScales) {
  for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight})
    for (const Window window : {Window{}, Window{3, 2}, Window{40, -1}, Window{-1, 0}}) {
      CaseSpec s = spec<Narrow>(5, 90);
      s.causal = causal;
      s.window = window;
      check<Narrow>(s, false);
    }
  CaseSpec s = spec<Narrow>(7, 3);
  s.causal = CausalMode::kLowerRight;  // rows that see nothing
  check<Narrow>(s);
  s = spec<Narrow>(2, 70);
  s.softcap = 2;
  check<Narrow>(s, false);
  s.scale = -0.5;
  check<Narrow>(s, false);
}

TEST(DecodeKernel, LengthsAndPages) {
  for (int n = 0; n < 6; ++n) {
    CaseSpec s = spec<Narrow>(3, 75);
    s.B = 3;
    s.seed = static_cast<uint64_t>(n);
    s.causal = n % 2 == 0 ? CausalMode::kLowerRight : CausalMode::kNone;
    s.kv_lengths = s.poison_masked = n < 2;
    s.paged = n >= 2;
    s.append = n >= 4;
    check<Narrow>(s);
  }
}

TEST(DecodeKernel, LayoutsAndHeads) {
  for (const Layout layout :
       {Layout::kSeqMajor, Layout::kInterleaved, Layout::kHeadStride0, Layout::kBatchStride0}) {
    CaseSpec s = spec<Narrow>(1, 50);
    s.layout = layout;
    check<Narrow>(s, false);
  }
  CaseSpec s = spec<Narrow>(2, 50);
  s.Hq = 12, s.Hk = 2, s.Hv = 3;
  check<Narrow>(s, false);
  s.Hq = 20, s.Hk = s.Hv = 1;  // 40 rows: three tiles
  check<Narrow>(s);
  s = spec<Narrow>(1, 50);
  s.E = 8, s.Ev = 16;  // filled with zeros
  check<Narrow>(s, false);
}

TEST(DecodeKernel, ValuesThatAreNotFiniteStayWithTheRowsThatSeeThem) {
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    CaseSpec s = spec<Narrow>(4, 60);
    s.causal = CausalMode::kLowerRight;
    AttentionCase test(s);
    TensorView v = test.request().v;
    for (int64_t e = 0; e < s.Ev; e += 2) write_element(v, value, 1, 0, 58, e);
    EXPECT_EQ(run_on_model<Narrow>(test, {1, 0, Join::kNone}, true), "") << value;
  }
}

}  // namespace
}  // namespace attnscope::decode
