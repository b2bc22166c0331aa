#pragma once
// What compare needs of a device. One file per device implements it; device_cuda.cpp or, in a build without
// CUDA, no_cuda.cpp defines open_cuda_device().

#include "compare/machine.h"

#include "attnscope/attention.h"
#include "attnscope/profiler.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace attnscope::compare {

// What the hardware was seen to reach with simple means: a large matrix product and a large copy.
struct Peaks {
  double flops_per_s = 0;  // 0: not known
  std::string flops_how;   // "oneDNN bf16 GEMM 1024 a side"
  double bytes_per_s = 0;
  std::string bytes_how;
};

// One call without any recording.
struct CallTime {
  double device_us = 0;           // CPU: the whole call; GPU: from first to last of its work
  std::optional<double> host_us;  // GPU: until the call returned; CPU: known only from a recording
};

class BenchDevice {
 public:
  virtual ~BenchDevice() = default;
  virtual Device device() const = 0;
  // "NVIDIA H200", "AMD EPYC 9B14, 2 threads"
  virtual std::string name() const = 0;
  virtual int64_t free_bytes() const = 0;
  // What a session must record to see this device's kernels.
  virtual std::vector<profiler::Activity> activities() const = 0;
  // Where calls of the public entry run: the device's own stream, never the default one.
  virtual RunOptions run_options() const { return {}; }

  // The device's view of a host tensor; memory belongs to the BenchDevice. On the CPU the view itself.
  [[nodiscard]] virtual Result<TensorView> upload(const TensorView& host) = 0;
  // Same sizes and strides.
  [[nodiscard]] virtual Status overwrite(const TensorView& host, const TensorView& device) = 0;
  [[nodiscard]] virtual Status download(const TensorView& device, const TensorView& host) = 0;
  // Runs once and waits for the end.
  [[nodiscard]] virtual Result<CallTime> time_call(const Plan& plan, const Request& request,
                                                   const Outputs& outputs) = 0;
  [[nodiscard]] virtual Status synchronize() = 0;
  // Makes the next call find its tensors in no cache.
  [[nodiscard]] virtual Status flush_caches() = 0;
  [[nodiscard]] virtual Peaks measure_peaks(DType dtype) = 0;
};

// threads: 0 = all the process may use.
std::unique_ptr<BenchDevice> open_cpu_device(int threads);
// kUnavailable with the reason when there is no such GPU or this build has no CUDA.
[[nodiscard]] Result<std::unique_ptr<BenchDevice>> open_cuda_device(int index);
// Number of usable GPUs, and one line for doctor: "2 × NVIDIA H200, driver 13.0", or why there is none.
int cuda_device_count();
std::string cuda_state();

}  // namespace attnscope::compare
