#include "formats/chrome/era.h"

namespace attnscope::formats::chrome {

using trace::EventClass;

namespace {

struct CategoryRow {
  std::string_view name;
  EventClass cls;
};
constexpr CategoryRow kCategories[] = {
    {"cpu_op", EventClass::kOperator},
    {"Operator", EventClass::kOperator},
    {"user_annotation", EventClass::kUserRange},
    {"gpu_user_annotation", EventClass::kGpuAnnotation},
    {"cuda_runtime", EventClass::kRuntime},
    {"Runtime", EventClass::kRuntime},
    {"mtia_runtime", EventClass::kRuntime},
    {"xpu_runtime", EventClass::kRuntime},
    {"glow_runtime", EventClass::kRuntime},
    {"privateuse1_runtime", EventClass::kRuntime},
    {"cuda_driver", EventClass::kDriver},
    {"xpu_driver", EventClass::kDriver},
    {"privateuse1_driver", EventClass::kDriver},
    {"kernel", EventClass::kKernel},
    {"Kernel", EventClass::kKernel},
    {"concurrent_kernel", EventClass::kKernel},
    {"cpu_kernel", EventClass::kKernel},
    {"gpu_memcpy", EventClass::kMemcpy},
    {"Memcpy", EventClass::kMemcpy},
    {"cpu_copy", EventClass::kMemcpy},
    {"gpu_memset", EventClass::kMemset},
    {"Memset", EventClass::kMemset},
    {"cpu_fill", EventClass::kMemset},
    {"cuda_sync", EventClass::kSync},
    {"cuda_event", EventClass::kSync},
    {"xpu_sync", EventClass::kSync},
    {"overhead", EventClass::kOverhead},
    {"python_function", EventClass::kPython},
    {"cpu_instant_event", EventClass::kInstant},
    {"Trace", EventClass::kProfiler},
    {"mtia_ccp_events", EventClass::kDeviceOther},
    {"mtia_insight", EventClass::kDeviceOther},
    {"hpu_op", EventClass::kDeviceOther},
    {"collective_comm", EventClass::kDeviceOther},
    {"cuda_profiler_range", EventClass::kDeviceOther},
    {"xpu_scope_profiler", EventClass::kDeviceOther},
};

}  // namespace

EventClass category_class(std::string_view category) {
  for (const CategoryRow& row : kCategories)
    if (row.name == category) return row.cls;
  return EventClass::kSpan;
}

bool is_kineto_class(EventClass c) {
  return c != EventClass::kSpan && c != EventClass::kInstant && c != EventClass::kProfiler &&
         c != EventClass::kOther;
}

trace::Era find_era(const EraMarks& m) {
  using trace::Era;
  if (m.attnscope) return Era::kAttnscope;
  if (m.capital_categories) {
    if (m.top_level_array) return Era::kTorch18Dev;
    return m.has_devices || m.occupancy || m.memory_events ? Era::kTorch19 : Era::kTorch18;
  }
  if (!m.kineto_categories && !m.base_before_events && !m.base_after_events) return Era::kNotKineto;
  if (m.graph_ids) return Era::kTorch2026;
  if (m.base_before_events) return Era::kTorch27;
  if (m.base_after_events || m.fractional_times) return Era::kTorch24;
  const bool device_events = m.external_is_correlation + m.external_differs > 0;
  if (device_events && m.external_differs > m.external_is_correlation)
    return m.old_flows ? Era::kTorch111 : Era::kTorch23;
  if (m.old_flows) return Era::kTorch111;
  return m.concrete_inputs || m.sync_or_driver ? Era::kTorch20 : Era::kTorch111;
}

}  // namespace attnscope::formats::chrome
