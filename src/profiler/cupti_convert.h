#pragma once
// ActivityRecords → the GPU part of a Recording.

#include "attnscope/profiler.h"
#include "profiler/cupti_records.h"

#include <span>
#include <vector>

namespace attnscope::cuda {
struct DeviceInfo;
}

namespace attnscope::profiler {

// Adds kernels, copies, fills, launches, waits, overhead and losses; times become relative to
// recording.base_ns. A driver call with the correlation of a runtime call is that call's own inside and is
// left out. devices: for the shared-memory limit in force and the header's deviceProperties.
void add_activity(const ActivityRecords& records, const NameTable& names,
                  std::span<const cuda::DeviceInfo* const> devices, Recording& recording);

DeviceProperties properties_of(const cuda::DeviceInfo& info);

}  // namespace attnscope::profiler
