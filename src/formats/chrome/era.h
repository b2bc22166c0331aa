#pragma once
// What categories mean, and which version of which producer wrote a file.

#include "trace/trace.h"

#include <cstdint>
#include <string_view>

namespace attnscope::formats::chrome {

// The class of a complete event by its category; kSpan for those of other producers.
trace::EventClass category_class(std::string_view category);
// Whether only Kineto writes events of this class.
bool is_kineto_class(trace::EventClass c);

// Marks of the producer's version, gathered while reading; see find_era.
struct EraMarks {
  bool top_level_array = false, base_before_events = false, base_after_events = false;
  bool attnscope = false, has_devices = false;
  bool capital_categories = false, kineto_categories = false, fractional_times = false;
  bool old_flows = false;  // async_cpu_to_gpu
  bool concrete_inputs = false, sync_or_driver = false, occupancy = false, memory_events = false;
  bool graph_ids = false;
  bool legacy_autograd = false, viztracer = false;
  uint64_t external_is_correlation = 0, external_differs = 0;  // device events
};
trace::Era find_era(const EraMarks& marks);

}  // namespace attnscope::formats::chrome
