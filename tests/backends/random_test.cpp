// Random valid requests on every CPU backend against float64. A failure is shrunk before it is reported.
//
// ATTNSCOPE_RANDOM=<count> runs more of them, ATTNSCOPE_SEED=<n> others.

#include "attention/backend.h"
#include "support/attention_case.h"
#include "support/shrink.h"
#include "support/thinning.h"
#include "tensor/fill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace attnscope::testing {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(random_bits(seed_, index_++) % static_cast<uint64_t>(n));
  }
  bool one_in(int64_t n) { return below(n) == 0; }
  // Small sizes mostly, with the edges of tiles and vectors among them.
  int64_t size(int64_t most) {
    static constexpr int64_t kEdges[] = {1,  2,  3,  7,  8,   15,  16,  17,  31, 32,
                                         33, 63, 64, 65, 127, 128, 129, 191, 257};
    int64_t n = one_in(3) ? 1 + below(most) : kEdges[below(std::size(kEdges))];
    return n > most ? 1 + n % most : n;
  }

 private:
  uint64_t seed_, index_ = 0;
};

CaseSpec random_case(uint64_t seed) {
  Random r(seed);
  CaseSpec s;
  s.seed = seed;
  s.dtype = static_cast<DType>(r.below(4));
  s.B = 1 + r.below(3);
  s.Hk = 1 + r.below(3);
  s.Hq = s.Hk * (1 + r.below(4));
  s.Hv = r.one_in(4) ? s.Hq : s.Hk;
  s.L = r.size(140);
  s.S = r.size(260);
  s.E = r.size(128);
  s.Ev = r.one_in(2) ? s.E : r.size(128);
  s.causal = static_cast<CausalMode>(r.below(3));
  s.mask = r.one_in(2) ? static_cast<MaskSpec>(r.below(9)) : MaskSpec::kNone;
  s.layout = static_cast<Layout>(r.below(7));
  if (r.one_in(4)) s.window = {r.below(40) - 1, r.below(40) - 1};
  if (r.one_in(4)) s.scale = static_cast<double>(r.below(9) - 4) / 8.0;
  if (r.one_in(6)) s.softcap = 1.0 + static_cast<double>(r.below(20));
  if (r.one_in(6)) s.dropout = static_cast<double>(1 + r.below(9)) / 10.0;
  switch (r.below(6)) {
    case 0:
      s.kv_lengths = true;
      // A batch of stride 0 shares its keys: poisoning one entry's tail would reach the others.
      s.poison_masked = r.one_in(2) && s.layout != Layout::kBatchStride0;
      break;
    case 1:
      s.paged = true;
      s.append = r.one_in(2) && s.layout != Layout::kBatchStride0 && s.layout != Layout::kHeadStride0;
      if (s.layout == Layout::kBatchStride0) s.layout = Layout::kDense;
      break;
    case 2:
      s.packed = true;
      s.B = 1;
      break;
    default: break;
  }
  return s;
}

struct Verdict {
  std::string backend, what;
  bool wrong() const { return !what.empty(); }
};

Verdict check(const CaseSpec& spec, std::map<std::string, int>* ran = nullptr) {
  for (const Backend* backend : registered_backends()) {
    if (backend->device() != DeviceType::kCpu || !backend->unavailable_reason().empty()) continue;
    const std::string name(backend->name());
    const bool formula = name == "naive" || name == "inplace";
    CaseSpec own = spec;
    own.lse = !formula;
    AttentionCase test(own);
    if (const Status valid = validate(test.request()); !valid)
      return {name, "invalid: " + valid.error().message};
    if (!backend->refusals(test.request()).empty()) continue;
    const ReferenceResult& expected = test.reference();
    if (const Status status = sdpa(test.request(), test.outputs(), {{name}}); !status)
      return {name, status.error().message};
    const Tolerance tolerance = tolerance_for(test.request(), formula);
    std::string what =
        compare(test.out().view(), expected.out, tolerance.out, formula ? &expected.lse : nullptr);
    if (what.empty() && own.lse) what = compare(test.lse().view(), expected.lse, tolerance.lse);
    if (what.empty()) what = test.out().damage();
    if (!what.empty()) return {name, what};
    if (ran != nullptr) ++(*ran)[name];
  }
  return {};
}

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(RandomRequests, AgreeWithTheOracleOnEveryBackend) {
  const uint64_t count = from_environment("ATTNSCOPE_RANDOM", kSanitized && !full_grid() ? 40 : 150),
                 first = from_environment("ATTNSCOPE_SEED", 1) * 1000003;
  std::map<std::string, int> ran;
  for (uint64_t n = 0; n < count; ++n) {
    const CaseSpec spec = random_case(first + n);
    const Verdict verdict = check(spec, &ran);
    if (!verdict.wrong()) continue;
    const CaseSpec small = shrink(spec, [](const CaseSpec& s) { return check(s).wrong(); });
    const Verdict smallest = check(small);
    FAIL() << smallest.backend << ": " << smallest.what << "\n  smallest failing: " << small.name()
           << "\n  found as: " << spec.name();
  }
  if (count >= 100) {
    for (const char* name : {"math", "naive", "inplace", "flash", "efficient"})
      EXPECT_GT(ran[name], 10) << name;
  }
}

TEST(Shrink, FindsTheSmallestCaseThatStillFails) {
  CaseSpec big = random_case(5);
  big.S = 200;
  big.L = 90;
  big.causal = CausalMode::kTopLeft;
  big.kv_lengths = true;
  big.packed = big.paged = big.append = big.poison_masked = false;
  const CaseSpec small =
      shrink(big, [](const CaseSpec& s) { return s.S > 10 && s.causal == CausalMode::kTopLeft; });
  EXPECT_EQ(small.S, 11);
  EXPECT_EQ(small.causal, CausalMode::kTopLeft);
  EXPECT_EQ(small.L, 1);
  EXPECT_EQ(small.B * small.Hq * small.E * small.Ev, 1);
  EXPECT_EQ(small.dtype, DType::kF32);
  EXPECT_FALSE(small.kv_lengths);
}

}  // namespace
}  // namespace attnscope::testing
