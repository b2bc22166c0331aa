#pragma once
// Whether two traces hold the same content: every event and table, not ordinals and diagnostics.

#include "formats/chrome/strict.h"
#include "trace/trace.h"

#include <gtest/gtest.h>

#include <string>

namespace attnscope::support {

inline std::string strict(std::string_view raw) {
  std::string out;
  if (!raw.empty()) formats::chrome::append_strict(raw, out);
  return out;
}

inline void expect_same_event(const trace::Trace& a, const trace::Trace& b, trace::EventIndex i) {
  ASSERT_EQ(a.cls(i), b.cls(i));
  ASSERT_EQ(a.name(i), b.name(i));
  ASSERT_EQ(a.category(i), b.category(i));
  ASSERT_EQ(a.ts_ns(i), b.ts_ns(i));
  ASSERT_EQ(a.dur_ns(i), b.dur_ns(i));
  ASSERT_EQ(a.thread_of(i).pid, b.thread_of(i).pid);
  ASSERT_EQ(a.thread_of(i).tid, b.thread_of(i).tid);
  ASSERT_EQ(a.text(a.thread_of(i).name), b.text(b.thread_of(i).name));
  ASSERT_EQ(a.text(a.thread_of(i).process_name), b.text(b.thread_of(i).process_name));
  ASSERT_EQ(a.text(a.thread_of(i).process_labels), b.text(b.thread_of(i).process_labels));
  ASSERT_EQ(a.thread_of(i).sort_index, b.thread_of(i).sort_index);
  ASSERT_EQ(a.correlation(i), b.correlation(i));
  ASSERT_EQ(a.external_id(i), b.external_id(i));
  ASSERT_EQ(a.sequence(i), b.sequence(i));
  ASSERT_EQ(a.forward_thread(i), b.forward_thread(i));
  ASSERT_EQ(a.queue(i), b.queue(i));
  ASSERT_EQ(a.copy(i), b.copy(i));
  ASSERT_EQ(a.memory(i), b.memory(i));
  ASSERT_EQ(a.python(i), b.python(i));
  ASSERT_EQ(a.counter(i), b.counter(i));
  ASSERT_EQ(a.work(i), b.work(i));
  ASSERT_EQ(a.text(a.sync(i).kind), b.text(b.sync(i).kind));
  ASSERT_EQ(a.sync(i).wait_on_stream, b.sync(i).wait_on_stream);
  const trace::OperatorArgs x = a.operator_args(i), y = b.operator_args(i);
  ASSERT_EQ(strict(x.input_dims), strict(y.input_dims));
  ASSERT_EQ(strict(x.input_strides), strict(y.input_strides));
  ASSERT_EQ(strict(x.input_types), strict(y.input_types));
  ASSERT_EQ(strict(x.concrete_inputs), strict(y.concrete_inputs));
  if (a.cls(i) != trace::EventClass::kKernel) return;
  ASSERT_EQ(a.kernel(i).graph_id, b.kernel(i).graph_id);
  ASSERT_EQ(a.kernel(i).graph_node_id, b.kernel(i).graph_node_id);
  trace::KernelConfig ca = a.kernel_config(i), cb = b.kernel_config(i);
  ASSERT_EQ(a.text(ca.reported_limiter), b.text(cb.reported_limiter));
  ca.reported_limiter = cb.reported_limiter = trace::kEmptyString;
  ASSERT_EQ(ca, cb);
}

inline void expect_same_trace(const trace::Trace& a, const trace::Trace& b) {
  ASSERT_EQ(a.size(), b.size());
  for (trace::EventIndex i = 0; i < a.size(); ++i) {
    expect_same_event(a, b, i);
    if (testing::Test::HasFatalFailure()) {
      ADD_FAILURE() << "event " << i << ", \"" << a.name(i) << "\"";
      return;
    }
  }
  EXPECT_EQ(a.clock(), b.clock());
  EXPECT_EQ(era_text(a.era()), era_text(b.era()));
  EXPECT_EQ(a.totals().kernels, b.totals().kernels);
  EXPECT_EQ(a.totals().copies, b.totals().copies);
  EXPECT_EQ(a.totals().fills, b.totals().fills);
  ASSERT_EQ(a.devices().size(), b.devices().size());
  for (size_t d = 0; d < a.devices().size(); ++d) EXPECT_EQ(a.devices()[d], b.devices()[d]);
  trace::Metadata ma = a.metadata(), mb = b.metadata();
  for (trace::Metadata* m : {&ma, &mb}) {
    m->distributed_info = strict(m->distributed_info);
    for (auto& [key, raw] : m->other) raw = strict(raw);
  }
  EXPECT_EQ(ma, mb);
}

}  // namespace attnscope::support
