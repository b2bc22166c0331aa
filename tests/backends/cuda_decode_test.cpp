// decode on a GPU: every feature against the float64 oracle, pages of many sizes against dense tensors, every
// way to share the keys, captured graphs, many streams. Outputs and workspace start as NaN. Skipped without a
// GPU.
#include "cuda/stream.h"
#include "support/device_case.h"
#include "tensor/fill.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>

namespace attnscope::testing {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

CaseSpec few_rows(DType dtype, int64_t head_dim, int64_t length, int64_t keys) {
  CaseSpec s;
  s.dtype = dtype;
  s.B = 2, s.Hq = 8, s.Hk = s.Hv = 2, s.L = length, s.S = keys, s.E = s.Ev = head_dim;
  return s;
}

// A workspace full of NaN, for a plan that needs one.
class Workspace {
 public:
  Workspace(const Request& request, cudaStream_t stream) {
    const auto made = must(plan(request, {{"decode"}}));
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

std::string run_and_compare(AttentionCase& host, const Request& request, DeviceCase& device) {
  Request r = request;
  r.q = device.request().q;
  const ReferenceResult& expected = host.reference();
  device.poison_outputs();
  RunOptions options = device.options();
  const Workspace workspace(r, device.stream());
  workspace.give(&options);
  if (const Status status = sdpa(r, device.outputs(), {{"decode"}}, options); !status)
    return status.error().message;
  if (const Status status = device.fetch(); !status) return status.error().message;
  Tolerance tolerance = tolerance_for(host.request(), false);
  std::string wrong = compare(host.out().view(), expected.out, 4 * tolerance.out);
  if (wrong.empty()) wrong = compare(host.lse().view(), expected.lse, 4 * tolerance.lse + 1e-4);
  if (!wrong.empty()) return wrong;
  return host.out().damage();
}

void check(const CaseSpec& spec, const std::function<void(Request&)>& change = {}) {
  AttentionCase host(spec);
  if (change) change(host.request());
  host.reference();  // before an append changes the cache
  for (const int splits : {0, 1, 3, 16}) {
    DeviceCase device(host);  // a fresh cache each time
    Request r = device.request();
    r.limits.splits = splits;
    EXPECT_EQ(run_and_compare(host, r, device), "") << spec.name() << " splits " << splits;
  }
}

const DType kTypes[] = {DType::kBF16, DType::kF16};

TEST(CudaDecode, HeadSizesRowsAndKeys) {
  for (const DType dtype : kTypes) {
    for (const int64_t head_dim : {8, 40, 64, 96, 128, 192, 256})
      for (const int64_t length : {1, 3, 16}) check(few_rows(dtype, head_dim, length, 300));
    for (const int64_t keys : {1, 15, 16, 17, 127, 129, 1000, 5000}) check(few_rows(dtype, 128, 1, keys));
    CaseSpec s = few_rows(dtype, 192, 2, 500);
    s.Ev = 128;
    check(s);
    s = few_rows(dtype, 64, 2, 333);
    s.Hq = 12, s.Hk = 2, s.Hv = 3;  // K and V shared by different heads
    check(s);
    s.Hq = 72, s.Hk = s.Hv = 1, s.L = 1;  // more rows than a row tile
    check(s);
  }
}

TEST(CudaDecode, MasksScalesSinksAndSlopes) {
  for (const CausalMode causal : {CausalMode::kNone, CausalMode::kTopLeft, CausalMode::kLowerRight})
    for (const Window window : {Window{}, Window{100, 0}, Window{3, 2}, Window{-1, 5}, Window{40, -1}}) {
      CaseSpec s = few_rows(DType::kBF16, 128, 5, 700);
      s.causal = causal;
      s.window = window;
      check(s);
    }
  CaseSpec s = few_rows(DType::kF16, 128, 7, 3);
  s.causal = CausalMode::kLowerRight;  // rows that see nothing
  check(s);
  for (const double scale : {0.0, -1.0, 3.0})
    for (const double softcap : {0.0, 2.0}) {
      s = few_rows(DType::kBF16, 64, 2, 400);
      s.scale = scale;
      s.softcap = softcap;
      check(s);
    }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    Tensor sinks = must(Tensor::empty(dtype, {8}));
    fill_normal(sinks, 3);
    s = few_rows(DType::kBF16, 128, 2, 300);
    s.kv_lengths = true;
    check(s, [&](Request& r) { r.sinks = sinks; });
  }
  Tensor slopes = must(Tensor::empty(DType::kF32, {2, 8}));
  fill_normal(slopes, 4);
  s = few_rows(DType::kBF16, 128, 3, 300);
  s.causal = CausalMode::kLowerRight;
  check(s, [&](Request& r) { r.alibi_slopes = slopes; });
}

TEST(CudaDecode, LengthsLayoutsAndPagesOfFour) {
  for (int n = 0; n < 12; ++n) {
    CaseSpec s = few_rows(kTypes[n % 2], 64, 1 + n % 3, 900);
    s.B = 5;
    s.seed = static_cast<uint64_t>(n);
    s.causal = n % 4 == 0 ? CausalMode::kLowerRight : CausalMode::kNone;
    s.layout = n % 3 == 0 ? Layout::kSeqMajor : n % 3 == 1 ? Layout::kDense : Layout::kInterleaved;
    s.kv_lengths = s.poison_masked = n < 4;
    s.paged = n >= 4;
    s.append = n >= 8;
    check(s);
  }
  for (const Layout layout :
       {Layout::kSeqMajor, Layout::kInterleaved, Layout::kHeadStride0, Layout::kBatchStride0}) {
    CaseSpec s = few_rows(DType::kBF16, 128, 2, 300);
    s.layout = layout;
    check(s);
  }
}

// The dense case `host` as a paged cache with pages of any size: scattered, surrounded by NaN, table entries
// past the length invalid.
struct PagedCopy {
  Tensor k, v, table;
  PagedCopy(const AttentionCase& host, int64_t page_size, bool seq_major) {
    const Request& r = host.request();
    const int64_t batch = r.q.size(0), per_batch = (r.k.size(2) + page_size - 1) / page_size;
    const int64_t pages = batch * per_batch + 3;
    const auto cache = [&](const TensorView& from) {
      const int64_t h = from.size(1), d = from.size(3);
      const std::array<int64_t, 4> sizes{pages, h, page_size, d};
      return make_tensor(from.dtype, sizes, seq_major ? Layout::kSeqMajor : Layout::kDense, false);
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
            for (int64_t h = 0; h < from->size(1); ++h)
              for (int64_t e = 0; e < from->size(3); ++e)
                write_element(*to, read_element(*from, b, h, j, e), page, h, j - n * page_size, e);
      }
    }
  }
};

TEST(CudaDecode, PagesGiveTheSameBitsAsDenseTensors) {
  for (const int64_t page_size : {16, 24, 32, 64, 128, 256})
    for (const bool seq_major : {false, true}) {
      CaseSpec s = few_rows(DType::kBF16, 128, 2, 600);
      s.B = 3;
      s.kv_lengths = true;
      s.causal = CausalMode::kLowerRight;
      AttentionCase host(s);
      DeviceCase dense(host);
      Request r = dense.request();
      r.limits.splits = 2;
      ASSERT_EQ(run_and_compare(host, r, dense), "") << "dense";
      const std::vector<float> before = [&] {
        std::vector<float> values;
        for (int64_t b = 0; b < s.B; ++b)
          for (int64_t h = 0; h < s.Hq; ++h)
            for (int64_t i = 0; i < s.L; ++i)
              for (int64_t e = 0; e < s.Ev; ++e)
                values.push_back(static_cast<float>(read_element(host.out().view(), b, h, i, e)));
        return values;
      }();
      const PagedCopy pages(host, page_size, seq_major);
      const auto k = must(cuda::DeviceTensor::copy_of(pages.k, 0, dense.stream()));
      const auto v = must(cuda::DeviceTensor::copy_of(pages.v, 0, dense.stream()));
      const auto table = must(cuda::DeviceTensor::copy_of(pages.table, 0, dense.stream()));
      r.k = k, r.v = v, r.paging.block_table = table, r.paging.page_size = page_size;
      ASSERT_EQ(run_and_compare(host, r, dense), "") << page_size << " " << seq_major;
      size_t n = 0;
      for (int64_t b = 0; b < s.B; ++b)
        for (int64_t h = 0; h < s.Hq; ++h)
          for (int64_t i = 0; i < s.L; ++i)
            for (int64_t e = 0; e < s.Ev; ++e)
              ASSERT_EQ(static_cast<float>(read_element(host.out().view(), b, h, i, e)), before[n++])
                  << page_size << " " << seq_major;
    }
}

TEST(CudaDecode, EverySplitGivesTheSameResult) {
  CaseSpec s = few_rows(DType::kBF16, 128, 1, 3000);
  AttentionCase host(s);
  DeviceCase device(host);
  for (int splits = 1; splits <= 40; splits += splits < 10 ? 1 : 15) {
    Request r = device.request();
    r.limits.splits = splits;
    EXPECT_EQ(run_and_compare(host, r, device), "") << splits;
  }
  for (const int sms : {1, 2, 7}) {
    Request r = device.request();
    r.limits.sm_count = sms;
    EXPECT_EQ(run_and_compare(host, r, device), "") << sms << " multiprocessors";
  }
}

TEST(CudaDecode, ValuesThatAreNotFiniteStayWithTheRowsThatSeeThem) {
  for (const double value : {kNaN, HUGE_VAL, -HUGE_VAL}) {
    CaseSpec s = few_rows(DType::kBF16, 128, 4, 300);
    s.causal = CausalMode::kLowerRight;
    check(s, [&](Request& r) {
      for (int64_t e = 0; e < s.Ev; e += 3) {
        write_element(r.v, value, 1, 0, 298, e);
        write_element(r.k, kNaN, 0, 1, 299, e);
      }
    });
  }
}

TEST(CudaDecode, CapturedGraphsReplay) {
  for (const bool ragged : {false, true})
    for (const int splits : {0, 4}) {
      CaseSpec s = few_rows(DType::kBF16, 128, 1, 4000);
      s.kv_lengths = ragged;
      AttentionCase host(s);
      DeviceCase device(host);
      Request r = device.request();
      r.limits.splits = splits;
      RunOptions options = device.options();
      const Workspace workspace(r, device.stream());
      workspace.give(&options);
      const auto made = must(plan(r, {{"decode"}}));
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

TEST(CudaDecode, OnePlanRunsOnManyStreams) {
  CaseSpec s = few_rows(DType::kBF16, 128, 1, 20000);
  s.B = 1;
  std::vector<std::unique_ptr<AttentionCase>> hosts;
  std::vector<std::unique_ptr<DeviceCase>> devices;
  for (uint64_t n = 0; n < 4; ++n) {
    s.seed = n + 1;
    hosts.push_back(std::make_unique<AttentionCase>(s));
    devices.push_back(std::make_unique<DeviceCase>(*hosts.back()));
  }
  std::vector<std::thread> threads;
  std::vector<int> failures(4, 0);
  for (size_t n = 0; n < 4; ++n)
    threads.emplace_back([&, n] {
      for (int call = 0; call < 20; ++call)
        failures[n] +=
            !sdpa(devices[n]->request(), devices[n]->outputs(), {{"decode"}}, devices[n]->options());
    });
  for (std::thread& t : threads) t.join();
  for (size_t n = 0; n < 4; ++n) {
    EXPECT_EQ(failures[n], 0);
    ASSERT_TRUE(devices[n]->fetch());
    const Tolerance tolerance = tolerance_for(hosts[n]->request(), false);
    EXPECT_EQ(compare(hosts[n]->out().view(), hosts[n]->reference().out, 4 * tolerance.out), "") << n;
  }
}

}  // namespace
}  // namespace attnscope::testing
