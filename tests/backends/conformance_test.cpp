// Every registered CPU backend against the float64 oracle, over a grid of requests. Outputs start as NaN
// inside guard bands; every element is compared, NaN and infinities by position. A backend that refuses says
// why, and the grid insists that math never does and that every backend is exercised.
//
// ATTNSCOPE_GRID=full takes every combination instead of a rotating layout per combination.

#include "attention/backend.h"
#include "support/attention_case.h"
#include "support/thinning.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>

namespace attnscope::testing {
namespace {

bool keeps_formula(std::string_view backend) {
  return backend == "naive" || backend == "inplace";
}

// Counts per backend over a test: how often it ran, how often it refused.
struct Tally {
  std::map<std::string, int> ran, refused;
  uint64_t asked = 0;
};

using Change = std::function<void(AttentionCase&)>;

void check_case(const CaseSpec& spec, Tally& tally, const Change& change = [](AttentionCase&) {}) {
  if (thinned_out(tally.asked++ + static_cast<uint64_t>(spec.dtype), 5)) return;
  CaseSpec with_lse = spec, without_lse = spec;
  without_lse.lse = false;
  AttentionCase full(with_lse), plain(without_lse);
  change(full);
  change(plain);
  for (const Backend* backend : registered_backends()) {
    if (backend->device() != DeviceType::kCpu || !backend->unavailable_reason().empty()) continue;
    const std::string name(backend->name());
    AttentionCase& test = keeps_formula(name) ? plain : full;
    ASSERT_TRUE(validate(test.request())) << spec.name() << ": " << validate(test.request()).error().message;
    if (const auto refusals = backend->refusals(test.request()); !refusals.empty()) {
      ++tally.refused[name];
      ASSERT_NE(name, "math") << spec.name() << ": " << refusals.front().message;
      for (const Refusal& r : refusals) EXPECT_FALSE(r.code.empty() || r.message.empty()) << name;
      continue;
    }
    const ReferenceResult& expected = test.reference();  // before the run: an append changes the cache
    test.out().poison();
    test.lse().poison();
    const Status status = sdpa(test.request(), test.outputs(), {{name}});
    ASSERT_TRUE(status) << name << ": " << spec.name() << ": " << status.error().message;
    const Tolerance tolerance = tolerance_for(test.request(), keeps_formula(name));
    EXPECT_EQ(compare(test.out().view(), expected.out, tolerance.out,
                      keeps_formula(name) ? &expected.lse : nullptr),
              "")
        << name << " out: " << spec.name();
    if (test.spec().lse) {
      EXPECT_EQ(compare(test.lse().view(), expected.lse, tolerance.lse), "")
          << name << " lse: " << spec.name();
    }
    EXPECT_EQ(test.out().damage(), "") << name << ": " << spec.name();
    EXPECT_EQ(test.lse().damage(), "") << name << ": " << spec.name();
    test.restore_cache();
    ++tally.ran[name];
  }
}

const DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
const Layout kLayouts[] = {Layout::kDense,       Layout::kSeqMajor,    Layout::kOddOffset,
                           Layout::kLastStride2, Layout::kInterleaved, Layout::kHeadStride0,
                           Layout::kBatchStride0};

struct Shape {
  int64_t B, Hq, Hk, Hv, L, S, E, Ev;
};
const Shape kShapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1},    {2, 2, 2, 2, 17, 17, 8, 8},     {1, 4, 2, 2, 33, 65, 24, 40},
    {2, 6, 2, 3, 5, 70, 40, 24}, {1, 8, 1, 1, 1, 129, 64, 64},   {1, 2, 2, 2, 130, 70, 64, 64},
    {3, 2, 1, 2, 7, 3, 13, 5},   {1, 2, 2, 2, 64, 64, 128, 128}, {1, 3, 3, 1, 2, 200, 96, 256},
    {2, 5, 1, 5, 31, 33, 1, 3},
};
const MaskSpec kMasks[] = {MaskSpec::kNone,     MaskSpec::kBoolFull,   MaskSpec::kBoolKeys,
                           MaskSpec::kBoolRows, MaskSpec::kBool2d,     MaskSpec::kBiasHeads,
                           MaskSpec::kBiasF32,  MaskSpec::kBiasNegInf, MaskSpec::kBiasTransposed};

CaseSpec spec_of(const Shape& s, DType dtype) {
  CaseSpec spec;
  spec.dtype = dtype;
  spec.B = s.B;
  spec.Hq = s.Hq;
  spec.Hk = s.Hk;
  spec.Hv = s.Hv;
  spec.L = s.L;
  spec.S = s.S;
  spec.E = s.E;
  spec.Ev = s.Ev;
  return spec;
}

class ConformanceGrid : public ::testing::TestWithParam<DType> {};

TEST_P(ConformanceGrid, ShapesMasksCausalLayouts) {
  Tally tally;
  uint64_t n = 0;
  for (const Shape& shape : kShapes)
    for (const MaskSpec mask : kMasks)
      for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight}) {
        ++n;
        if (!full_grid() && mask != MaskSpec::kNone && n % 3 != 0) continue;
        for (size_t l = 0; l < std::size(kLayouts); ++l) {
          if (!full_grid() && l != (n / 3 + n) % std::size(kLayouts)) continue;
          CaseSpec spec = spec_of(shape, GetParam());
          spec.mask = mask;
          spec.causal = causal;
          spec.layout = kLayouts[l];
          spec.seed = n;
          check_case(spec, tally);
          if (HasFatalFailure()) return;
        }
      }
  for (const char* name : {"naive", "inplace", "math"}) EXPECT_GT(tally.ran[name], 0) << name;
  for (const char* name : {"flash", "efficient"})
    if (GetParam() != DType::kF64) {
      EXPECT_EQ(tally.refused[name], 0) << name;
      EXPECT_GT(tally.ran[name], 0) << name;
    }
}

TEST_P(ConformanceGrid, EveryLayout) {
  Tally tally;
  for (const Shape& shape : {kShapes[2], kShapes[3], kShapes[4], kShapes[5]})
    for (const Layout layout : kLayouts) {
      CaseSpec spec = spec_of(shape, GetParam());
      spec.layout = layout;
      spec.causal = CausalMode::kLowerRight;
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
}

TEST_P(ConformanceGrid, ScalesAndSoftcap) {
  Tally tally;
  for (const double scale : {0.0, -1.0, 0.25, 1e-30, 3.0})
    for (const double softcap : {0.0, 2.0}) {
      CaseSpec spec = spec_of(kShapes[2], GetParam());
      spec.scale = scale;
      spec.softcap = softcap;
      spec.causal = CausalMode::kTopLeft;
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
}

TEST_P(ConformanceGrid, Windows) {
  Tally tally;
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const Window window :
       {Window{2, 0}, Window{0, 0}, Window{5, 3}, Window{-1, 2}, Window{40, -1}, Window{kHuge, kHuge}})
    for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight})
      for (const Shape& shape : {kShapes[2], kShapes[5]}) {
        CaseSpec spec = spec_of(shape, GetParam());
        spec.window = window;
        spec.causal = causal;
        spec.seed = static_cast<uint64_t>(window.left) + 3;
        check_case(spec, tally);
        if (HasFatalFailure()) return;
      }
}

TEST_P(ConformanceGrid, LengthsPackedPaged) {
  Tally tally;
  for (int n = 0; n < 12; ++n)
    for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight}) {
      CaseSpec spec = spec_of(n % 2 == 0 ? kShapes[3] : kShapes[1], GetParam());
      spec.causal = causal;
      spec.seed = static_cast<uint64_t>(n);
      spec.layout = kLayouts[static_cast<size_t>(n) % 5];
      if (n % 3 == 0) {
        spec.kv_lengths = true;
        spec.poison_masked = n >= 6;
        spec.mask = n == 3 ? MaskSpec::kBoolKeys : MaskSpec::kNone;
      } else if (n % 3 == 1) {
        spec.packed = true;
        spec.B = 1;
        spec.L = 40;
        spec.S = 57;
        spec.window = n > 6 ? Window{4, 1} : Window{};
      } else {
        spec.paged = true;
        spec.append = n > 5;
        spec.S = 24;
      }
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
  EXPECT_EQ(tally.refused["math"], 0);
}

TEST_P(ConformanceGrid, Dropout) {
  Tally tally;
  for (const double p : {0.1, 0.5, 1.0})
    for (const Shape& shape : {kShapes[1], kShapes[3], kShapes[6]}) {
      CaseSpec spec = spec_of(shape, GetParam());
      spec.dropout = p;
      spec.causal = CausalMode::kTopLeft;
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
}

TEST_P(ConformanceGrid, EmptySizes) {
  Tally tally;
  for (const Shape& shape :
       {Shape{0, 2, 2, 2, 3, 4, 8, 8}, Shape{2, 0, 1, 1, 3, 4, 8, 8}, Shape{2, 2, 2, 2, 0, 4, 8, 8},
        Shape{2, 2, 2, 2, 3, 0, 8, 8}, Shape{2, 2, 2, 2, 3, 4, 0, 8}, Shape{2, 2, 2, 2, 3, 4, 8, 0}})
    for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft}) {
      CaseSpec spec = spec_of(shape, GetParam());
      spec.causal = causal;
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
}

// NaN and infinity reach exactly the rows that the formula says: a dropped weight is a factor 0, and with all
// of them dropped (p = 1) no value is looked at.
TEST_P(ConformanceGrid, NotFinite) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                   kInf = std::numeric_limits<double>::infinity();
  Tally tally;
  for (const double p : {0.0, 0.5, 1.0})
    for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft})
      for (const double value : {kNan, kInf, -kInf})
        for (const char where : {'q', 'k', 'v'}) {
          CaseSpec spec = spec_of(kShapes[2], GetParam());
          spec.dropout = p;
          spec.causal = causal;
          check_case(spec, tally, [&](AttentionCase& c) {
            Request& r = c.request();
            write_element(where == 'q' ? r.q : where == 'k' ? r.k : r.v, value, 0, 1, 3, 2);
          });
          if (HasFatalFailure()) return;
        }
}

TEST_P(ConformanceGrid, FiniteBiasesBeyondF32) {
  Tally tally;
  const Tensor lowest = *Tensor::empty(DType::kF64, {1, kShapes[2].S});
  for (const double bias : {-1e308, std::numeric_limits<double>::lowest()}) {
    for (int64_t j = 0; j < kShapes[2].S; ++j) write_element(lowest, j % 3 == 0 ? 0.0 : bias, 0, j);
    check_case(spec_of(kShapes[2], GetParam()), tally, [&](AttentionCase& c) {
      c.request().mask_kind = MaskKind::kBias;
      c.request().mask = lowest;
    });
    if (HasFatalFailure()) return;
  }
  // All keys of a row have it: the scores below it are lost, but the row is not empty.
  if (dtype_is_half(GetParam())) return;  // naive and inplace store them in the type, where it is −infinity
  for (int64_t j = 0; j < kShapes[2].S; ++j) write_element(lowest, -1e308, 0, j);
  CaseSpec spec = spec_of(kShapes[2], GetParam());
  for (const char* name : {"flash", "efficient", "math", "naive", "inplace"}) {
    spec.lse = !keeps_formula(name);
    AttentionCase test(spec);
    test.request().mask_kind = MaskKind::kBias;
    test.request().mask = lowest;
    const Backend* backend = find_backend(name, DeviceType::kCpu);
    if (!backend->refusals(test.request()).empty()) continue;
    ASSERT_TRUE(sdpa(test.request(), test.outputs(), {{name}})) << name;
    EXPECT_EQ(compare(test.out().view(), test.reference().out, tolerance_for(test.request(), false).out), "")
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ConformanceGrid, ::testing::ValuesIn(kTypes),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace attnscope::testing
