#pragma once
// CUPTI's buffers → ActivityRecords.

#include "profiler/cupti_api.h"
#include "profiler/cupti_records.h"

namespace attnscope::profiler {

// Walks one completed buffer. Kinds that are not known, and records without a sane time, are counted and
// skipped; the walk goes on. Names are interned, so nothing refers to the buffer afterwards. Host calls that
// only ask for state (cudaGetDevice, cudaGetLastError …) are left out, as every viewer does.
class CuptiDecoder {
 public:
  explicit CuptiDecoder(CuptiApi& api) : api_(api) {}
  void decode(uint8_t* buffer, size_t valid_bytes, ActivityRecords& into);
  NameTable& names() { return names_; }
  const NameTable& names() const { return names_; }

 private:
  void decode_record(const CUpti_Activity& record, ActivityRecords& into);
  void decode_api(const CUpti_Activity& record, bool driver, ActivityRecords& into);
  void decode_kernel(const CUpti_Activity& record, ActivityRecords& into);
  // Index of the call's name, or −1 when the call is one that is left out.
  int64_t api_name(bool driver, uint32_t cbid);
  uint32_t kernel_name(const char* name);

  CuptiApi& api_;
  NameTable names_;
  std::unordered_map<uint64_t, int64_t> api_names_;         // driver bit and cbid
  std::unordered_map<std::string, uint32_t> kernel_names_;  // by symbol; demangled once
};

}  // namespace attnscope::profiler
