// The CUDA device: timing by events behind a flushed L2, so that the host is always ahead of the GPU.
#include "compare/device.h"

#include "cuda/cublaslt.h"
#include "cuda/device.h"
#include "cuda/device_tensor.h"
#include "cuda/library.h"
#include "cuda/nvrtc.h"
#include "cuda/status.h"
#include "cuda/stream.h"
#include "profiler/cupti_collector.h"
#include "profiler/cupti_source.h"
#include "tensor/fill.h"
#include "tensor/tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>

namespace attnscope::compare {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFlushBytes = size_t{256}
                               << 20;  // several times any L2; writing it outlasts a call's host time
constexpr int kPeakRepeats = 5;

class CudaDevice final : public BenchDevice {
 public:
  [[nodiscard]] static Result<std::unique_ptr<BenchDevice>> open(int index) {
    ATTNSCOPE_TRY(cuda::usable(index));
    profiler::enable_cuda_activity();
    auto device = std::unique_ptr<CudaDevice>(new CudaDevice(index));
    ATTNSCOPE_ASSIGN(device->info_, cuda::device_info(index));
    ATTNSCOPE_ASSIGN(device->stream_, cuda::Stream::create(index));
    ATTNSCOPE_ASSIGN(device->begin_, cuda::Event::create(index));
    ATTNSCOPE_ASSIGN(device->end_, cuda::Event::create(index));
    ATTNSCOPE_ASSIGN(device->flush_,
                     cuda::DeviceBuffer::allocate(kFlushBytes, device->stream(), index, "L2 flush"));
    return device;
  }
  Device device() const override { return {DeviceType::kCuda, index_}; }
  std::string name() const override { return info_->name; }
  int64_t free_bytes() const override {
    const auto state = cuda::memory_state(index_);
    return state ? state->free_bytes : 0;
  }
  std::vector<profiler::Activity> activities() const override {
    return {profiler::Activity::kCpu, profiler::Activity::kCuda};
  }
  RunOptions run_options() const override {
    RunOptions options;
    options.stream = stream();
    return options;
  }

  Result<TensorView> upload(const TensorView& host) override {
    ATTNSCOPE_ASSIGN(auto tensor, cuda::DeviceTensor::copy_of(host, index_, stream()));
    tensors_.push_back(std::move(tensor));
    return tensors_.back().view();
  }
  Status overwrite(const TensorView& host, const TensorView& device) override {
    return copy(device.data, host.data, cuda::extent_bytes(host), cudaMemcpyHostToDevice);
  }
  Status download(const TensorView& device, const TensorView& host) override {
    return copy(host.data, device.data, cuda::extent_bytes(host), cudaMemcpyDeviceToHost);
  }
  Status synchronize() override { return stream_.synchronize(); }
  // Every call is timed behind a flush: time_call() does it.
  Status flush_caches() override { return {}; }

  Result<CallTime> time_call(const Plan& plan, const Request& request, const Outputs& outputs) override;
  Peaks measure_peaks(DType dtype) override;

 private:
  explicit CudaDevice(int index) : index_(index) {}
  cudaStream_t stream() const { return stream_.get(); }
  Status copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    cuda::DeviceGuard guard(index_);
    ATTNSCOPE_TRY(cuda::check(cudaMemcpyAsync(to, from, bytes, kind, stream()), "copy"));
    return stream_.synchronize();
  }
  Status reserve_workspace(size_t bytes);
  template <typename F>
  Result<double> median_us(F&& enqueue);
  Status measure_gemm(DType dtype, Peaks& peaks);
  Status measure_copy(Peaks& peaks);

  int index_ = 0;
  const cuda::DeviceInfo* info_ = nullptr;
  cuda::Stream stream_;  // first, so that buffers are freed before it goes
  cuda::Event begin_, end_;
  cuda::DeviceBuffer flush_, workspace_;
  std::deque<cuda::DeviceTensor> tensors_;
};

Status CudaDevice::reserve_workspace(size_t bytes) {
  if (bytes <= workspace_.bytes()) return {};
  workspace_ = {};
  ATTNSCOPE_TRY(stream_.synchronize());
  ATTNSCOPE_TRY(cuda::release_cached_memory(index_));
  ATTNSCOPE_ASSIGN(workspace_, cuda::DeviceBuffer::allocate(bytes, stream(), index_, "attention workspace"));
  return {};
}

Result<CallTime> CudaDevice::time_call(const Plan& plan, const Request& request, const Outputs& outputs) {
  cuda::DeviceGuard guard(index_);
  ATTNSCOPE_TRY(cuda::check(guard.status(), "cudaSetDevice"));
  ATTNSCOPE_TRY(reserve_workspace(plan.workspace_bytes()));
  RunOptions options = run_options();
  options.workspace = workspace_.data();
  options.workspace_bytes = workspace_.bytes();
  ATTNSCOPE_TRY(cuda::check(cudaMemsetAsync(flush_.data(), 0, flush_.bytes(), stream()), "flush"));
  ATTNSCOPE_TRY(begin_.record(stream()));
  const Clock::time_point called = Clock::now();
  ATTNSCOPE_TRY(attnscope::run(plan, request, outputs, options));
  const double host_us = std::chrono::duration<double, std::micro>(Clock::now() - called).count();
  ATTNSCOPE_TRY(end_.record(stream()));
  ATTNSCOPE_TRY(end_.synchronize());
  ATTNSCOPE_ASSIGN(const double device_us, end_.elapsed_us_since(begin_));
  return CallTime{device_us, host_us};
}

template <typename F>
Result<double> CudaDevice::median_us(F&& enqueue) {
  std::vector<double> times;
  for (int i = 0; i < kPeakRepeats + 2; ++i) {
    ATTNSCOPE_TRY(begin_.record(stream()));
    ATTNSCOPE_TRY(enqueue());
    ATTNSCOPE_TRY(end_.record(stream()));
    ATTNSCOPE_TRY(end_.synchronize());
    ATTNSCOPE_ASSIGN(const double us, end_.elapsed_us_since(begin_));
    if (i >= 2) times.push_back(us);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// A large product of normal values: zeros would draw less power and run faster than data does.
Status CudaDevice::measure_gemm(DType dtype, Peaks& peaks) {
  const int64_t n = dtype == DType::kF32 ? 4096 : 8192;
  cuda::GemmShape shape;
  shape.m = shape.n = shape.k = n;
  shape.a_ld = shape.b_ld = shape.c_ld = n;
  shape.b_transposed = true;
  shape.dtype = dtype;
  shape.plain_f32 = dtype == DType::kF32;
  ATTNSCOPE_ASSIGN(const cuda::Gemm gemm, cuda::Gemm::plan(shape, index_, 16));
  const size_t bytes = static_cast<size_t>(n * n) * dtype_size(dtype);
  ATTNSCOPE_ASSIGN(const auto a, cuda::DeviceBuffer::allocate(bytes, stream(), index_, "peak"));
  ATTNSCOPE_ASSIGN(const auto b, cuda::DeviceBuffer::allocate(bytes, stream(), index_, "peak"));
  ATTNSCOPE_ASSIGN(const auto c, cuda::DeviceBuffer::allocate(bytes, stream(), index_, "peak"));
  ATTNSCOPE_ASSIGN(const auto work,
                   cuda::DeviceBuffer::allocate(gemm.workspace_bytes(), stream(), index_, "peak"));
  const int64_t block = int64_t{1} << 18;
  ATTNSCOPE_ASSIGN(const Tensor random, Tensor::empty(dtype, {2 * block}));
  fill_normal(random, 7);
  const size_t block_bytes = static_cast<size_t>(block) * dtype_size(dtype);
  for (size_t at = 0; at < bytes; at += block_bytes) {
    ATTNSCOPE_TRY(cuda::check(
        cudaMemcpyAsync(a.as<std::byte>() + at, random.data(), block_bytes, cudaMemcpyHostToDevice, stream()),
        "copy"));
    ATTNSCOPE_TRY(cuda::check(cudaMemcpyAsync(b.as<std::byte>() + at, random.as<std::byte>() + block_bytes,
                                              block_bytes, cudaMemcpyHostToDevice, stream()),
                              "copy"));
  }
  ATTNSCOPE_TRY(stream_.synchronize());
  ATTNSCOPE_ASSIGN(const double us, median_us([&] {
                     return gemm.run(a.data(), b.data(), c.data(), 1.0f, work.data(), stream());
                   }));
  peaks.flops_per_s = shape.flops() / (us * 1e-6);
  peaks.flops_how =
      fmt::format("cuBLASLt {} {}³{}", dtype_name(dtype), n, dtype == DType::kF32 ? " on FMA units" : "");
  return {};
}

Status CudaDevice::measure_copy(Peaks& peaks) {
  const size_t bytes = size_t{1} << 30;
  ATTNSCOPE_ASSIGN(const auto from, cuda::DeviceBuffer::allocate(bytes, stream(), index_, "peak"));
  ATTNSCOPE_ASSIGN(const auto to, cuda::DeviceBuffer::allocate(bytes, stream(), index_, "peak"));
  ATTNSCOPE_TRY(cuda::check(cudaMemsetAsync(from.data(), 0x5a, bytes, stream()), "fill"));
  ATTNSCOPE_ASSIGN(const double us, median_us([&] {
                     return cuda::check(
                         cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream()),
                         "copy");
                   }));
  peaks.bytes_per_s = 2.0 * static_cast<double>(bytes) / (us * 1e-6);
  peaks.bytes_how = "device copy of 1 GiB, read + write";
  return {};
}

// A peak that cannot be measured (no memory left, no cuBLASLt) stays unknown.
Peaks CudaDevice::measure_peaks(DType dtype) {
  cuda::DeviceGuard guard(index_);
  Peaks peaks;
  (void)measure_gemm(dtype, peaks);
  (void)measure_copy(peaks);
  return peaks;
}

}  // namespace

Result<std::unique_ptr<BenchDevice>> open_cuda_device(int index) {
  if (std::string reason = cuda::unavailable_reason(); !reason.empty())
    return fail(ErrorCode::kUnavailable, "no GPU can be used: " + reason, "use --device cpu");
  return CudaDevice::open(index);
}

namespace {

// "9.19.0", read from the library itself: this build may have no backend for it.
std::string cudnn_state() {
  static constexpr const char* kNames[] = {"libcudnn.so.9"};
  const auto library = cuda::DynamicLibrary::open(kNames, "ATTNSCOPE_CUDNN");
  if (!library) return "missing: " + library.error().message + "; " + library.error().remedy;
  const auto version = reinterpret_cast<size_t (*)()>(library->find("cudnnGetVersion"));
  if (!version) return library->path() + " has no version";
  const size_t v = version();
  return fmt::format("{}.{}.{}", v / 10000, v % 10000 / 100, v % 100);
}

// Starts and ends a recording: a missing permission shows only then.
std::string cupti_state() {
  const auto api = profiler::load_cupti();
  if (!api) return "missing: " + api.error().message + "; " + api.error().remedy;
  uint32_t version = 0;
  (void)(*api)->get_version(&version);
  profiler::CuptiCollector collector(**api, {});
  if (const Status started = collector.start(); !started)
    return fmt::format("{} cannot record: {}; {}", version, started.error().message, started.error().remedy);
  (void)collector.stop();
  return fmt::format("{}, records GPU activity", version);
}

}  // namespace

int cuda_device_count() {
  int usable = 0;
  for (int index = 0; index < cuda::device_count(); ++index)
    if (cuda::usable(index)) ++usable;
  return usable;
}

std::string cuda_state() {
  if (std::string reason = cuda::unavailable_reason(); !reason.empty()) return reason;
  std::string text;
  for (int index = 0; index < cuda::device_count(); ++index) {
    const auto info = cuda::device_info(index);
    if (!info) continue;
    const Status usable = cuda::usable(index);
    text += fmt::format("{}{} (sm_{}, {} multiprocessors, {:.0f} GB{})", text.empty() ? "" : " · ",
                        (*info)->name, (*info)->sm(), (*info)->sm_count,
                        static_cast<double>((*info)->memory_bytes) / 1e9, usable ? "" : ", too old");
  }
  const int driver = cuda::driver_cuda_version();
  text += fmt::format(" · driver for CUDA {}.{}", driver / 1000, driver % 1000 / 10);
  const auto blas = cuda::cublaslt_version();
  text += " · cuBLASLt " + (blas ? *blas : "missing: " + blas.error().message);
  const auto nvrtc = cuda::Nvrtc::open();
  return text + " · cuDNN " + cudnn_state() + " · CUPTI " + cupti_state() + " · " +
         (nvrtc ? nvrtc->name() : "NVRTC missing: " + nvrtc.error().message);
}

}  // namespace attnscope::compare
