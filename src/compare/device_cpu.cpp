// The CPU as a device to compare on.
#include "compare/device.h"

#include "attention/memory.h"
#include "backends/cpu_common/threads.h"
#include "tensor/tensor.h"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

namespace attnscope::compare {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// Best of repeated calls within about 60 ms, after one that warms up.
double best_us(const std::function<void()>& call) {
  call();
  double best = 1e30;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 50 && (i < 3 || microseconds_since(begin) < 60e3); ++i) {
    const Clock::time_point one = Clock::now();
    call();
    best = std::min(best, microseconds_since(one));
  }
  return best;
}

class CpuDevice final : public BenchDevice {
 public:
  explicit CpuDevice(int threads) : threads_(cpu::plan_threads(Limits{.threads = threads})) {}

  Device device() const override { return {DeviceType::kCpu, 0}; }
  std::string name() const override {
    return fmt::format("{}, {} thread{}", read_machine().cpu, threads_, threads_ == 1 ? "" : "s");
  }
  int64_t free_bytes() const override { return available_host_bytes(); }
  std::vector<profiler::Activity> activities() const override { return {profiler::Activity::kCpu}; }

  Result<TensorView> upload(const TensorView& host) override { return host; }
  Status download(const TensorView& device, const TensorView& host) override {
    return device.data == host.data ? Status{} : copy_elements(device, host);
  }
  Status overwrite(const TensorView& host, const TensorView& device) override {
    return copy_elements(host, device);
  }
  Result<CallTime> time_call(const Plan& plan, const Request& request, const Outputs& outputs) override {
    const Clock::time_point begin = Clock::now();
    ATTNSCOPE_TRY(run(plan, request, outputs));
    return CallTime{microseconds_since(begin), std::nullopt};
  }
  Status synchronize() override { return {}; }
  Status flush_caches() override;
  Peaks measure_peaks(DType dtype) override;

 private:
  Status reserve_probe();
  void measure_copy(Peaks& peaks);

  int threads_;
  HostBuffer probe_;  // two halves, each beyond the last-level cache
};

Status CpuDevice::reserve_probe() {
  if (probe_.bytes() > 0) return {};
  int64_t largest = 0;
  for (const CacheInfo& cache : read_machine().caches) largest = std::max(largest, cache.bytes);
  const auto half = static_cast<size_t>(std::clamp<int64_t>(largest * 2, 64 << 20, 512 << 20));
  ATTNSCOPE_ASSIGN(probe_, HostBuffer::allocate(2 * half));
  std::memset(probe_.data(), 1, probe_.bytes());
  return {};
}

Status CpuDevice::flush_caches() {
  ATTNSCOPE_TRY(reserve_probe());
  auto* bytes = static_cast<unsigned char*>(probe_.data());
  const auto size = static_cast<int64_t>(probe_.bytes());
  cpu::parallel_for(threads_, size, int64_t{1} << 20, [bytes](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; i += 64) bytes[i] = static_cast<unsigned char>(bytes[i] + 1);
  });
  return {};
}

void CpuDevice::measure_copy(Peaks& peaks) {
  if (!reserve_probe()) return;
  auto* from = static_cast<char*>(probe_.data());
  const auto half = static_cast<int64_t>(probe_.bytes() / 2);
  const double us = best_us([&] {
    cpu::parallel_for(threads_, half, int64_t{1} << 20, [&](int64_t begin, int64_t end, int) {
      std::memcpy(from + half + begin, from + begin, static_cast<size_t>(end - begin));
    });
  });
  peaks.bytes_per_s = 2.0 * static_cast<double>(half) / (us * 1e-6);
  peaks.bytes_how = fmt::format("copy of {} MiB, read and written", half >> 20);
}

// A square product in the tensors' own type where oneDNN has it; f16 in f32, as the backends compute it.
// There is none in f64: that peak stays unknown.
Peaks CpuDevice::measure_peaks(DType dtype) {
  Peaks peaks;
  measure_copy(peaks);
  using dnnl::memory;
  constexpr int64_t kSize = 1024;
  const auto measure = [&](memory::data_type type, const char* label) {
    const cpu::OmpThreadScope scope(threads_);
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const memory::desc desc({kSize, kSize}, type, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc primitive_desc(dnnl::matmul::desc(desc, desc, desc), engine);
    const dnnl::matmul matmul(primitive_desc);
    memory a(desc, engine), b(desc, engine), c(desc, engine);
    std::memset(a.get_data_handle(), 0, desc.get_size());
    std::memset(b.get_data_handle(), 0, desc.get_size());
    const double us = best_us([&] {
      matmul.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
      stream.wait();
    });
    peaks.flops_per_s = 2.0 * kSize * kSize * kSize / (us * 1e-6);
    peaks.flops_how = fmt::format("oneDNN {} matrix product, {} a side", label, kSize);
  };
  try {
    if (dtype == DType::kBF16)
      measure(memory::data_type::bf16, "bf16");
    else if (dtype != DType::kF64)
      measure(memory::data_type::f32, "f32");
  } catch (const dnnl::error&) {
    // oneDNN has no bf16 product for this processor: the peak stays unknown, and is shown as such.
  }
  return peaks;
}

}  // namespace

std::unique_ptr<BenchDevice> open_cpu_device(int threads) {
  return std::make_unique<CpuDevice>(threads);
}

}  // namespace attnscope::compare
