#pragma once
// A CUPTI that replays what a test tells it to: records written into the buffers that the collector hands
// out, in any order, with drops, unknown kinds and buffers that never come back.

#include "profiler/cupti_api.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace attnscope::profiler {

class FakeCupti final : public CuptiApi {
 public:
  // Bytes of one record as CUPTI would lay it out.
  struct Record {
    std::vector<uint8_t> bytes;
  };
  template <typename T>
  static Record record(const T& value) {
    Record r;
    r.bytes.resize(sizeof(T));
    std::memcpy(r.bytes.data(), &value, sizeof(T));
    return r;
  }

  std::vector<std::string> calls;     // in the order they came
  std::map<int, CUptiResult> refuse;  // kind → what enable() answers
  CUptiResult clock_result = CUPTI_SUCCESS;
  std::map<uint32_t, const char*> runtime_names, driver_names;
  size_t dropped = 0;         // told once
  bool keep_buffers = false;  // another profiler took the callbacks: nothing comes back
  CUpti_TimestampCallbackFunc clock = nullptr;

  // Asks the collector for a buffer and fills it with `records`. False when it gave none (CUPTI then drops).
  bool write_buffer(const std::vector<Record>& records) {
    uint8_t* buffer = nullptr;
    size_t size = 0, max_records = 0;
    request_(&buffer, &size, &max_records);
    if (!buffer) {
      dropped += records.size();
      return false;
    }
    size_t at = 0;
    for (const Record& r : records) {
      const auto bytes = static_cast<uint32_t>(r.bytes.size());
      if (at + 8 + bytes > size) {
        ++dropped;
        continue;
      }
      std::memset(buffer + at, 0, 8);
      std::memcpy(buffer + at, &bytes, sizeof(bytes));
      std::memcpy(buffer + at + 8, r.bytes.data(), bytes);
      at += 8 + (bytes + 7) / 8 * 8;
    }
    open_.push_back({buffer, size, at});
    return true;
  }
  // Hands the oldest open buffer back.
  void complete_oldest() {
    if (open_.empty()) return;
    const Open b = open_.front();
    open_.erase(open_.begin());
    complete_(nullptr, 0, b.buffer, b.size, b.valid);
  }
  void complete_newest() {
    if (open_.empty()) return;
    const Open b = open_.back();
    open_.pop_back();
    complete_(nullptr, 0, b.buffer, b.size, b.valid);
  }
  size_t open_buffers() const { return open_.size(); }

  CUptiResult get_version(uint32_t* version) override {
    *version = 130001;
    return CUPTI_SUCCESS;
  }
  CUptiResult set_system_thread_ids() override {
    calls.emplace_back("thread ids");
    return CUPTI_SUCCESS;
  }
  CUptiResult register_timestamp_callback(CUpti_TimestampCallbackFunc callback) override {
    calls.emplace_back("clock");
    clock = callback;
    return clock_result;
  }
  CUptiResult register_buffer_callbacks(CUpti_BuffersCallbackRequestFunc request,
                                        CUpti_BuffersCallbackCompleteFunc complete) override {
    calls.emplace_back("buffers");
    request_ = request;
    complete_ = complete;
    return CUPTI_SUCCESS;
  }
  CUptiResult enable(CUpti_ActivityKind kind) override {
    calls.push_back("enable " + std::to_string(kind));
    const auto refused = refuse.find(kind);
    return refused == refuse.end() ? CUPTI_SUCCESS : refused->second;
  }
  CUptiResult disable(CUpti_ActivityKind kind) override {
    calls.push_back("disable " + std::to_string(kind));
    return CUPTI_SUCCESS;
  }
  CUptiResult flush(bool forced) override {
    calls.emplace_back(forced ? "flush forced" : "flush");
    while (forced && !keep_buffers && !open_.empty()) complete_oldest();
    return CUPTI_SUCCESS;
  }
  CUptiResult next_record(uint8_t* buffer, size_t valid_bytes, CUpti_Activity** record) override {
    uint8_t* next = buffer;
    if (*record) {
      auto* current = reinterpret_cast<uint8_t*>(*record);
      uint32_t bytes = 0;
      std::memcpy(&bytes, current - 8, sizeof(bytes));
      next = current + (bytes + 7) / 8 * 8;
    }
    if (next + 8 > buffer + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    uint32_t bytes = 0;
    std::memcpy(&bytes, next, sizeof(bytes));
    if (bytes == 0) return CUPTI_ERROR_INVALID_KIND;  // a torn buffer
    *record = reinterpret_cast<CUpti_Activity*>(next + 8);
    return CUPTI_SUCCESS;
  }
  CUptiResult dropped_records(CUcontext, uint32_t, size_t* count) override {
    *count = dropped;
    dropped = 0;
    return CUPTI_SUCCESS;
  }
  CUptiResult callback_name(CUpti_CallbackDomain domain, uint32_t cbid, const char** name) override {
    const auto& names = domain == CUPTI_CB_DOMAIN_DRIVER_API ? driver_names : runtime_names;
    const auto at = names.find(cbid);
    if (at == names.end()) return CUPTI_ERROR_INVALID_PARAMETER;
    *name = at->second;
    return CUPTI_SUCCESS;
  }
  const char* result_text(CUptiResult) override { return "fake status"; }

 private:
  struct Open {
    uint8_t* buffer;
    size_t size, valid;
  };
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  std::vector<Open> open_;
};

}  // namespace attnscope::profiler
