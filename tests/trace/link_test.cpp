#include "trace/link.h"

#include "trace/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnscope::trace {
namespace {

// A small timeline, written one event a line.
class Timeline {
 public:
  EventIndex host(EventClass cls, const char* name, int64_t begin, int64_t end, int64_t tid = 1,
                  uint64_t correlation = kNoId) {
    EventInput e;
    e.cls = cls;
    e.name = builder.intern(name);
    e.ts_ns = begin;
    e.dur_ns = end - begin;
    e.thread = builder.thread(100, tid);
    e.correlation = correlation;
    return builder.add(e);
  }
  EventIndex op(const char* name, int64_t begin, int64_t end, int64_t tid = 1) {
    return host(EventClass::kOperator, name, begin, end, tid);
  }
  EventIndex launch(int64_t begin, int64_t end, uint64_t correlation, int64_t tid = 1,
                    const char* name = "cudaLaunchKernel") {
    return host(EventClass::kRuntime, name, begin, end, tid, correlation);
  }
  EventIndex device(EventClass cls, int64_t begin, int64_t end, uint64_t correlation, int64_t stream = 7) {
    EventInput e;
    e.cls = cls;
    e.name = builder.intern("work");
    e.ts_ns = begin;
    e.dur_ns = end - begin;
    e.thread = builder.thread(0, stream);
    e.correlation = correlation;
    e.queue = {0, 1, stream};
    return builder.add(e);
  }
  EventIndex kernel(int64_t begin, int64_t end, uint64_t correlation, int64_t stream = 7) {
    return device(EventClass::kKernel, begin, end, correlation, stream);
  }
  TraceBuilder builder;
};

TEST(Links, HostSpansNestByTimeWhateverTheFileOrder) {
  Timeline w;
  const EventIndex inner = w.op("inner", 20, 30);
  const EventIndex sibling = w.op("sibling", 40, 50);
  const EventIndex outer = w.op("outer", 10, 60);
  const EventIndex range = w.host(EventClass::kUserRange, "range", 10, 60);
  const EventIndex other_thread = w.op("other", 20, 30, 2);
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.parent(inner), outer);
  EXPECT_EQ(l.parent(sibling), outer);
  EXPECT_EQ(l.parent(outer), range) << "of equal spans the range encloses the operator";
  EXPECT_EQ(l.parent(range), kNoEvent);
  EXPECT_EQ(l.parent(other_thread), kNoEvent);
  EXPECT_THAT(l.preorder(t.thread(inner)), testing::ElementsAre(range, outer, inner, sibling));
}

TEST(Links, ChildThatOutlivesItsParentStaysItsChild) {
  Timeline w;
  const EventIndex parent = w.op("parent", 0, 100);
  const EventIndex child = w.op("child", 90, 110);
  const EventIndex next = w.op("next", 120, 130);
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.parent(child), parent);
  EXPECT_EQ(l.parent(next), kNoEvent);
  EXPECT_EQ(l.diagnostics().count(Diag::kChildOutlivesParent), 1u);
}

TEST(Links, DeviceWorkBelongsToTheSpansOpenAtItsLaunch) {
  Timeline w;
  const EventIndex op = w.op("aten::mul", 100, 200);
  const EventIndex call = w.launch(120, 130, 5);
  w.op("aten::later", 1000, 2000);
  const EventIndex kernel = w.kernel(1500, 1600, 5);  // runs while another operator is open
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.launch(kernel), call);
  EXPECT_EQ(l.launched_by(kernel), op);
  EXPECT_EQ(l.device_link(kernel).basis, LinkBasis::kCorrelation);
  EXPECT_EQ(l.device_link(kernel).confidence, Confidence::kHigh);
  EXPECT_EQ(l.range_sum(t.find_text("aten::mul")).own_thread.kernels, 1u);
  EXPECT_EQ(l.range_sum(t.find_text("aten::later")).own_thread.kernels, 0u);
}

TEST(Links, GraphLaunchOwnsAllItsNodesWithMediumConfidence) {
  Timeline w;
  const EventIndex call = w.launch(10, 20, 9, 1, "cudaGraphLaunch");
  std::vector<EventIndex> nodes;
  for (int i = 0; i < 300; ++i) nodes.push_back(w.kernel(100 + i * 10, 105 + i * 10, 9));
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  for (const EventIndex n : nodes) {
    ASSERT_EQ(l.launch(n), call);
    ASSERT_EQ(l.device_link(n).basis, LinkBasis::kGraph);
    ASSERT_EQ(l.device_link(n).confidence, Confidence::kMedium);
  }
  EXPECT_EQ(l.unlinked_sum(), WorkSum{});
}

TEST(Links, WorkBeforeAStreamsFirstLinkedWorkLeakedIn) {
  Timeline w;
  const EventIndex leaked = w.kernel(5, 9, 1000);
  w.launch(10, 20, 1);
  w.kernel(30, 40, 1);
  const EventIndex lost = w.device(EventClass::kMemcpy, 50, 60, 2000);
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.unlinked(leaked), Unlinked::kEarlierWork);
  EXPECT_EQ(l.unlinked(lost), Unlinked::kUnknown);
  EXPECT_EQ(l.diagnostics().count(Diag::kEarlierWork), 1u);
  EXPECT_EQ(l.diagnostics().count(Diag::kUnlinkedKernel), 1u);
  EXPECT_EQ(l.unlinked_sum(), (WorkSum{1, 1, 0, 14}));
  EXPECT_EQ(l.launched_by(lost), kNoEvent);
  EXPECT_EQ(l.step_of(lost), 0) << "a trace without steps is one step";
}

TEST(Links, DuplicateCorrelationTakesTheNearestLaunchBeforeTheWork) {
  Timeline w;
  const EventIndex first = w.launch(10, 20, 4);
  const EventIndex second = w.launch(100, 110, 4);
  const EventIndex early = w.kernel(50, 60, 4);
  const EventIndex late = w.kernel(150, 160, 4);
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.launch(early), first);
  EXPECT_EQ(l.launch(late), second);
  EXPECT_EQ(l.device_link(late).confidence, Confidence::kLow);
  EXPECT_EQ(l.diagnostics().count(Diag::kDuplicateCorrelation), 1u);
}

TEST(Links, OfManyLaunchesWithOneIdTheNearestBeforeTheWorkWhateverTheFileOrder) {
  for (const uint64_t id : {uint64_t{4}, uint64_t{1} << 60}) {  // in the array of dense ids, and beside it
    Timeline w;
    if (id > 4) w.launch(0, 1, 7);  // far from it: no array
    const EventIndex last = w.launch(300, 310, id);
    const EventIndex middle = w.launch(200, 210, id);
    w.launch(200, 220, id);
    const EventIndex first = w.launch(100, 110, id);
    const EventIndex before_all = w.kernel(50, 60, id), at_middle = w.kernel(200, 205, id);
    const EventIndex between = w.kernel(250, 260, id), after_all = w.kernel(900, 910, id);
    const Trace t = w.builder.finish();
    const Links l = Links::build(t);
    EXPECT_EQ(l.launch(before_all), first) << id;
    EXPECT_EQ(l.launch(at_middle), middle) << id;
    EXPECT_EQ(l.launch(between), middle) << id;
    EXPECT_EQ(l.launch(after_all), last) << id;
    EXPECT_EQ(l.diagnostics().count(Diag::kDuplicateCorrelation), 3u) << id;
  }
}

TEST(Links, SpansNestOnlySoDeep) {
  Timeline w;
  std::vector<EventIndex> spans;
  for (int64_t i = 0; i < 2500; ++i) spans.push_back(w.op("f", i, 10'000 - i));
  const EventIndex after = w.op("after", 20'000, 20'010);
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.parent(spans[999]), spans[998]);
  EXPECT_EQ(l.parent(spans[1000]), spans[999]);
  EXPECT_EQ(l.parent(spans[2499]), spans[999]);
  EXPECT_EQ(l.parent(after), kNoEvent);
  EXPECT_EQ(l.diagnostics().count(Diag::kSpansTooDeep), 1500u);
}

TEST(Links, SparseCorrelationsLinkAsDenseOnesDo) {
  Timeline w;
  std::vector<EventIndex> calls, kernels;
  for (uint64_t i = 0; i < 50; ++i)
    calls.push_back(w.launch(static_cast<int64_t>(i) * 100 + 1, static_cast<int64_t>(i) * 100 + 5,
                             i * i * 1'000'003 + 1));
  for (uint64_t i = 0; i < 50; ++i)
    kernels.push_back(w.kernel(static_cast<int64_t>(i) * 100 + 10, static_cast<int64_t>(i) * 100 + 20,
                               i * i * 1'000'003 + 1));
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(l.launch(kernels[i]), calls[i]);
}

TEST(Links, BackwardThreadCountsForTheProcessOnly) {
  Timeline w;
  w.host(EventClass::kUserRange, "step", 0, 1000, 1);
  w.launch(10, 20, 1, 1);
  w.op("backward", 100, 200, 2);
  w.launch(110, 120, 2, 2);
  w.kernel(30, 40, 1);
  w.kernel(130, 150, 2);
  w.launch(2000, 2010, 3, 2);
  w.kernel(2020, 2030, 3);
  const Trace t = w.builder.finish();
  const RangeSum sum = Links::build(t).range_sum(t.find_text("step"));
  EXPECT_EQ(sum.calls, 1u);
  EXPECT_EQ(sum.own_thread, (WorkSum{1, 0, 0, 10}));
  EXPECT_EQ(sum.process, (WorkSum{2, 0, 0, 30}));
}

TEST(Links, CallsAreOutermostCalls) {
  Timeline w;
  w.op("aten::to", 0, 100);
  w.op("aten::copy_", 10, 90);
  w.op("aten::to", 20, 80);
  w.op("aten::to", 200, 300);
  const Trace t = w.builder.finish();
  const RangeSum sum = Links::build(t).range_sum(t.find_text("aten::to"));
  EXPECT_EQ(sum.calls, 2u);
  EXPECT_EQ(sum.host_ns, 200);
}

TEST(Links, StepsComeFromProfilerStepAndWorkGoesWhereItWasLaunched) {
  Timeline w;
  w.host(EventClass::kUserRange, "ProfilerStep#4", 100, 200);
  w.host(EventClass::kUserRange, "ProfilerStep#3", 0, 100);
  w.launch(150, 160, 1);
  w.launch(50, 60, 2);
  const EventIndex second = w.kernel(300, 310, 1);
  const EventIndex first = w.kernel(170, 180, 2);  // launched in step 3, runs in step 4
  const EventIndex outside = w.op("aten::add", 250, 260);
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  ASSERT_EQ(l.steps().size(), 2u);
  EXPECT_EQ(l.step_basis(), StepBasis::kProfilerStep);
  EXPECT_EQ(l.steps()[0].number, 3);
  EXPECT_EQ(l.step_of(first), 0);
  EXPECT_EQ(l.step_of(second), 1);
  EXPECT_EQ(l.step_of(outside), -1);
}

TEST(Links, InlineWorkOfACpuRecordingNestsAndIsLinked) {
  Timeline w;
  const EventIndex op = w.op("attn_fwd", 0, 100);
  EventInput e;
  e.cls = EventClass::kKernel;
  e.category = w.builder.intern("cpu_kernel");
  e.name = w.builder.intern("softmax");
  e.ts_ns = 10;
  e.dur_ns = 20;
  e.thread = w.builder.thread(100, 1);
  const EventIndex kernel = w.builder.add(e);
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.parent(kernel), op);
  EXPECT_EQ(l.launched_by(kernel), op);
  EXPECT_EQ(l.link_basis(kernel), LinkBasis::kCpu);
  EXPECT_EQ(l.unlinked_sum(), WorkSum{});
  EXPECT_EQ(l.range_sum(t.find_text("attn_fwd")).own_thread, (WorkSum{1, 0, 0, 20}));
}

TEST(Links, KernelInsideItsLaunchCallIsNotEarly) {
  Timeline w;
  w.launch(100, 200, 1);
  w.kernel(150, 160, 1);
  w.launch(300, 310, 2);
  w.kernel(250, 260, 2);  // clocks disagree
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.diagnostics().count(Diag::kKernelBeforeLaunch), 1u);
}

TEST(Links, OverlapAndMissingCorrelationAreCounted) {
  Timeline w;
  w.launch(1, 2, 1);
  w.launch(3, 4, 2);
  w.kernel(10, 30, 1);
  w.kernel(20, 40, 2);
  w.kernel(20, 40, kNoId, 8);
  const Trace t = w.builder.finish();
  const Links l = Links::build(t);
  EXPECT_EQ(l.diagnostics().count(Diag::kOverlappingKernels), 1u);
  EXPECT_EQ(l.diagnostics().count(Diag::kMissingCorrelation), 1u);
}

}  // namespace
}  // namespace attnscope::trace
