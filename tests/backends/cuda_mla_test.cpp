// mla on a GPU: every feature against the float64 oracle, with V a view of K and a tensor of its own, every
// way to share the keys, pages against dense tensors, captured graphs. Outputs and workspace start as NaN.
// Skipped without a Hopper GPU.
#include "attention/backend.h"
#include "cuda/stream.h"
#include "support/device_case.h"
#include "tensor/fill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace attnscope::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

TensorView first_columns(TensorView k, int64_t columns) {
  k.sizes[3] = columns;
  return k;
}

CaseSpec absorbed(DType dtype, int64_t heads, int64_t length, int64_t keys) {
  CaseSpec s;
  s.dtype = dtype;
  s.B = 2, s.Hq = heads, s.Hk = s.Hv = 1, s.L = length, s.S = keys, s.E = 576, s.Ev = 512;
  return s;
}

// A workspace full of NaN, for a plan that needs one.
class Workspace {
 public:
  Workspace(const Request& request, cudaStream_t stream) {
    const auto made = must(plan(request, {{"mla"}}));
    if (made->workspace_bytes() == 0) return;
    memory_ = must(cuda::DeviceTensor::empty(
        DType::kF32, {static_cast<int64_t>(made->workspace_bytes() / 4) + 64, 1, 1, 1}, 1, 0, stream));
    EXPECT_TRUE(memory_.fill_bytes(0xff, stream));
  }
  void give(RunOptions* options) const {
    options->workspace = memory_.view().data;
    options->workspace_bytes = memory_.bytes();
  }

 private:
  cuda::DeviceTensor memory_;
};

std::string run_and_compare(AttentionCase& host, const Request& r, DeviceCase& device) {
  const ReferenceResult& expected = host.reference();
  device.poison_outputs();
  RunOptions options = device.options();
  const Workspace workspace(r, device.stream());
  workspace.give(&options);
  if (const Status status = sdpa(r, device.outputs(), {{"mla"}}, options); !status)
    return status.error().message;
  if (const Status status = device.fetch(); !status) return status.error().message;
  const Tolerance tolerance = tolerance_for(host.request(), false);
  std::string wrong = compare(host.out().view(), expected.out, 4 * tolerance.out);
  if (wrong.empty()) wrong = compare(host.lse().view(), expected.lse, 4 * tolerance.lse + 1e-4);
  if (!wrong.empty()) return wrong;
  return host.out().damage();
}

class CudaMla : public ::testing::Test {
 protected:
  void SetUp() override {
    const Backend* mla = find_backend("mla", DeviceType::kCuda);
    ASSERT_NE(mla, nullptr);
    if (const std::string why = mla->unavailable_reason(); !why.empty()) GTEST_SKIP() << why;
  }

  // With V a tensor of its own and, where sizes allow it, with V the first columns of K.
  static void check(const CaseSpec& spec, const std::function<void(Request&)>& change = {}) {
    for (const bool alias : {false, true}) {
      if (alias && (spec.Ev > spec.E || spec.Hk != spec.Hv || spec.append)) continue;
      AttentionCase host(spec);
      if (alias) host.request().v = first_columns(host.request().k, spec.Ev);
      if (change) change(host.request());
      host.reference();  // before an append changes the cache
      for (const int splits : {0, 1, 3}) {
        DeviceCase device(host);  // a fresh cache each time
        Request r = device.request();
        if (alias) r.v = first_columns(r.k, spec.Ev);
        r.limits.splits = splits;
        EXPECT_EQ(run_and_compare(host, r, device), "")
            << spec.name() << (alias ? " V in K" : " V apart") << " splits " << splits;
      }
    }
  }
};

const DType kTypes[] = {DType::kBF16, DType::kF16};

TEST_F(CudaMla, HeadsRowsKeysAndHeadSizes) {
  for (const DType dtype : kTypes) {
    for (const int64_t heads : {1, 16, 64, 128}) check(absorbed(dtype, heads, 1, 300));
    for (const int64_t length : {2, 5, 70}) check(absorbed(dtype, 16, length, 300));
    for (const int64_t keys : {1, 63, 64, 65, 128, 193, 2100}) check(absorbed(dtype, 40, 1, keys));
    for (const auto& [e, ev] : {std::pair{512, 512}, {320, 256}, {264, 8}, {64, 512}, {576, 264}}) {
      CaseSpec s = absorbed(dtype, 24, 2, 200);
      s.E = e, s.Ev = ev;
      check(s);
    }
    CaseSpec s = absorbed(dtype, 12, 2, 333);
    s.Hk = 2, s.Hv = 3;  // K and V shared by different heads
    check(s);
  }
}

TEST_F(CudaMla, MasksScalesSinksAndSlopes) {
  for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight})
    for (const Window window : {Window{}, Window{100, 0}, Window{3, 2}, Window{-1, 5}, Window{40, -1}}) {
      CaseSpec s = absorbed(DType::kBF16, 16, 5, 400);
      s.causal = causal;
      s.window = window;
      check(s);
    }
  CaseSpec s = absorbed(DType::kF16, 16, 7, 3);
  s.causal = CausalMode::kLowerRight;  // rows that see nothing
  check(s);
  for (const double scale : {0.0, -1.0, 0.1352})
    for (const double softcap : {0.0, 2.0}) {
      s = absorbed(DType::kBF16, 16, 2, 300);
      s.scale = scale;
      s.softcap = softcap;
      check(s);
    }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Tensor sinks = must(Tensor::empty(dtype, {16}));
    fill_normal(sinks, 3);
    s = absorbed(DType::kBF16, 16, 2, 300);
    s.kv_lengths = true;
    check(s, [&](Request& r) { r.sinks = sinks; });
  }
  Tensor slopes = must(Tensor::empty(DType::kF32, {2, 16}));
  fill_normal(slopes, 4);
  s = absorbed(DType::kBF16, 16, 3, 300);
  s.causal = CausalMode::kLowerRight;
  check(s, [&](Request& r) { r.alibi_slopes = slopes; });
}

TEST_F(CudaMla, LengthsAndLayouts) {
  for (int n = 0; n < 6; ++n) {
    CaseSpec s = absorbed(kTypes[n % 2], 16, 1 + n % 3, 500);
    s.B = 5;
    s.seed = static_cast<uint64_t>(n);
    s.causal = n % 4 == 0 ? CausalMode::kLowerRight : CausalMode::kNone;
    s.layout = n % 3 == 0 ? Layout::kSeqMajor : n % 3 == 1 ? Layout::kDense : Layout::kInterleaved;
    s.kv_lengths = s.poison_masked = true;
    check(s);
  }
}

// The dense case `host` as a paged cache: scattered, surrounded by NaN, table entries past the length
// invalid.
struct PagedCopy {
  Tensor k, v, table;
  PagedCopy(const AttentionCase& host, int64_t page_size) {
    const Request& r = host.request();
    const int64_t batch = r.q.size(0), per_batch = (r.k.size(2) + page_size - 1) / page_size;
    const int64_t pages = batch * per_batch + 3;
    const auto cache = [&](const TensorView& from) {
      const std::array<int64_t, 4> sizes{pages, from.size(1), page_size, from.size(3)};
      return make_tensor(from.dtype, sizes, Layout::kDense, false);
    };
    k = cache(r.k), v = cache(r.v);
    std::memset(k.storage().data(), 0xff, k.storage().size());
    std::memset(v.storage().data(), 0xff, v.storage().size());
    table = must(Tensor::empty(DType::kI32, {batch, per_batch}));
    for (int64_t b = 0; b < batch; ++b) {
      const auto length = static_cast<int64_t>(read_element(r.lengths.kv_lengths, b));
      for (int64_t n = 0; n < per_batch; ++n) {
        const int64_t page = (pages - 1) - (b * per_batch + n);
        write_element(table, n * page_size < length ? static_cast<double>(page) : -1e9, b, n);
        for (int64_t j = n * page_size; j < std::min((n + 1) * page_size, length); ++j)
          for (const auto& [from, to] : {std::pair{&r.k, &k}, {&r.v, &v}})
            for (int64_t e = 0; e < from->size(3); ++e)
              write_element(*to, read_element(*from, b, 0, j, e), page, 0, j - n * page_size, e);
      }
    }
  }
};

TEST_F(CudaMla, PagesGiveWhatDenseTensorsGive) {
  for (const int64_t page_size : {64, 128, 256})
    for (const bool alias : {false, true}) {
      CaseSpec s = absorbed(DType::kBF16, 16, 2, 500);
      s.B = 3;
      s.kv_lengths = true;
      s.causal = CausalMode::kLowerRight;
      AttentionCase host(s);
      if (alias) host.request().v = first_columns(host.request().k, s.Ev);
      DeviceCase device(host);
      const PagedCopy pages(host, page_size);
      const auto k = must(cuda::DeviceTensor::copy_of(pages.k, 0, device.stream()));
      const auto v = must(cuda::DeviceTensor::copy_of(pages.v, 0, device.stream()));
      const auto table = must(cuda::DeviceTensor::copy_of(pages.table, 0, device.stream()));
      for (const int splits : {0, 1, 2}) {
        Request r = device.request();
        r.k = k, r.v = alias ? first_columns(r.k, s.Ev) : v.view();
        r.paging.block_table = table, r.paging.page_size = page_size;
        r.limits.splits = splits;
        EXPECT_EQ(run_and_compare(host, r, device), "") << page_size << (alias ? " V in K" : "") << splits;
      }
    }
}

TEST_F(CudaMla, EverySplitGivesTheSameResult) {
  const CaseSpec s = absorbed(DType::kBF16, 128, 1, 2000);
  AttentionCase host(s);
  host.request().v = first_columns(host.request().k, s.Ev);
  DeviceCase device(host);
  for (int splits = 1; splits <= 40; splits += splits < 6 ? 1 : 17) {
    Request r = device.request();
    r.v = first_columns(r.k, s.Ev);
    r.limits.splits = splits;
    EXPECT_EQ(run_and_compare(host, r, device), "") << splits;
  }
  for (const int sms : {1, 2, 7}) {
    Request r = device.request();
    r.v = first_columns(r.k, s.Ev);
    r.limits.sm_count = sms;
    EXPECT_EQ(run_and_compare(host, r, device), "") << sms << " multiprocessors";
  }
}

TEST_F(CudaMla, ValuesThatAreNotFiniteStayWithTheRowsThatSeeThem) {
  for (const double value : {kNaN, HUGE_VAL, -HUGE_VAL}) {
    CaseSpec s = absorbed(DType::kBF16, 16, 4, 300);
    s.causal = CausalMode::kLowerRight;
    check(s, [&](Request& r) {
      for (int64_t e = 0; e < s.Ev; e += 3)
        if (r.v.data != r.k.data) write_element(r.v, value, 1, 0, 298, e);
      for (int64_t e = 0; e < s.Ev; e += 3) write_element(r.k, kNaN, 0, 0, 299, e);
    });
  }
}

TEST_F(CudaMla, CapturedGraphsReplay) {
  for (const bool ragged : {false, true}) {
    CaseSpec s = absorbed(DType::kBF16, 64, 1, 1500);
    s.kv_lengths = ragged;
    AttentionCase host(s);
    DeviceCase device(host);
    const Request& r = device.request();
    RunOptions options = device.options();
    const Workspace workspace(r, device.stream());
    workspace.give(&options);
    const auto made = must(plan(r, {{"mla"}}));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_TRUE(run(*made, r, device.outputs(), options));
    ASSERT_EQ(cudaStreamEndCapture(device.stream(), &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    for (int replay = 0; replay < 3; ++replay) {
      device.poison_outputs();
      ASSERT_EQ(cudaGraphLaunch(exec, device.stream()), cudaSuccess);
      ASSERT_TRUE(device.fetch());
      const Tolerance tolerance = tolerance_for(host.request(), false);
      EXPECT_EQ(compare(host.out().view(), host.reference().out, 4 * tolerance.out), "") << replay;
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
  }
}

TEST_F(CudaMla, AutoTakesItForThisShape) {
  const CaseSpec s = absorbed(DType::kBF16, 128, 1, 4096);
  AttentionCase host(s);
  DeviceCase device(host);
  EXPECT_EQ(choose(device.request()).winner_name, "mla");
}

}  // namespace
}  // namespace attnscope::testing
