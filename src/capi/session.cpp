// The profiler through the C ABI.
#include "capi/fence.h"
#include "capi/places.h"
#include "capi/trace_file.h"

#include "attnscope/attnscope.h"
#include "attnscope/profiler.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <vector>

using namespace attnscope;

struct attnscope_session {  // NOLINT(readability-identifier-naming): a name of the C ABI
  profiler::Session session;
};

namespace {

// The sinks that this thread's open ranges began on: a range ends where it began, also when a session came or
// went.
thread_local std::vector<EventSink*> open_ranges;

std::string summary_of(const profiler::Recording& recording) {
  int kernels = 0, copies = 0, fills = 0;
  double total_us = 0;
  nlohmann::json events = nlohmann::json::array();
  for (const profiler::DeviceEvent& e : recording.device_events) {
    ++(e.kind == profiler::RecordKind::kKernel ? kernels
       : e.kind == profiler::RecordKind::kCopy ? copies
                                               : fills);
    const double us = static_cast<double>(e.end_ns - e.begin_ns) / 1e3;
    total_us += us;
    nlohmann::json row{
        {"name", e.name}, {"kind", profiler::record_kind_name(e.kind)}, {"us", us}, {"stream", e.stream}};
    if (e.kind == profiler::RecordKind::kKernel) {
      row["grid"] = e.grid;
      row["block"] = e.block;
      row["registers"] = e.registers_per_thread;
      row["shared_bytes"] = e.shared_bytes;
    } else {
      row["bytes"] = e.bytes;
    }
    events.push_back(std::move(row));
  }
  return nlohmann::json{{"kernels", kernels},
                        {"copies", copies},
                        {"fills", fills},
                        {"device_us", total_us},
                        {"events", recording.events.size()},
                        {"dropped", recording.dropped + recording.activity_loss.dropped_records},
                        {"device_events", std::move(events)}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" {

int attnscope_session_start(int32_t cuda, int32_t record_shapes, attnscope_session** session) {
  return capi::fenced([&]() -> Status {
    if (!session) return fail(ErrorCode::kInvalidArgument, "nowhere to put the session");
    *session = nullptr;
    profiler::SessionOptions options;
    options.record_shapes = record_shapes != 0;
    if (cuda) {
      capi::enable_device_activity();
      options.activities.push_back(profiler::Activity::kCuda);
    }
    ATTNSCOPE_ASSIGN(auto started, profiler::Session::start(options));
    *session = new attnscope_session{std::move(started)};
    return {};
  });
}

int attnscope_session_step(attnscope_session* session) {
  return capi::fenced([&]() -> Status {
    if (!session) return fail(ErrorCode::kInvalidArgument, "no session was given");
    session->session.step();
    return {};
  });
}

int attnscope_session_finish(attnscope_session* session, const char* path, char** summary) {
  const std::unique_ptr<attnscope_session> owned(session);
  return capi::fenced([&]() -> Status {
    if (!owned) return fail(ErrorCode::kInvalidArgument, "no session was given");
    ATTNSCOPE_ASSIGN(const profiler::Recording recording, owned->session.finish());
    if (path) ATTNSCOPE_TRY(capi::write_trace_file(recording, path));
    if (summary) ATTNSCOPE_TRY(capi::give_text(summary, summary_of(recording)));
    return {};
  });
}

void attnscope_range_push(const char* name) {
  (void)capi::fenced([&]() -> Status {
    EventSink* sink = profiler::detail::range_sink.load(std::memory_order_acquire);
    open_ranges.push_back(sink);
    if (sink) profiler::detail::begin_range(sink, name ? name : "");
    return {};
  });
}

void attnscope_range_pop(void) {
  if (open_ranges.empty()) return;
  EventSink* sink = open_ranges.back();
  open_ranges.pop_back();
  if (sink) profiler::detail::end_range(sink);
}

}  // extern "C"
