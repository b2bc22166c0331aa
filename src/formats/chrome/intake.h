#pragma once
// What an event means: its class by phase and category, its times and ids, into the builder.

#include "formats/chrome/era.h"
#include "formats/chrome/event_parser.h"
#include "formats/chrome/flow_pairs.h"
#include "trace/builder.h"

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

namespace attnscope::formats::chrome {

class Intake {
 public:
  explicit Intake(trace::TraceBuilder& builder);

  // False when the event was rejected, with a diagnostic.
  bool accept(const RawEvent& event);
  // An entry of the event list that is no event.
  void reject(trace::Diag why);
  // After the last event: closes open spans, counts flows.
  void finish();

  EraMarks& marks() { return marks_; }
  uint64_t events_with_phase() const { return events_with_phase_; }

 private:
  struct CategoryInfo {
    bool known = false;
    trace::EventClass cls = trace::EventClass::kSpan;
    uint8_t flow_group = 0;
  };

  trace::StringId name_of(const Token& token);
  const CategoryInfo& category(const Token& token, trace::StringId& id);
  uint32_t thread_of(const Token& pid, const Token& tid);
  bool time_of(const Token& token, int64_t& ns);
  void diagnose(uint16_t oddities);

  void take(const RawEvent& e);
  void complete(const RawEvent& e, trace::EventClass cls, trace::StringId cat);
  void add(const RawEvent& e, trace::EventClass cls, trace::StringId cat, int64_t ts, int64_t dur);
  void begin(const RawEvent& e, trace::EventClass cls, trace::StringId cat);
  void end(const RawEvent& e);
  void async(const RawEvent& e, char phase, trace::StringId cat);
  void flow(const RawEvent& e, char phase, const CategoryInfo& cat);
  void metadata(const RawEvent& e);

  void fill_operator(const RawEvent& e, trace::EventInput& in);
  void fill_device_work(const RawEvent& e, trace::EventInput& in);
  void fill_kernel(const RawEvent& e, trace::EventInput& in);
  void fill_memory(const RawEvent& e);

  uint64_t id_arg(const RawEvent& e, Arg a);
  int64_t int_arg(const RawEvent& e, Arg a, int64_t missing = -1);
  double real_arg(const RawEvent& e, Arg a);
  void triple_arg(const RawEvent& e, Arg a, std::array<int32_t, 3>& out);
  void odd_number(const Token& token, uint8_t flags);

  trace::TraceBuilder& builder_;
  trace::Diagnostics& diagnostics_;
  EraMarks marks_;
  FlowPairs flows_;
  std::vector<CategoryInfo> categories_;                                     // by StringId
  std::unordered_map<uint32_t, std::vector<trace::EventIndex>> open_spans_;  // B without E, by thread
  std::unordered_map<std::string, std::vector<trace::EventIndex>> open_async_;
  size_t open_count_ = 0;
  struct CategorySlot {
    std::array<char, 32> text{};
    uint32_t length = 0;
    trace::StringId id = trace::kEmptyString;
  };
  std::array<CategorySlot, 16> category_cache_{};
  struct ThreadSlot {
    int64_t pid = 0, tid = 0;
    uint32_t thread = UINT32_MAX;
  };
  std::array<ThreadSlot, 64> thread_cache_{};
  trace::KernelConfig config_;
  trace::MemoryInfo memory_;
  trace::SyncInfo sync_;
  std::string scratch_;
  uint64_t events_with_phase_ = 0;
  bool rejected_ = false;
};

}  // namespace attnscope::formats::chrome
