#include "analysis/roofline.h"

#include <algorithm>
#include <array>

namespace attnscope {
namespace {

constexpr double kTera = 1e12;

struct Entry {
  std::string_view part;  // of the device's name
  DevicePeaks peaks;
};

constexpr DevicePeaks peaks(std::string_view name, double tensor16, double tensor8, double tf32, double f32,
                            double memory_tb, bool bf16 = true) {
  return {name, tensor16 * kTera, tensor8 * kTera, tf32 * kTera, f32 * kTera, memory_tb * kTera, bf16};
}

// Vendors' data sheets, dense figures. The first entry whose part is in the name wins, so the more
// special name comes first.
constexpr std::array<Entry, 28> kTable{{
    {"B200", peaks("B200", 2250, 4500, 1125, 75, 8.0)},
    {"GH200", peaks("GH200", 989, 1979, 495, 66.9, 4.0)},
    {"H200", peaks("H200", 989, 1979, 495, 66.9, 4.8)},
    {"H100 NVL", peaks("H100 NVL", 835, 1671, 418, 60, 3.9)},
    {"H100 PCIe", peaks("H100 PCIe", 756, 1513, 378, 51, 2.0)},
    {"H100 80GB HBM3", peaks("H100 SXM", 989, 1979, 495, 66.9, 3.35)},
    {"A100-SXM4-80GB", peaks("A100 SXM 80 GB", 312, 0, 156, 19.5, 2.039)},
    {"A100 80GB PCIe", peaks("A100 PCIe 80 GB", 312, 0, 156, 19.5, 1.935)},
    {"A100-SXM-80GB", peaks("A100 SXM 80 GB", 312, 0, 156, 19.5, 2.039)},
    {"A100-SXM4-40GB", peaks("A100 SXM 40 GB", 312, 0, 156, 19.5, 1.555)},
    {"A100-PCIE-40GB", peaks("A100 PCIe 40 GB", 312, 0, 156, 19.5, 1.555)},
    {"V100-SXM2", peaks("V100 SXM2", 125, 0, 0, 15.7, 0.9, false)},
    {"V100-PCIE", peaks("V100 PCIe", 112, 0, 0, 14, 0.9, false)},
    {"V100-DGXS", peaks("V100 DGX Station", 125, 0, 0, 15.7, 0.9, false)},
    {"Tesla T4", peaks("T4", 65, 0, 0, 8.1, 0.32, false)},
    {"A10G", peaks("A10G", 70, 0, 35, 31.5, 0.6)},
    {"NVIDIA A10", peaks("A10", 125, 0, 62.5, 31.2, 0.6)},
    {"L40S", peaks("L40S", 362, 733, 183, 91.6, 0.864)},
    {"L40", peaks("L40", 181, 362, 90.5, 90.5, 0.864)},
    {"NVIDIA L4", peaks("L4", 121, 242, 60, 30.3, 0.3)},
    {"RTX 4090", peaks("RTX 4090", 165, 330, 82.6, 82.6, 1.008)},
    {"RTX 3090", peaks("RTX 3090", 71, 0, 35.6, 35.6, 0.936)},
    {"RTX 2080 Ti", peaks("RTX 2080 Ti", 53.8, 0, 0, 13.4, 0.616, false)},
    {"Tesla P100", peaks("P100", 0, 0, 0, 10.6, 0.732, false)},
    {"MI325X", peaks("MI325X", 1307, 2615, 654, 163, 6.0)},
    {"MI300X", peaks("MI300X", 1307, 2615, 654, 163, 5.3)},
    {"MI250X", peaks("MI250X, one die", 191, 0, 0, 23.9, 1.6)},
    {"MI210", peaks("MI210", 181, 0, 0, 22.6, 1.6)},
}};

double peak_for(NumericType type, const DevicePeaks& peaks) {
  switch (type) {
    case NumericType::kF16: return peaks.tensor_16bit;
    case NumericType::kBF16: return peaks.bf16 ? peaks.tensor_16bit : 0;
    case NumericType::kTF32: return peaks.tensor_tf32;
    case NumericType::kF8: return peaks.tensor_8bit;
    case NumericType::kF32: return peaks.vector_f32;
    default: return 0;
  }
}

}  // namespace

std::optional<DevicePeaks> known_peaks(const trace::DeviceProperties& device) {
  for (const Entry& entry : kTable)
    if (device.name.find(entry.part) != std::string::npos) return entry.peaks;
  return std::nullopt;
}

std::string_view bound_name(Bound bound) {
  switch (bound) {
    case Bound::kUnknown: return "unknown";
    case Bound::kCompute: return "compute";
    case Bound::kMemory: return "memory";
  }
  return "unknown";
}

std::optional<Roofline> roofline(std::optional<double> flops, std::optional<double> bytes, double time_us,
                                 NumericType type, const std::optional<DevicePeaks>& peaks) {
  if (time_us <= 0 || (!flops && !bytes)) return std::nullopt;
  Roofline result;
  result.flops_per_s = flops.value_or(0) / time_us * 1e6;
  result.bytes_per_s = bytes.value_or(0) / time_us * 1e6;
  if (!peaks) return result;
  result.peak_flops_per_s = peak_for(type, *peaks);
  const double compute_us = flops && result.peak_flops_per_s > 0 ? *flops / result.peak_flops_per_s * 1e6 : 0;
  const double memory_us = bytes && peaks->memory > 0 ? *bytes / peaks->memory * 1e6 : 0;
  if (compute_us == 0 && memory_us == 0) return result;
  // With only one of the two known, the other might be the tighter one: no bound is claimed.
  if (compute_us > 0 && memory_us > 0)
    result.bound = compute_us >= memory_us ? Bound::kCompute : Bound::kMemory;
  result.least_us = std::max(compute_us, memory_us);
  result.fraction = result.least_us / time_us;
  return result;
}

}  // namespace attnscope
