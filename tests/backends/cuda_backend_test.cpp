// What CUDA backends promise beyond right results: kernels and copies counted by CUPTI, graph capture,
// threads and streams, memory that runs out, memory of the caller. Skipped without a GPU.
#include "attention/backend.h"
#include "attnscope/profiler.h"
#include "cuda/device.h"
#include "cuda/device_tensor.h"
#include "cuda/status.h"
#include "cuda/stream.h"
#include "profiler/cupti_source.h"
#include "support/device_case.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

namespace attnscope::testing {
namespace {

CaseSpec article_shape() {
  CaseSpec spec;
  spec.dtype = DType::kBF16;
  spec.B = 2;
  spec.Hq = spec.Hk = spec.Hv = 4;
  spec.L = spec.S = 1024;
  spec.E = spec.Ev = 64;
  spec.causal = CausalMode::kTopLeft;
  spec.lse = false;
  return spec;
}

std::vector<std::string> usable_variants(const Request& request) {
  std::vector<std::string> names;
  for (const Backend* backend : registered_backends())
    if (backend->device() == DeviceType::kCuda && backend->unavailable_reason().empty() &&
        backend->refusals(request).empty())
      names.emplace_back(backend->name());
  return names;
}

std::vector<std::byte> bytes_of(const TensorView& view) {
  const auto* first = static_cast<const std::byte*>(view.data);
  return {first, first + cuda::extent_bytes(view)};
}

struct Counts {
  int kernels = 0, copies = 0, fills = 0;
};

TEST(CudaBackends, KernelsAndCopiesPerForwardAreThePublishedOnes) {
  profiler::enable_cuda_activity();
  const std::map<std::string, Counts> published{
      {"naive", {5, 1}}, {"inplace", {5, 0}}, {"math", {20, 0}}, {"cudnn", {1, 0}}};
  CaseSpec spec = article_shape();
  spec.B = 8;
  spec.Hq = spec.Hk = spec.Hv = 16;
  AttentionCase host(spec);
  DeviceCase device(host);
  for (const std::string& name : usable_variants(device.request())) {
    const auto expected = published.find(name);
    if (expected == published.end()) continue;
    ASSERT_TRUE(sdpa(device.request(), device.outputs(), {{name}}, device.options())) << name;
    ASSERT_TRUE(cuda::check(cudaStreamSynchronize(device.stream()), "sync"));
    auto session =
        profiler::Session::start({.activities = {profiler::Activity::kCpu, profiler::Activity::kCuda}});
    ASSERT_TRUE(session) << session.error().message;
    ASSERT_TRUE(sdpa(device.request(), device.outputs(), {{name}}, device.options())) << name;
    auto recording = session->finish();
    ASSERT_TRUE(recording) << recording.error().message;
    Counts seen;
    std::string list;
    for (const auto& e : recording->device_events) {
      ++(e.kind == profiler::RecordKind::kKernel ? seen.kernels
         : e.kind == profiler::RecordKind::kCopy ? seen.copies
                                                 : seen.fills);
      list += fmt::format("\n  {:8.1f} us  {}", static_cast<double>(e.end_ns - e.begin_ns) / 1e3,
                          e.name.substr(0, 110));
    }
    fmt::print("{}: {} kernels + {} copies + {} fills{}\n", name, seen.kernels, seen.copies, seen.fills,
               list);
    EXPECT_EQ(seen.kernels, expected->second.kernels) << name << list;
    EXPECT_EQ(seen.copies, expected->second.copies) << name << list;
    EXPECT_EQ(recording->activity_loss.dropped_records, 0);
    const auto plan = attnscope::plan(device.request(), {{name}});
    ASSERT_TRUE(plan);
    EXPECT_EQ((*plan)->cost().kernels, seen.kernels) << name << ": the plan and the trace disagree";
    EXPECT_EQ((*plan)->cost().copies, seen.copies) << name;
    // Every device event is the child of a launch recorded on this thread.
    for (const auto& e : recording->device_events) {
      const bool linked = std::any_of(recording->runtime_events.begin(), recording->runtime_events.end(),
                                      [&](const auto& r) { return r.correlation == e.correlation; });
      EXPECT_TRUE(linked) << name << ": " << e.name;
    }
  }
}

TEST(CudaBackends, APlannedCallCanBeCapturedInAGraphAndReplayed) {
  AttentionCase host(article_shape());
  DeviceCase device(host);
  for (const std::string& name : usable_variants(device.request())) {
    auto plan = attnscope::plan(device.request(), {{name}});
    ASSERT_TRUE(plan) << name << ": " << plan.error().message;
    auto workspace =
        cuda::DeviceBuffer::allocate((*plan)->workspace_bytes(), device.stream(), 0, "workspace");
    ASSERT_TRUE(workspace);
    RunOptions options = device.options();
    options.workspace = workspace->data();
    options.workspace_bytes = workspace->bytes();
    ASSERT_TRUE(run(**plan, device.request(), device.outputs(), options)) << name;
    ASSERT_TRUE(device.fetch());
    const auto direct = bytes_of(host.out().view());

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    ASSERT_TRUE(
        cuda::check(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal), "capture"));
    const Status captured = run(**plan, device.request(), device.outputs(), options);
    ASSERT_TRUE(cuda::check(cudaStreamEndCapture(device.stream(), &graph), "end of capture")) << name;
    ASSERT_TRUE(captured) << name << ": " << captured.error().message;
    ASSERT_TRUE(cuda::check(cudaGraphInstantiate(&executable, graph, 0), "instantiate"));
    device.poison_outputs();
    ASSERT_TRUE(cuda::check(cudaGraphLaunch(executable, device.stream()), "launch"));
    ASSERT_TRUE(device.fetch());
    EXPECT_EQ(std::memcmp(direct.data(), bytes_of(host.out().view()).data(), direct.size()), 0) << name;
    (void)cudaGraphExecDestroy(executable);
    (void)cudaGraphDestroy(graph);
  }
}

TEST(CudaBackends, TwoThreadsOnTwoStreamsGiveWhatOneGives) {
  AttentionCase host_a(article_shape()), host_b(article_shape());
  DeviceCase a(host_a), b(host_b);
  for (const std::string& name : usable_variants(a.request())) {
    ASSERT_TRUE(sdpa(a.request(), a.outputs(), {{name}}, a.options()));
    ASSERT_TRUE(a.fetch());
    const auto alone = bytes_of(host_a.out().view());
    a.poison_outputs();
    b.poison_outputs();
    ASSERT_TRUE(a.fetch());
    ASSERT_TRUE(b.fetch());
    Status status_a, status_b;
    auto work = [&name](DeviceCase& device, Status& status) {
      for (int i = 0; i < 20 && status; ++i)
        status = sdpa(device.request(), device.outputs(), {{name}}, device.options());
    };
    std::thread other(work, std::ref(b), std::ref(status_b));
    work(a, status_a);
    other.join();
    ASSERT_TRUE(status_a) << status_a.error().message;
    ASSERT_TRUE(status_b) << status_b.error().message;
    ASSERT_TRUE(a.fetch());
    ASSERT_TRUE(b.fetch());
    EXPECT_EQ(std::memcmp(alone.data(), bytes_of(host_a.out().view()).data(), alone.size()), 0) << name;
    EXPECT_EQ(std::memcmp(alone.data(), bytes_of(host_b.out().view()).data(), alone.size()), 0) << name;
  }
}

// What a backend keeps between calls (cuDNN: the stream of a handle, lists of pointers) must follow the call.
TEST(CudaBackends, APlanFollowsOtherPointersAndStreams) {
  AttentionCase host(article_shape());
  DeviceCase device(host);
  for (const std::string& name : usable_variants(device.request())) {
    auto plan = attnscope::plan(device.request(), {{name}});
    ASSERT_TRUE(plan) << name << ": " << plan.error().message;
    ASSERT_TRUE(run(**plan, device.request(), device.outputs(), device.options())) << name;
    ASSERT_TRUE(device.fetch());
    const auto expected = bytes_of(host.out().view());
    for (int i = 0; i < 12; ++i) {
      auto stream = cuda::Stream::create(0);  // the address of one that is gone may come again
      ASSERT_TRUE(stream);
      const auto& out = device.outputs().out;
      auto other = cuda::DeviceTensor::empty(out.dtype, out.sizes, out.rank, 0, stream->get());
      ASSERT_TRUE(other);
      ASSERT_TRUE(other->fill_bytes(0xFF, stream->get()));
      Outputs outputs;
      outputs.out = *other;
      RunOptions options;
      options.stream = stream->get();
      const Status ran = run(**plan, device.request(), outputs, options);
      ASSERT_TRUE(ran) << name << ": " << ran.error().message;
      device.poison_outputs();
      ASSERT_TRUE(device.fetch());
      ASSERT_TRUE(other->copy_to(host.out().view(), stream->get()));
      EXPECT_EQ(std::memcmp(expected.data(), bytes_of(host.out().view()).data(), expected.size()), 0)
          << name << ", call " << i;
    }
  }
}

// The device of the tensors is used, not the current one.
TEST(CudaBackends, TheSecondGpuGivesWhatTheFirstGives) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "this machine has one GPU";
  AttentionCase host_a(article_shape()), host_b(article_shape());
  DeviceCase first(host_a, 0), second(host_b, 1);
  Request mixed = first.request();
  mixed.k = second.request().k;
  const Status refused = sdpa(mixed, first.outputs(), {}, first.options());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another device"), std::string::npos) << refused.error().message;
  for (const std::string& name : usable_variants(second.request())) {
    ASSERT_TRUE(cuda::check(cudaSetDevice(0), "cudaSetDevice"));
    const Status a = sdpa(first.request(), first.outputs(), {{name}}, first.options());
    const Status b = sdpa(second.request(), second.outputs(), {{name}}, second.options());
    ASSERT_TRUE(a) << name << ": " << a.error().message;
    ASSERT_TRUE(b) << name << ": " << b.error().message;
    int current = -1;
    ASSERT_TRUE(cuda::check(cudaGetDevice(&current), "cudaGetDevice"));
    EXPECT_EQ(current, 0) << name << " left another device current";
    const Status from_a = first.fetch(), from_b = second.fetch();
    ASSERT_TRUE(from_a) << name << ": " << from_a.error().message;
    ASSERT_TRUE(from_b) << name << ": " << from_b.error().message;
    const auto bytes_a = bytes_of(host_a.out().view()), bytes_b = bytes_of(host_b.out().view());
    EXPECT_EQ(std::memcmp(bytes_a.data(), bytes_b.data(), bytes_a.size()), 0) << name;
    first.poison_outputs();
    second.poison_outputs();
  }
}

TEST(CudaBackends, TooBigForTheGpuIsRefusedWithBothSizesAndNothingLeaks) {
  AttentionCase host(article_shape());
  DeviceCase device(host);
  Request request = device.request();
  request.limits.memory_bytes = 1 << 20;
  for (const char* name : {"naive", "inplace", "math"}) {
    const Backend* backend = find_backend(name, DeviceType::kCuda);
    ASSERT_NE(backend, nullptr);
    const auto refusals = backend->refusals(request);
    ASSERT_EQ(refusals.size(), 1u) << name;
    EXPECT_EQ(refusals[0].code, "too-big-for-memory");
  }
  ASSERT_TRUE(cuda::release_cached_memory(0));
  const auto before = cuda::memory_state(0);
  ASSERT_TRUE(before);
  auto huge = cuda::DeviceBuffer::allocate(size_t{1} << 42, device.stream(), 0, "test");
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kOutOfMemory);
  ASSERT_TRUE(sdpa(device.request(), device.outputs(), {{"naive"}}, device.options()))
      << "other work still runs";
  ASSERT_TRUE(device.fetch());
  ASSERT_TRUE(cuda::release_cached_memory(0));
  const auto after = cuda::memory_state(0);
  ASSERT_TRUE(after);
  EXPECT_GE(after->free_bytes + (64 << 20), before->free_bytes);
}

TEST(CudaBackends, InplaceRefusesGradientsAndSaysWhatItWouldOverwrite) {
  AttentionCase host(article_shape());
  DeviceCase device(host);
  Request request = device.request();
  request.wants.gradients = true;
  const auto refusals = find_backend("inplace", DeviceType::kCuda)->refusals(request);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_EQ(refusals[0].code, "overwrites-saved-value");
  EXPECT_TRUE(find_backend("naive", DeviceType::kCuda)->refusals(request).empty());
}

}  // namespace
}  // namespace attnscope::testing
