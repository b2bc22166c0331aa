// Every registered CUDA backend against the float64 oracle over a grid of requests; skipped without a GPU.
// Outputs start as NaN; every element is compared, NaN and infinities by position.
#include "attention/backend.h"
#include "support/device_case.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace attnscope::testing {
namespace {

bool keeps_formula(std::string_view backend) {
  return backend == "naive" || backend == "inplace";
}

// Fused kernels keep P in 16 bits for the second product; unfused 16-bit variants round every step.
double slack(std::string_view backend, DType dtype) {
  if (dtype == DType::kF32) return backend == "math" ? 4 : 8;
  return keeps_formula(backend) ? 2 : 4;
}

struct Tally {
  std::map<std::string, int> ran, refused;
};

void check_case(const CaseSpec& spec, Tally& tally) {
  for (const Backend* backend : registered_backends()) {
    if (backend->device() != DeviceType::kCuda || !backend->unavailable_reason().empty()) continue;
    const std::string name(backend->name());
    CaseSpec own = spec;
    own.lse = !keeps_formula(name);
    AttentionCase host(own);
    const Request& view = host.request();
    ASSERT_TRUE(validate(view)) << spec.name();
    DeviceCase device(host);
    if (const auto refusals = backend->refusals(device.request()); !refusals.empty()) {
      ++tally.refused[name];
      for (const Refusal& r : refusals) EXPECT_FALSE(r.code.empty() || r.message.empty()) << name;
      continue;
    }
    const ReferenceResult& expected = host.reference();
    const Status status = sdpa(device.request(), device.outputs(), {{name}}, device.options());
    ASSERT_TRUE(status) << name << ": " << spec.name() << ": " << status.error().message;
    const Status fetched = device.fetch();
    ASSERT_TRUE(fetched) << name << ": " << spec.name() << ": " << fetched.error().message;
    Tolerance tolerance = tolerance_for(view, keeps_formula(name));
    tolerance.out *= slack(name, spec.dtype);
    tolerance.lse = tolerance.lse * 4 + (spec.dtype == DType::kF32 ? 0 : 1e-4);
    EXPECT_EQ(compare(host.out().view(), expected.out, tolerance.out,
                      keeps_formula(name) ? &expected.lse : nullptr),
              "")
        << name << " out: " << spec.name();
    if (own.lse) {
      EXPECT_EQ(compare(host.lse().view(), expected.lse, tolerance.lse), "")
          << name << " lse: " << spec.name();
    }
    EXPECT_EQ(host.out().damage(), "") << name << ": " << spec.name();
    ++tally.ran[name];
  }
}

const DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
const Layout kLayouts[] = {Layout::kDense,       Layout::kSeqMajor,    Layout::kOddOffset,
                           Layout::kLastStride2, Layout::kInterleaved, Layout::kHeadStride0,
                           Layout::kBatchStride0};
struct Shape {
  int64_t B, Hq, Hk, Hv, L, S, E, Ev;
};
const Shape kShapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1},      {2, 2, 2, 2, 17, 17, 8, 8},     {1, 4, 2, 2, 33, 65, 24, 40},
    {2, 6, 2, 3, 5, 70, 40, 24},   {1, 8, 1, 1, 1, 129, 64, 64},   {1, 2, 2, 2, 130, 70, 64, 64},
    {3, 2, 1, 2, 7, 3, 13, 5},     {1, 2, 2, 2, 64, 64, 128, 128}, {2, 4, 2, 2, 256, 256, 64, 64},
    {1, 1, 1, 1, 9, 2100, 16, 16}, {1, 1, 1, 1, 3, 17000, 8, 8},   {2, 2, 2, 2, 192, 320, 128, 128},
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

// On a Hopper GPU flash takes these features itself.
void expect_flash_ran(const Tally& tally, DType dtype) {
  const Backend* flash = find_backend("flash", DeviceType::kCuda);
  if (flash == nullptr || !flash->unavailable_reason().empty() || !dtype_is_half(dtype)) return;
  EXPECT_GT(tally.ran.count("flash") != 0 ? tally.ran.at("flash") : 0, 0);
}

class CudaConformance : public ::testing::TestWithParam<DType> {};

TEST_P(CudaConformance, ShapesMasksCausalLayouts) {
  Tally tally;
  uint64_t n = 0;
  for (const Shape& shape : kShapes)
    for (const MaskSpec mask : kMasks)
      for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight}) {
        ++n;
        if (mask != MaskSpec::kNone && n % 3 != 0) continue;
        CaseSpec spec = spec_of(shape, GetParam());
        spec.mask = mask;
        spec.causal = causal;
        spec.layout = kLayouts[(n / 3 + n) % std::size(kLayouts)];
        spec.seed = n;
        check_case(spec, tally);
        if (HasFatalFailure()) return;
      }
  for (const char* name : {"naive", "inplace", "math"}) EXPECT_GT(tally.ran[name], 10) << name;
}

TEST_P(CudaConformance, EveryLayout) {
  Tally tally;
  for (const Shape& shape : {kShapes[2], kShapes[3], kShapes[5], kShapes[8]})
    for (const Layout layout : kLayouts) {
      CaseSpec spec = spec_of(shape, GetParam());
      spec.layout = layout;
      spec.causal = CausalMode::kLowerRight;
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
}

TEST_P(CudaConformance, ScalesAndSoftcap) {
  Tally tally;
  for (const double scale : {0.0, -1.0, 0.25, 3.0})
    for (const double softcap : {0.0, 2.0}) {
      CaseSpec spec = spec_of(kShapes[8], GetParam());
      spec.scale = scale;
      spec.softcap = softcap;
      spec.causal = CausalMode::kTopLeft;
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
  expect_flash_ran(tally, GetParam());
}

TEST_P(CudaConformance, Windows) {
  Tally tally;
  for (const Window window : {Window{2, 0}, Window{0, 0}, Window{5, 3}, Window{-1, 2}, Window{40, -1}})
    for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight}) {
      CaseSpec spec = spec_of(kShapes[5], GetParam());
      spec.window = window;
      spec.causal = causal;
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
  expect_flash_ran(tally, GetParam());
}

TEST_P(CudaConformance, LengthsAndPackedSequences) {
  Tally tally;
  for (int n = 0; n < 8; ++n)
    for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight}) {
      CaseSpec spec = spec_of(n % 2 == 0 ? kShapes[3] : kShapes[8], GetParam());
      spec.causal = causal;
      spec.seed = static_cast<uint64_t>(n);
      spec.layout = kLayouts[static_cast<size_t>(n) % 5];
      if (n % 4 < 2) {
        spec.kv_lengths = true;
        spec.poison_masked = n >= 4;
      } else {
        spec.packed = true;
        spec.B = 1;
        spec.L = 40;
        spec.S = 57;
        spec.window = n > 4 ? Window{4, 1} : Window{};
      }
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
  EXPECT_EQ(tally.refused["math"], 0);
  expect_flash_ran(tally, GetParam());
}

// What decoding with a cache asks for: few rows, heads that share keys, lengths, pages, appended keys.
TEST_P(CudaConformance, FewRowsPagesAndAppend) {
  Tally tally;
  for (int n = 0; n < 16; ++n) {
    CaseSpec spec =
        spec_of({3, 8, 2, 2, 1 + n % 4, 70 + 61 * (n % 3), n % 2 == 0 ? 64 : 128, 64}, GetParam());
    spec.seed = static_cast<uint64_t>(n);
    spec.causal = n % 4 == 0 ? CausalMode::kNone : CausalMode::kLowerRight;
    spec.layout = n % 3 == 0 ? Layout::kSeqMajor : Layout::kDense;
    spec.kv_lengths = spec.poison_masked = n % 4 == 1;
    spec.paged = n % 4 > 1;
    spec.append = n % 4 == 3;
    if (n > 8) spec.window = Window{33, 0};
    check_case(spec, tally);
    if (HasFatalFailure()) return;
  }
  if (GetParam() != DType::kF32) {
    EXPECT_EQ(tally.refused["decode"], 0);
  }
}

// A prompt that continues a cache: many rows, whose keys are appended first; pages of every usual size.
TEST_P(CudaConformance, ManyRowsPagesAndAppend) {
  Tally tally;
  int n = 0;
  for (const int64_t page_size : {16, 32, 64, 128, 256, 24}) {
    CaseSpec spec = spec_of({3, 4, 2, 2, 100 + 31 * (n % 3), 300, n % 2 == 0 ? 64 : 128, 64}, GetParam());
    spec.seed = static_cast<uint64_t>(++n);
    spec.paged = spec.append = true;
    spec.page_size = page_size;
    spec.appended = spec.L;
    spec.causal = n % 3 == 0 ? CausalMode::kNone : CausalMode::kLowerRight;
    spec.layout = n % 2 == 0 ? Layout::kSeqMajor : n == 5 ? Layout::kLastStride2 : Layout::kDense;
    if (n == 4) spec.window = Window{33, 0};
    check_case(spec, tally);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(tally.refused["efficient"], 0);
  if (GetParam() != DType::kF32) {
    EXPECT_EQ(tally.refused["flash_sm80"], 1) << "columns that are not contiguous";
  }
}

// Absorbed MLA: wide heads, of which many share one key head; V narrower than K.
TEST_P(CudaConformance, WideHeadsThatShareKeys) {
  Tally tally;
  for (int n = 0; n < 8; ++n) {
    const Shape shape{2, 16, 1 + n % 2, 1 + n % 2, 1 + n % 3, 70 + 61 * (n % 3), n < 6 ? 576 : 320, 512};
    CaseSpec spec = spec_of(shape, GetParam());
    spec.seed = static_cast<uint64_t>(n);
    spec.causal = n % 3 == 0   ? CausalMode::kNone
                  : n % 3 == 1 ? CausalMode::kTopLeft
                               : CausalMode::kLowerRight;
    spec.layout = n % 3 == 0 ? Layout::kSeqMajor : Layout::kDense;
    spec.kv_lengths = spec.poison_masked = n % 4 == 1;
    if (n == 5) spec.window = Window{33, 0};
    if (n == 6) spec.softcap = 2;
    check_case(spec, tally);
    if (HasFatalFailure()) return;
  }
  const Backend* mla = find_backend("mla", DeviceType::kCuda);
  if (mla != nullptr && mla->unavailable_reason().empty() && dtype_is_half(GetParam())) {
    EXPECT_EQ(tally.ran["mla"], 8);
  }
}

TEST_P(CudaConformance, Dropout) {
  Tally tally;
  for (const double p : {0.1, 0.5, 1.0})
    for (const Shape& shape : {kShapes[1], kShapes[3], kShapes[8]}) {
      CaseSpec spec = spec_of(shape, GetParam());
      spec.dropout = p;
      spec.causal = CausalMode::kTopLeft;
      check_case(spec, tally);
      if (HasFatalFailure()) return;
    }
  expect_flash_ran(tally, GetParam());
}

TEST_P(CudaConformance, EmptySizes) {
  Tally tally;
  for (const Shape& shape :
       {Shape{0, 2, 2, 2, 3, 4, 8, 8}, Shape{2, 2, 2, 2, 0, 4, 8, 8}, Shape{2, 2, 2, 2, 3, 0, 8, 8},
        Shape{2, 2, 2, 2, 3, 4, 0, 8}, Shape{2, 2, 2, 2, 3, 4, 8, 0}}) {
    check_case(spec_of(shape, GetParam()), tally);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaConformance, ::testing::ValuesIn(kTypes),
                         [](const auto& param) { return std::string(dtype_name(param.param)); });

}  // namespace
}  // namespace attnscope::testing
