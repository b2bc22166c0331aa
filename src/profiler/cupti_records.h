#pragma once
// What CUPTI's records say, as plain data: no CUPTI types, no pointers into its buffers.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attnscope::profiler {

// Names by index; 0 is the empty name.
class NameTable {
 public:
  NameTable() { names_.emplace_back(); }
  uint32_t intern(std::string_view name);
  std::string_view text(uint32_t id) const { return id < names_.size() ? std::string_view(names_[id]) : ""; }
  size_t size() const { return names_.size(); }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> index_;
};

// Times are nanoseconds of the collector's clock.
struct ApiRecord {
  uint32_t name = 0;
  bool driver = false;
  uint64_t begin_ns = 0, end_ns = 0;
  uint32_t process = 0, thread = 0, correlation = 0;
  uint32_t status = 0;
};

struct KernelRecord {
  uint32_t name = 0;
  uint64_t begin_ns = 0, end_ns = 0;
  uint32_t device = 0, context = 0, stream = 0, correlation = 0;
  std::array<int32_t, 3> grid{}, block{};
  std::array<uint32_t, 3> cluster{};
  uint32_t registers_per_thread = 0;
  int32_t static_shared = 0, dynamic_shared = 0;
  uint32_t shared_executed = 0;  // what the multiprocessor's carve-out was for this launch
  bool shared_optin = false;     // the kernel raised its limit over 48 KiB
  uint32_t local_per_thread = 0;
  uint32_t max_active_clusters = 0;
  uint8_t launch_type = 0;  // 0 regular, 1 and 2 cooperative
  uint64_t graph_node = 0;
  uint32_t graph = 0;
};

struct CopyRecord {
  uint8_t kind = 0;          // CUpti_ActivityMemcpyKind
  uint8_t from = 0, to = 0;  // CUpti_ActivityMemoryKind
  uint64_t bytes = 0, begin_ns = 0, end_ns = 0;
  uint32_t device = 0, context = 0, stream = 0, correlation = 0;
  int32_t from_device = -1, to_device = -1;  // between GPUs
  uint64_t graph_node = 0;
  uint32_t graph = 0;
};

struct FillRecord {
  uint32_t value = 0;
  uint64_t bytes = 0, begin_ns = 0, end_ns = 0;
  uint32_t device = 0, context = 0, stream = 0, correlation = 0;
  uint8_t memory = 0;
  uint64_t graph_node = 0;
  uint32_t graph = 0;
};

struct SyncRecord {
  uint8_t type = 0;  // CUpti_ActivitySynchronizationType
  uint64_t begin_ns = 0, end_ns = 0;
  uint32_t context = 0, stream = 0, correlation = 0, event = 0;
};

struct OverheadRecord {
  uint32_t kind = 0;  // CUpti_ActivityOverheadKind
  uint64_t begin_ns = 0, end_ns = 0;
};

struct LossCounts {
  uint64_t dropped = 0;         // CUPTI had no buffer for them
  uint64_t lost_buffers = 0;    // handed out, never returned
  uint64_t unknown = 0;         // kinds this build does not know
  uint64_t malformed = 0;       // end before begin, or no time at all
  uint64_t broken_buffers = 0;  // a buffer whose walk ended in an error
};

struct ActivityRecords {
  std::vector<ApiRecord> apis;
  std::vector<KernelRecord> kernels;
  std::vector<CopyRecord> copies;
  std::vector<FillRecord> fills;
  std::vector<SyncRecord> syncs;
  std::vector<OverheadRecord> overheads;
  LossCounts loss;
  // By begin, as buffers complete in no order.
  void sort();
};

std::string_view copy_kind_text(uint8_t kind);       // "DtoD" …
std::string_view memory_kind_text(uint8_t kind);     // "Device" …
std::string_view sync_type_text(uint8_t type);       // "Stream Sync" …
std::string_view overhead_kind_text(uint32_t kind);  // "Buffer Flush" …

}  // namespace attnscope::profiler
