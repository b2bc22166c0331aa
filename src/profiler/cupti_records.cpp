#include "profiler/cupti_records.h"

#include <algorithm>

namespace attnscope::profiler {

uint32_t NameTable::intern(std::string_view name) {
  if (name.empty()) return 0;
  const auto [at, fresh] = index_.try_emplace(std::string(name), static_cast<uint32_t>(names_.size()));
  if (fresh) names_.emplace_back(name);
  return at->second;
}

void ActivityRecords::sort() {
  auto by_begin = [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; };
  std::stable_sort(apis.begin(), apis.end(), by_begin);
  std::stable_sort(kernels.begin(), kernels.end(), by_begin);
  std::stable_sort(copies.begin(), copies.end(), by_begin);
  std::stable_sort(fills.begin(), fills.end(), by_begin);
  std::stable_sort(syncs.begin(), syncs.end(), by_begin);
  std::stable_sort(overheads.begin(), overheads.end(), by_begin);
}

std::string_view copy_kind_text(uint8_t kind) {
  static constexpr std::string_view kNames[] = {"unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                                "AtoD",    "DtoA", "DtoD", "HtoH", "PtoP"};
  return kind < std::size(kNames) ? kNames[kind] : kNames[0];
}

std::string_view memory_kind_text(uint8_t kind) {
  static constexpr std::string_view kNames[] = {"Unknown", "Pageable", "Pinned",        "Device",
                                                "Array",   "Managed",  "Device Static", "Managed Static"};
  return kind < std::size(kNames) ? kNames[kind] : kNames[0];
}

std::string_view sync_type_text(uint8_t type) {
  static constexpr std::string_view kNames[] = {"Unknown Sync", "Event Sync", "Stream Wait Event",
                                                "Stream Sync", "Context Sync"};
  return type < std::size(kNames) ? kNames[type] : kNames[0];
}

std::string_view overhead_kind_text(uint32_t kind) {
  switch (kind) {
    case 1: return "Driver Compiler";
    case 1u << 16: return "Buffer Flush";
    case 2u << 16: return "Instrumentation";
    case 3u << 16: return "Resource";
    case 4u << 16: return "Runtime Triggered Module Loading";
    case 5u << 16: return "Lazy Function Loading";
    case 6u << 16: return "Command Buffer Full";
    case 7u << 16: return "Activity Buffer Request";
    case 8u << 16: return "UVM Activity Init";
    default: return "Unrecognized";
  }
}

}  // namespace attnscope::profiler
