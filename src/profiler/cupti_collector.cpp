#include "profiler/cupti_collector.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>

namespace attnscope::profiler {
namespace {

// Guards the pointer against a callback that comes late, from a thread of CUPTI's, while a collector goes.
std::mutex g_mutex;
CuptiCollector* g_collector = nullptr;

uint64_t CUPTIAPI timestamp() {
  return CuptiCollector::now_ns();
}

constexpr size_t kAlignment = 8;

}  // namespace

uint64_t CuptiCollector::now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

CuptiCollector::CuptiCollector(CuptiApi& api, CollectorOptions options)
    : api_(api), options_(std::move(options)), decoder_(api) {}

CuptiCollector::~CuptiCollector() {
  if (running_) (void)stop();
}

Status CuptiCollector::enable_kinds() {
  std::vector<CUpti_ActivityKind> kinds{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
                                        CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_DRIVER};
  const size_t needed = kinds.size();
  if (options_.synchronization) kinds.push_back(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
  if (options_.overhead) kinds.push_back(CUPTI_ACTIVITY_KIND_OVERHEAD);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const CUptiResult result = api_.enable(kinds[i]);
    if (result == CUPTI_SUCCESS) {
      enabled_.push_back(kinds[i]);
      continue;
    }
    if (i < needed) {
      Status failed = check_cupti(api_, result, "enabling GPU activity records");
      disable_kinds();
      return failed;
    }
    notes_.push_back(fmt::format("activity kind {} is not recorded: {}", static_cast<int>(kinds[i]),
                                 api_.result_text(result)));
  }
  return {};
}

void CuptiCollector::disable_kinds() {
  for (CUpti_ActivityKind kind : enabled_) (void)api_.disable(kind);
  enabled_.clear();
}

Status CuptiCollector::start() {
  {
    std::lock_guard lock(g_mutex);
    if (g_collector)
      return fail(ErrorCode::kUnavailable, "GPU activity is already being recorded in this process",
                  "finish the other session first");
    g_collector = this;
  }
  auto give_up = [](Status failed) {
    std::lock_guard lock(g_mutex);
    g_collector = nullptr;
    return failed;
  };
  // A clock of ours makes conversion needless; an old CUPTI without it would need one, so it is an error.
  if (Status s = check_cupti(api_, api_.register_timestamp_callback(timestamp), "setting CUPTI's clock"); !s)
    return give_up(std::move(s));
  if (api_.set_system_thread_ids() != CUPTI_SUCCESS)
    notes_.emplace_back("CUPTI gives its own thread ids: calls may not be joined to host ranges");
  if (Status s = check_cupti(api_, api_.register_buffer_callbacks(request, complete), "registering buffers");
      !s)
    return give_up(std::move(s));
  if (Status s = enable_kinds(); !s) return give_up(std::move(s));
  running_ = true;
  return {};
}

void CuptiCollector::flush() {
  (void)api_.flush(false);
}

ActivityRecords CuptiCollector::stop() {
  if (running_) {
    (void)api_.flush(false);
    disable_kinds();
    (void)api_.flush(true);
    running_ = false;
    std::lock_guard lock(g_mutex);
    if (g_collector == this) g_collector = nullptr;
  }
  std::lock_guard lock(mutex_);
  records_.loss.lost_buffers += out_;
  if (out_ > 0)
    notes_.push_back(
        fmt::format("{} buffers did not come back: another profiler may have taken CUPTI's callbacks", out_));
  if (refused_requests_ > 0)
    notes_.push_back(fmt::format("CUPTI asked for a buffer {} times when all {} were full", refused_requests_,
                                 options_.max_buffers));
  // CUPTI may still write to what it holds: that memory is given up rather than freed.
  if (out_ > 0)
    for (auto& buffer : buffers_) (void)buffer.release();
  if (out_ > 0) buffers_.clear(), free_.clear();
  out_ = 0;
  refused_requests_ = 0;
  records_.sort();
  return std::exchange(records_, {});
}

std::vector<std::string> CuptiCollector::notes() const {
  std::lock_guard lock(mutex_);
  return notes_;
}

void CuptiCollector::request(uint8_t** buffer, size_t* size, size_t* max_records) noexcept {
  *buffer = nullptr;
  *size = 0;
  *max_records = 0;
  try {
    std::lock_guard lock(g_mutex);
    if (g_collector) g_collector->on_request(buffer, size);
  } catch (...) {
    *buffer = nullptr;  // out of host memory: CUPTI drops records and counts them
    *size = 0;
  }
}

void CuptiCollector::complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t /*size*/,
                              size_t valid) noexcept {
  try {
    std::lock_guard lock(g_mutex);
    if (g_collector) g_collector->on_complete(context, stream, buffer, valid);
  } catch (...) {
    // Out of host memory while decoding: the rest of this buffer is lost; stop() finds it missing.
  }
}

void CuptiCollector::on_request(uint8_t** buffer, size_t* size) {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    if (buffers_.size() >= options_.max_buffers) {
      ++refused_requests_;
      return;
    }
    buffers_.push_back(std::make_unique<uint8_t[]>(options_.buffer_bytes + kAlignment));
    free_.push_back(buffers_.back().get());
  }
  *buffer = free_.back();
  free_.pop_back();
  *size = options_.buffer_bytes;
  ++out_;
}

void CuptiCollector::on_complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t valid) {
  std::lock_guard lock(mutex_);
  const bool ours =
      std::any_of(buffers_.begin(), buffers_.end(), [&](const auto& b) { return b.get() == buffer; });
  if (!ours) return;
  decoder_.decode(buffer, valid, records_);
  size_t dropped = 0;
  if (api_.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) records_.loss.dropped += dropped;
  free_.push_back(buffer);
  --out_;
  if (options_.on_records) options_.on_records(records_, decoder_.names());
}

}  // namespace attnscope::profiler
