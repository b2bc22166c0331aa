// What issuing one call costs the host: an empty kernel, a planned run(), sdpa() with a warm plan cache; on a
// small causal request, back to back. Prints medians in microseconds, one JSON line.
#include "attnscope/attention.h"
#include "cuda/device_tensor.h"
#include "cuda/stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <vector>

namespace attnscope {
cudaError_t launch_empty(cudaStream_t stream);  // host_cost_empty.cu
}

namespace {

constexpr int kCalls = 200, kRounds = 51;

template <class F>
double median_us(F&& call) {
  std::vector<double> rounds;
  for (int r = 0; r < kRounds; ++r) {
    cudaDeviceSynchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    rounds.push_back(took.count() / kCalls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

int report(const attnscope::Status& status) {
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}

}  // namespace

int main() {
  using namespace attnscope;
  const std::array<int64_t, 4> sizes{1, 1, 64, 64};  // so small that the device keeps up with the host
  std::vector<cuda::DeviceTensor> tensors;
  for (int i = 0; i < 4; ++i) {
    auto tensor = cuda::DeviceTensor::empty(DType::kBF16, sizes, 4, 0, nullptr);
    if (!tensor) return report(tl::unexpected(tensor.error()));
    if (auto filled = tensor->fill_bytes(0, nullptr); !filled) return report(filled);
    tensors.push_back(std::move(*tensor));
  }
  Request request;
  request.q = tensors[0], request.k = tensors[1], request.v = tensors[2];
  request.causal = CausalMode::kTopLeft;
  Outputs outputs;
  outputs.out = tensors[3];
  const ChooseOptions flash{{"flash"}};
  const auto planned = plan(request, flash);
  if (!planned) return report(tl::unexpected(planned.error()));
  if (const Status first = run(**planned, request, outputs); !first) return report(first);
  const double empty = median_us([] { launch_empty(nullptr); });
  const double run_us = median_us([&] { (void)run(**planned, request, outputs); });
  const double sdpa_us = median_us([&] { (void)sdpa(request, outputs, flash); });
  const double again = median_us([] { launch_empty(nullptr); });
  std::printf(
      "{\"schema\":\"attnscope.host_cost/"
      "1\",\"empty_us\":%.2f,\"empty_again_us\":%.2f,\"run_us\":%.2f,\"sdpa_us\":%.2f}\n",
      empty, again, run_us, sdpa_us);
  return 0;
}
