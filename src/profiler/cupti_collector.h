#pragma once
// Starts and stops CUPTI's activity recording, owns its buffers, and counts what got lost on the way.

#include "profiler/cupti_decode.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace attnscope::profiler {

struct CollectorOptions {
  size_t buffer_bytes = size_t{4} << 20;
  size_t max_buffers = 256;  // when all are out, CUPTI drops records and says how many
  bool overhead = true;
  bool synchronization = true;
  // Called under the collector's lock after each buffer, with the records so far: a consumer that spools
  // takes them away. Null: records are kept until stop().
  std::function<void(ActivityRecords&, NameTable&)> on_records;
};

// One at a time per process, as CUPTI has one pair of buffer callbacks and they carry no user pointer.
class CuptiCollector {
 public:
  CuptiCollector(CuptiApi& api, CollectorOptions options);
  ~CuptiCollector();
  CuptiCollector(const CuptiCollector&) = delete;
  CuptiCollector& operator=(const CuptiCollector&) = delete;

  // kUnavailable when another collector runs or CUPTI refuses (the reason and the remedy are CUPTI's). Our
  // clock is set before any kind is enabled, so every record is in Unix nanoseconds.
  [[nodiscard]] Status start();
  // Asks for the buffers that are full or whose work is done; never waits for the device.
  void flush();
  // Disables, takes every buffer back and returns what was recorded, in time order. The device must be idle
  // for its last records to be there.
  ActivityRecords stop();
  const NameTable& names() const { return decoder_.names(); }
  std::vector<std::string> notes() const;

  // Unix time in nanoseconds; the clock of all records.
  static uint64_t now_ns();

 private:
  static void CUPTIAPI request(uint8_t** buffer, size_t* size, size_t* max_records) noexcept;
  static void CUPTIAPI complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size,
                                size_t valid) noexcept;
  void on_request(uint8_t** buffer, size_t* size);
  void on_complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t valid);
  [[nodiscard]] Status enable_kinds();
  void disable_kinds();

  CuptiApi& api_;
  CollectorOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  CuptiDecoder decoder_;
  ActivityRecords records_;
  std::vector<std::unique_ptr<uint8_t[]>> buffers_;
  std::vector<uint8_t*> free_;
  size_t out_ = 0;  // buffers CUPTI holds
  uint64_t refused_requests_ = 0;
  std::vector<CUpti_ActivityKind> enabled_;
  std::vector<std::string> notes_;
  bool running_ = false;
};

}  // namespace attnscope::profiler
