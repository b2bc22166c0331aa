#pragma once
// A growing file that one process writes and another reads, also when the writer dies between two
// instructions: records are copied into shared pages, then one counter makes them part of the file.

#include "attnscope/result.h"
#include "profiler/cupti_records.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace attnscope::profiler::spool {

enum class RecordType : uint32_t {
  kPadding = 0,
  kName,  // NameRecord, then the text
  kApi,   // ApiRecord …: the structs of cupti_records.h
  kKernel,
  kCopy,
  kFill,
  kSync,
  kOverhead,
  kRange,   // RangeRecord
  kDevice,  // DeviceRecord
  kLoss,    // LossCounts, to be added up
  kNote,    // text
};

struct NameRecord {
  uint32_t id = 0;
  uint32_t bytes = 0;
};
// One NVTX range of a thread; end 0: still open when the process ended.
struct RangeRecord {
  uint32_t name = 0;
  uint32_t thread = 0;
  uint64_t begin_ns = 0, end_ns = 0;
};
struct DeviceRecord {
  int32_t index = 0, major = 0, minor = 0, sm_count = 0, warp_size = 0, max_threads_per_block = 0,
          max_threads_per_sm = 0;
  int32_t registers_per_block = 0, registers_per_sm = 0, shared_per_block = 0, shared_per_block_optin = 0,
          shared_per_sm = 0;
  int64_t memory_bytes = 0;
  char name[256] = {};
};

// First page of the file.
struct Header {
  uint64_t magic = 0;
  uint32_t layout = 0;  // of the structs: reader and writer must be of one build
  uint32_t process = 0;
  uint64_t started_ns = 0;
  std::atomic<uint64_t> committed{0};  // bytes after the first page that are whole records
};
inline constexpr uint64_t kMagic = 0x6c6f6f70736e7461;  // "atnspool"
uint32_t layout_version();

class Writer {
 public:
  // Creates `folder`/<pid>.spool. Null when it cannot be made: recording then goes nowhere, the program runs
  // on.
  static Writer* create(const std::string& folder);
  void append(RecordType type, const void* head, size_t head_bytes, const void* tail = nullptr,
              size_t tail_bytes = 0);
  template <typename T>
  void append(RecordType type, const T& record) {
    append(type, &record, sizeof(record));
  }
  template <typename T>
  void append_all(RecordType type, const std::vector<T>& records) {
    for (const T& r : records) append(type, r);
  }

 private:
  bool reserve(size_t bytes);
  std::mutex mutex_;
  int file_ = -1;
  Header* header_ = nullptr;
  uint64_t written_ = 0;         // = header_->committed
  std::byte* window_ = nullptr;  // the mapped part that written_ lies in
  uint64_t window_begin_ = 0;
};

// What one process left.
struct Content {
  uint32_t process = 0;
  uint64_t started_ns = 0;
  NameTable names;
  ActivityRecords records;
  std::vector<RangeRecord> ranges;
  std::vector<DeviceRecord> devices;
  std::vector<std::string> notes;
};
// kBadInput for a file that is no spool of this build. A file whose writer was killed reads to its last whole
// record.
[[nodiscard]] Result<Content> read(const std::string& path);

}  // namespace attnscope::profiler::spool
