#pragma once
// What a device can do at best, and where a piece of work stands against it.

#include "analysis/kernel_name.h"
#include "trace/trace.h"

#include <optional>
#include <string_view>

namespace attnscope {

// Published peak figures of one device, dense (no sparsity), per second. 0: the device has no such unit.
struct DevicePeaks {
  std::string_view name;    // as the table spells it
  double tensor_16bit = 0;  // FLOP/s, f16 or bf16 into f32, tensor cores
  double tensor_8bit = 0;   // FLOP/s
  double tensor_tf32 = 0;   // FLOP/s
  double vector_f32 = 0;    // FLOP/s on plain FMA units
  double memory = 0;        // bytes/s
  bool bf16 = true;         // tensor cores take bf16 (from sm_80 on)
};

// By the device's name; nothing for one that the table does not know: traces record no clocks,
// so the figures cannot be derived.
std::optional<DevicePeaks> known_peaks(const trace::DeviceProperties& device);

enum class Bound : uint8_t { kUnknown, kCompute, kMemory };
std::string_view bound_name(Bound bound);

struct Roofline {
  double flops_per_s = 0, bytes_per_s = 0;  // reached
  double peak_flops_per_s = 0;              // of the unit that this type uses; 0: not known
  double fraction = 0;                      // of what the tighter bound allows
  double least_us = 0;                      // the time at that bound
  Bound bound = Bound::kUnknown;
};

// Nothing when the time is 0 or neither flops nor bytes is known. Peaks may be absent: then only the rates.
std::optional<Roofline> roofline(std::optional<double> flops, std::optional<double> bytes, double time_us,
                                 NumericType type, const std::optional<DevicePeaks>& peaks);

}  // namespace attnscope
