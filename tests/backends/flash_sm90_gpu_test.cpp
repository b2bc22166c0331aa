// flash on a Hopper GPU beyond the conformance grid: outputs that are not 16-byte aligned, every feature at
// every head size, values that are not finite behind a mask, a captured graph replayed over changing inputs.
// Skipped without a GPU; a GPU that is no Hopper skips each test.
#include "attention/backend.h"
#include "cuda/device.h"
#include "cuda/status.h"
#include "support/device_case.h"
#include "tensor/fill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

namespace attnscope::testing {
namespace {

class FlashSm90Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = find_backend("flash", DeviceType::kCuda)->unavailable_reason(); !why.empty())
      GTEST_SKIP() << why;
  }
};

// Where an output [B, H, L, Ev] lies: elements before the first, strides of row and column.
struct Placement {
  const char* name;
  int64_t before, row_gap, column_stride;
};

CaseSpec spec_of(DType dtype, int64_t head_dim, CausalMode causal) {
  CaseSpec spec;
  spec.dtype = dtype;
  spec.B = 2;
  spec.Hq = 3;
  spec.Hk = spec.Hv = 1;
  spec.L = 77;
  spec.S = 150;
  spec.E = spec.Ev = head_dim;
  spec.causal = causal;
  return spec;
}

// Runs `request` into a poisoned output placed so; every element of the output and none beside it is written.
// `columns`: of v's that count, the rest is padding.
void check_placement(const CaseSpec& spec, const Placement& place, int64_t columns) {
  AttentionCase host(spec);
  host.request().v.sizes[3] = columns;
  DeviceCase device(host);
  const int64_t row = columns * place.column_stride + place.row_gap, head = spec.L * row;
  const int64_t sizes[] = {spec.B, spec.Hq, spec.L, columns};
  const int64_t strides[] = {spec.Hq * head, head, row, place.column_stride};
  const int64_t elements = place.before + spec.B * spec.Hq * head + 8;
  const Tensor pool = DeviceCase::must(Tensor::empty(spec.dtype, {elements}));
  std::memset(pool.storage().data(), 0xff, pool.storage().size());
  auto on_device = DeviceCase::must(cuda::DeviceTensor::copy_of(pool.view(), 0, device.stream()));
  const auto view_in = [&](const TensorView& storage) {
    TensorView v = storage;
    v.rank = 4;
    std::copy(sizes, sizes + 4, v.sizes.begin());
    std::copy(strides, strides + 4, v.strides.begin());
    v.data = static_cast<uint16_t*>(storage.data) + place.before;
    return v;
  };
  Outputs outputs = device.outputs();
  outputs.out = view_in(on_device.view());
  const Status ran = sdpa(device.request(), outputs, {{"flash"}}, device.options());
  ASSERT_TRUE(ran) << ran.error().message;
  ASSERT_TRUE(on_device.copy_to(pool.view(), device.stream()));
  const std::string where = fmt::format("{} {}", spec.name(), place.name);
  EXPECT_EQ(compare(view_in(pool.view()), host.reference().out, tolerance_for(host.request(), false).out * 4),
            "")
      << where;
  std::vector<bool> inside(static_cast<size_t>(elements));
  for (int64_t n = 0; n < spec.B * spec.Hq * spec.L; ++n)
    for (int64_t e = 0; e < columns; ++e)
      inside[static_cast<size_t>(place.before + n * row + e * place.column_stride)] = true;
  for (int64_t i = 0; i < elements; ++i)
    if (!inside[static_cast<size_t>(i)]) {
      ASSERT_EQ(pool.as<uint16_t>()[i], 0xffff)
          << where << ": element " << i << " beside the output was written";
    }
}

TEST_F(FlashSm90Gpu, OutputsOfAnyAlignmentAreWrittenWholeAndAlone) {
  const Placement places[] = {{"one element in", 1, 0, 1},
                              {"four elements in", 4, 0, 1},
                              {"rows an odd distance apart", 0, 1, 1},
                              {"odd start, odd rows", 3, 5, 1},
                              {"every other element", 0, 0, 2},
                              {"every third, odd start", 1, 2, 3}};
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const int64_t head_dim : {64, 128, 256})
      for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight})
        for (const Placement& place : places) {
          check_placement(spec_of(dtype, head_dim, causal), place, head_dim);
          if (HasFatalFailure()) return;
        }
}

// Columns that do not fill 16 bytes, in rows that start on them: a vector store would write past the last
// column.
TEST_F(FlashSm90Gpu, TheLastColumnsArePartOfAVector) {
  for (const int64_t columns : {5, 60, 133, 250})
    for (const Window window : {Window{}, Window{60, 0}}) {
      CaseSpec spec = spec_of(DType::kBF16, 256, CausalMode::kTopLeft);
      spec.Ev = (columns + 7) / 8 * 8;
      spec.window = window;
      check_placement(spec, {"rows padded to 16 bytes", 0, spec.Ev - columns, 1}, columns);
      if (HasFatalFailure()) return;
    }
}

// ---- Features, one at a time and together
struct Feature {
  const char* name;
  void (*set)(CaseSpec&);
  bool sinks = false, slopes = false, device_seed = false;
};
const Feature kFeatures[] = {
    {"window", [](CaseSpec& s) { s.window = {40, 3}; }},
    {"causal window", [](CaseSpec& s) { s.window = {70, -1}, s.causal = CausalMode::kLowerRight; }},
    {"window right", [](CaseSpec& s) { s.window = {-1, 5}; }},
    {"lengths", [](CaseSpec& s) { s.kv_lengths = s.poison_masked = true; }},
    {"lengths, causal",
     [](CaseSpec& s) { s.kv_lengths = s.poison_masked = true, s.causal = CausalMode::kLowerRight; }},
    {"packed", [](CaseSpec& s) { s.packed = true, s.B = 1; }},
    {"packed, causal window",
     [](CaseSpec& s) { s.packed = true, s.B = 1, s.causal = CausalMode::kTopLeft, s.window = {30, -1}; }},
    {"sinks", [](CaseSpec& s) { s.causal = CausalMode::kTopLeft; }, true},
    {"ALiBi", [](CaseSpec& s) { s.causal = CausalMode::kLowerRight; }, false, true},
    {"softcap", [](CaseSpec& s) { s.softcap = 3, s.scale = 0.7; }},
    {"dropout", [](CaseSpec& s) { s.dropout = 0.3, s.causal = CausalMode::kTopLeft; }},
    {"dropout, seed on the device", [](CaseSpec& s) { s.dropout = 0.6; }, false, false, true},
    {"dropout, packed", [](CaseSpec& s) { s.dropout = 0.25, s.packed = true, s.B = 1; }},
    {"all of it",
     [](CaseSpec& s) {
       s.window = {90, 8}, s.kv_lengths = s.poison_masked = true, s.softcap = 9, s.dropout = 0.2;
       s.causal = CausalMode::kNone;
     },
     true, true, true}};

void check_feature(CaseSpec spec, const Feature& feature) {
  feature.set(spec);
  AttentionCase host(spec);
  const Tensor sinks = DeviceCase::must(Tensor::empty(spec.dtype, {spec.Hq}));
  const Tensor slopes = DeviceCase::must(Tensor::empty(DType::kF32, {spec.Hq}));
  for (int64_t h = 0; h < spec.Hq; ++h) {
    write_element(sinks, 1.5 * static_cast<double>(h) - 2, h);
    write_element(slopes, 0.3 / static_cast<double>(1 + h), h);
  }
  if (feature.sinks) host.request().sinks = sinks;
  if (feature.slopes) host.request().alibi_slopes = slopes;
  const Tensor seed = DeviceCase::must(Tensor::empty(DType::kI64, {2}));
  seed.as<uint64_t>()[0] = 0x0123456789abcdefull;
  seed.as<uint64_t>()[1] = 3;
  if (feature.device_seed) host.request().dropout.seed_on_device = seed.as<uint64_t>();
  ASSERT_TRUE(validate(host.request()));
  DeviceCase device(host);
  const auto seed_there = DeviceCase::must(cuda::DeviceTensor::copy_of(seed.view(), 0, device.stream()));
  Request request = device.request();
  if (feature.device_seed) request.dropout.seed_on_device = seed_there.view().as<uint64_t>();
  const std::string where = fmt::format("{}: {}", feature.name, spec.name());
  const Status ran = sdpa(request, device.outputs(), {{"flash"}}, device.options());
  ASSERT_TRUE(ran) << where << ": " << ran.error().message;
  ASSERT_TRUE(device.fetch());
  const Tolerance tolerance = tolerance_for(host.request(), false);
  EXPECT_EQ(compare(host.out().view(), host.reference().out, tolerance.out * 4), "") << where;
  EXPECT_EQ(compare(host.lse().view(), host.reference().lse, tolerance.lse * 4 + 1e-4), "") << where;
  EXPECT_EQ(host.out().damage(), "") << where;
  const auto plan = attnscope::plan(request, {{"flash"}});
  ASSERT_TRUE(plan);
  EXPECT_EQ((*plan)->cost().kernels, 1) << where << ": one kernel, and nothing read on the host";
}

TEST_F(FlashSm90Gpu, EveryFeatureAtEveryHeadSize) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const auto& [e, ev] : {std::pair{64, 64}, {40, 24}, {128, 128}, {192, 128}, {256, 256}})
      for (const Feature& feature : kFeatures) {
        CaseSpec spec = spec_of(dtype, e, CausalMode::kNone);
        spec.Ev = ev;
        spec.L = 201;
        spec.S = 300;
        check_feature(spec, feature);
        if (HasFatalFailure()) return;
      }
}

// Bool-like masks are selects: what a masked value holds never matters, what a seen one holds does.
TEST_F(FlashSm90Gpu, ValuesThatAreNotFiniteReachOnlyRowsThatSeeThem) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const auto& [window, causal] : {std::pair{Window{50, 0}, CausalMode::kNone},
                                         {Window{300, -1}, CausalMode::kTopLeft},
                                         {Window{20, 20}, CausalMode::kLowerRight}}) {
      CaseSpec spec = spec_of(dtype, 128, causal);
      spec.window = window;
      spec.L = 260;
      spec.S = 300;
      AttentionCase host(spec);
      const TensorView& v = host.request().v;
      for (const auto& [row, column, value] : {std::tuple{70, 3, kInf},
                                               {131, 3, -kInf},
                                               {131, 90, std::nan("")},
                                               {200, 127, kInf},
                                               {255, 0, -kInf},
                                               {290, 64, std::nan("")}})
        write_element(v, value, 0, 0, row, column);
      DeviceCase device(host);
      ASSERT_TRUE(sdpa(device.request(), device.outputs(), {{"flash"}}, device.options()));
      ASSERT_TRUE(device.fetch());
      EXPECT_EQ(
          compare(host.out().view(), host.reference().out, tolerance_for(host.request(), false).out * 4), "")
          << spec.name();
    }
}

std::vector<std::byte> bytes_of(const TensorView& view) {
  const auto* first = static_cast<const std::byte*>(view.data);
  return {first, first + cuda::extent_bytes(view)};
}

// A graph keeps addresses, not contents: each replay must give what a direct call on the new inputs gives.
TEST_F(FlashSm90Gpu, ACapturedCallReplaysOverChangedInputs) {
  for (const int64_t head_dim : {64, 128, 256}) {
    CaseSpec spec = spec_of(DType::kBF16, head_dim, CausalMode::kTopLeft);
    spec.L = spec.S = 700;
    AttentionCase host(spec);
    DeviceCase device(host);
    const auto plan = attnscope::plan(device.request(), {{"flash"}});
    ASSERT_TRUE(plan) << plan.error().message;
    ASSERT_TRUE(run(**plan, device.request(), device.outputs(), device.options()));  // loads the image
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_TRUE(
        cuda::check(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal), "capture"));
    const Status captured = run(**plan, device.request(), device.outputs(), device.options());
    ASSERT_TRUE(cuda::check(cudaStreamEndCapture(device.stream(), &graph), "end of capture"));
    ASSERT_TRUE(captured) << captured.error().message;
    ASSERT_TRUE(cuda::check(cudaGraphInstantiate(&executable, graph, 0), "instantiate"));
    std::vector<std::byte> last;
    for (uint64_t round = 0; round < 3; ++round) {
      for (const auto& [from, to] : {std::pair{&host.request().q, &device.request().q},
                                     {&host.request().k, &device.request().k},
                                     {&host.request().v, &device.request().v}}) {
        fill_normal(*from, 100 + 3 * round + static_cast<uint64_t>(from->size(1)));
        ASSERT_TRUE(cuda::check(cudaMemcpyAsync(to->data, from->data, cuda::extent_bytes(*from),
                                                cudaMemcpyHostToDevice, device.stream()),
                                "copy"));
      }
      ASSERT_TRUE(run(**plan, device.request(), device.outputs(), device.options()));
      ASSERT_TRUE(device.fetch());
      const auto direct = bytes_of(host.out().view()), direct_lse = bytes_of(host.lse().view());
      EXPECT_NE(direct, last) << "the inputs did not change";
      device.poison_outputs();
      ASSERT_TRUE(cuda::check(cudaGraphLaunch(executable, device.stream()), "launch"));
      ASSERT_TRUE(device.fetch());
      EXPECT_EQ(bytes_of(host.out().view()), direct) << "head size " << head_dim << ", round " << round;
      EXPECT_EQ(bytes_of(host.lse().view()), direct_lse);
      last = direct;
    }
    (void)cudaGraphExecDestroy(executable);
    (void)cudaGraphDestroy(graph);
  }
}

}  // namespace
}  // namespace attnscope::testing
