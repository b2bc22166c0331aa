// Odd JSON, one oddity a test: what is read, and which diagnostic says so.

#include "formats/chrome/reader.h"
#include "trace/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace attnscope::formats::chrome {
namespace {

using trace::Diag;
using trace::EventClass;
using trace::Trace;

Trace read(const std::string& text) {
  auto result = read_memory(text);
  if (!result) {
    ADD_FAILURE() << result.error().message;
    return std::move(*read_memory(R"([{"ph":"X","name":"failed","ts":1,"dur":1,"pid":1,"tid":1}])"));
  }
  return std::move(*result);
}
std::string document(const std::string& events) {
  return R"({"schemaVersion": 1, "traceEvents": [)" + events + "]}";
}
std::string op(const std::string& name, const std::string& ts = "10", const std::string& dur = "5") {
  return R"({"ph": "X", "cat": "cpu_op", "name": ")" + name + R"(", "pid": 1, "tid": 2, "ts": )" + ts +
         ", \"dur\": " + dur + R"(, "args": {"External id": 7, "Ev Idx": 0}})";
}
uint64_t count(const Trace& t, Diag d) {
  return t.diagnostics().count(d);
}

TEST(Oddities, PlainEventsHaveNone) {
  const Trace t = read(document(op("a") + ",\n  " + op("b", "20.125")));
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t.name(1), "b");
  EXPECT_EQ(t.ts_ns(1) - t.ts_ns(0), 10125);
  EXPECT_EQ(t.external_id(0), 7u);
  EXPECT_EQ(t.diagnostics(), trace::Diagnostics{});
}

TEST(Oddities, TruncatedFileGivesEveryWholeEvent) {
  const std::string whole = document(op("a") + ",\n" + op("b") + ",\n" + op("c"));
  const size_t first_end = whole.find('}', whole.find("Ev Idx")) + 2;
  const size_t last_end = whole.size() - 2;
  for (size_t cut = first_end; cut < last_end; ++cut) {
    const Trace t = read(whole.substr(0, cut));
    size_t ends = 0;  // events whose closing brace lies before the cut
    for (const char* name : {"\"a\"", "\"b\"", "\"c\""})
      ends += whole.find("}}", whole.find(name)) + 2 <= cut;
    ASSERT_EQ(t.size(), ends) << cut;
    ASSERT_TRUE(t.truncated()) << cut;
    ASSERT_EQ(count(t, Diag::kTruncatedFile), 1u) << cut;
  }
  EXPECT_EQ(read(whole.substr(0, last_end)).size(), 3u);
  EXPECT_EQ(read(whole.substr(0, last_end - 1)).size(), 2u);
}

TEST(Oddities, RawControlBytesAndBadUtf8InNames) {
  const Trace t = read(document(op("two\nlines\t\x01") + "," + op("bad \xFF\xC0\xAF name")));
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t.name(0), "two\nlines\t\x01");
  EXPECT_EQ(t.name(1), "bad \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD name");
  EXPECT_EQ(count(t, Diag::kRawControlByte), 1u);
  EXPECT_EQ(count(t, Diag::kInvalidUtf8), 1u);
}

TEST(Oddities, UnescapedQuotesInNames) {
  const Trace t = read(document(op(R"(print("hello", 3))") + "," + op(R"(ends with ")") + "," + op("after")));
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t.name(0), R"(print("hello", 3))");
  EXPECT_EQ(t.name(1), R"(ends with ")");
  EXPECT_EQ(t.name(2), "after");
  EXPECT_EQ(t.dur_ns(0), 5000);
  EXPECT_EQ(count(t, Diag::kUnescapedQuote), 2u);
}

TEST(Oddities, WindowsPathsKeepTheirBackslashes) {
  const Trace t =
      read(document(op(R"(C:\Users\python\test.py(12): main)") + "," + op(R"(fine \"quoted\" \\ name)")));
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t.name(0), R"(C:\Users\python\test.py(12): main)");
  EXPECT_EQ(t.name(1), R"(fine "quoted" \ name)");
  EXPECT_EQ(count(t, Diag::kBadEscape), 1u);
}

TEST(Oddities, MissingCommas) {
  const Trace t = read(document(op("a") + "\n" + op("b") +
                                R"(, {"ph": "X" "name": "c" "pid": 1, "tid": 2 "ts": 3, "dur": 4})"));
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t.name(2), "c");
  EXPECT_EQ(t.dur_ns(2), 4000);
  EXPECT_EQ(count(t, Diag::kMissingComma), 1u);
}

TEST(Oddities, LogLinesBetweenAndInsideEvents) {
  const std::string inside =
      "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"b\", \"pid\": 1, \"tid\": 2,\n"
      "INFO:2024-01-01 something {happened} [here]\n  \"ts\": 3, \"dur\": 4}";
  const Trace t = read("WARNING:2024-01-01 profiler started\n" +
                       document(op("a") + ",\nERROR: [W1029 12:00:00 kineto.cpp:12] oh no, {'a': 1}\n" +
                                inside + ",\n" + op("c")));
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t.name(1), "b");
  EXPECT_EQ(t.dur_ns(1), 4000);
  EXPECT_EQ(t.name(2), "c");
  EXPECT_EQ(count(t, Diag::kForeignText), 3u);
}

TEST(Oddities, ForeignTextOnOneLineDoesNotSwallowWhatFollows) {
  const Trace t = read("[" + op("a") + ", garbage here " + op("b") + "," + op("c") + "]");
  EXPECT_EQ(t.size(), 3u);
  EXPECT_EQ(count(t, Diag::kForeignText), 1u);
}

TEST(Oddities, ADamagedEventCostsOnlyItself) {
  const Trace t = read(document(op("a") + ",\n{\"ph\": \"X\", \"name\": \"cut\", \"args\": {\"x\": [1, 2\n" +
                                op("b") + ",\n" + op("c")));
  ASSERT_EQ(t.size(), 3u);
  EXPECT_EQ(t.name(1), "b");
  EXPECT_EQ(count(t, Diag::kDamagedEvent), 1u);
  EXPECT_FALSE(t.truncated());
}

TEST(Oddities, NumbersThatAreNone) {
  const std::string kernel =
      R"({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1,
    "args": {"device": 0, "stream": 7, "correlation": 3, "registers per thread": N/A, "shared memory": NaN,
    "blocks per SM": inf, "warps per SM": -Infinity, "est. achieved occupancy %": "nan", "grid": [1, 2, 3]}})";
  const Trace t = read(document(kernel));
  ASSERT_EQ(t.size(), 1u);
  const trace::KernelConfig& c = t.kernel_config(0);
  EXPECT_EQ(c.registers, -1);
  EXPECT_EQ(c.shared_bytes, -1);
  EXPECT_EQ(c.blocks_per_sm, -1);
  EXPECT_EQ(c.reported_occupancy_pct, -1);
  EXPECT_EQ(c.grid, (std::array<int32_t, 3>{1, 2, 3}));
  EXPECT_EQ(t.correlation(0), 3u);
  EXPECT_EQ(count(t, Diag::kNonFiniteNumber), 5u);
}

TEST(Oddities, IntegersBeyondSixtyFourBits) {
  const Trace t =
      read(document(R"({"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1, "dur": 1,
    "args": {"External id": 99999999999999999999, "Sequence number": 10159970886766084423}})"));
  EXPECT_EQ(t.external_id(0), trace::kNoId);
  EXPECT_EQ(t.sequence(0), 10159970886766084423ull);
  EXPECT_EQ(count(t, Diag::kHugeInteger), 1u);
}

TEST(Oddities, ProcessAndThreadIdsAtTheEndsOfSixtyFourBits) {
  const auto event = [](const std::string& pid, const std::string& tid) {
    return R"({"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": )" + pid + R"(, "tid": )" + tid + "}";
  };
  const std::string ends[] = {"4099276460824344802", "9223372036854775807", "-9223372036854775808"};
  std::string events;
  for (const std::string& pid : ends)
    for (const std::string& tid : ends) events += (events.empty() ? "" : ",") + event(pid, tid);
  const Trace t = read(document(events));
  ASSERT_EQ(t.size(), 9u);
  for (uint32_t i = 0; i < 9; ++i) {
    EXPECT_EQ(t.thread_of(i).pid, ends[i / 3]);
    EXPECT_EQ(t.thread_of(i).tid, ends[i % 3]);
  }
}

TEST(Oddities, TimesAsStringsMissingZeroAndOutOfRange) {
  const Trace t =
      read(document(op("string", "\"1000.5\"", "\"2.25\"") + "," + op("far", "1e40") + "," +
                    R"({"ph": "X", "name": "none", "pid": 1, "tid": 2, "dur": 1},)" +
                    R"({"ph": "X", "name": "no dur", "pid": 1, "tid": 2, "ts": 2000},)" +
                    R"({"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0, "dur": 1})"));
  EXPECT_EQ(t.totals().events, 5u);
  EXPECT_EQ(t.totals().complete_events, 5u);
  ASSERT_EQ(t.size(), 4u);
  EXPECT_EQ(t.dur_ns(0), 2250);
  EXPECT_EQ(count(t, Diag::kTimeAsString), 2u);
  EXPECT_EQ(count(t, Diag::kTimeOutOfRange), 1u);
  EXPECT_EQ(count(t, Diag::kTimeMissing), 1u);
  EXPECT_EQ(count(t, Diag::kMissingDuration), 1u);
  EXPECT_EQ(count(t, Diag::kTimeZero), 1u);
}

TEST(Oddities, NegativeDurations) {
  const Trace t = read(document(op("a", "10", "-3.5")));
  EXPECT_EQ(t.dur_ns(0), 0);
  EXPECT_EQ(count(t, Diag::kNegativeDuration), 1u);
}

TEST(Oddities, EntriesThatAreNoEvents) {
  const Trace t = read(document("1, \"text\", [1, {\"a\": 2}], " + op("a") +
                                R"(, {"name": "no phase"}, {"ph": "Q", "name": "?"})"));
  ASSERT_EQ(t.size(), 1u);
  EXPECT_EQ(t.ordinal(0), 3u);
  EXPECT_EQ(t.totals().events, 6u);
  EXPECT_EQ(count(t, Diag::kNotAnEvent), 3u);
  EXPECT_EQ(count(t, Diag::kUnknownPhase), 2u);
}

TEST(Oddities, DeepArgumentsAreSkippedNotFollowed) {
  const std::string deep(1'000'000, '[');
  const std::string close(1'000'000, ']');
  const Trace t = read(document(
      R"({"ph": "X", "cat": "cpu_op", "name": "deep", "pid": 1, "tid": 2, "ts": 1, "dur": 1, "args": {"Input Dims": )" +
      deep + close + R"(, "External id": 3}}, )" + op("b")));
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t.external_id(0), 3u);
  EXPECT_FALSE(t.operator_args(0).recorded());
  EXPECT_EQ(count(t, Diag::kTooDeep), 1u);
}

TEST(Oddities, TwoDocumentsTrailingTextAndByteOrderMark) {
  EXPECT_EQ(count(read(document(op("a")) + "\n" + document(op("b"))), Diag::kSecondDocument), 1u);
  EXPECT_EQ(count(read(document(op("a")) + "\nDone.\n"), Diag::kTrailingData), 1u);
  const Trace t = read("\xEF\xBB\xBF" + document(op("a")));
  EXPECT_EQ(t.size(), 1u);
  EXPECT_EQ(count(t, Diag::kByteOrderMark), 1u);
}

TEST(Oddities, Utf16BothWays) {
  const std::u16string text =
      u"[{\"ph\": \"X\", \"name\": \"µs 😀\", \"pid\": 1, \"tid\": 2, \"ts\": 1, \"dur\": 2}]";
  for (const bool big : {false, true}) {
    for (const bool mark : {false, true}) {
      std::string bytes;
      const auto put = [&](char16_t u) {
        const char high = static_cast<char>(u >> 8), low = static_cast<char>(u & 0xFF);
        bytes += big ? std::string{high, low} : std::string{low, high};
      };
      if (mark) put(0xFEFF);
      for (const char16_t u : text) put(u);
      const Trace t = read(bytes);
      ASSERT_EQ(t.size(), 1u);
      EXPECT_EQ(t.name(0), "µs 😀");
      EXPECT_EQ(count(t, Diag::kUtf16), 1u);
    }
  }
}

TEST(Oddities, BeginAndEndPairsNest) {
  const auto mark = [](char ph, const char* name, int ts) {
    return std::string("{\"ph\": \"") + ph + "\", \"name\": \"" + name +
           "\", \"pid\": 1, \"tid\": 2, \"ts\": " + std::to_string(ts) + "}";
  };
  const Trace t = read("[" + mark('B', "outer", 10) + "," + mark('B', "inner", 20) + "," + mark('E', "", 25) +
                       "," + mark('E', "", 40) + "," + mark('E', "", 50) + "," + mark('B', "open", 60) + "," +
                       mark('i', "last", 70) + "]");
  ASSERT_EQ(t.size(), 4u);
  EXPECT_EQ(t.dur_ns(0), 30000);
  EXPECT_EQ(t.dur_ns(1), 5000);
  EXPECT_EQ(t.dur_ns(2), 10000) << "open until the last event";
  EXPECT_EQ(t.cls(0), EventClass::kSpan);
  EXPECT_EQ(count(t, Diag::kEndWithoutBegin), 1u);
  EXPECT_EQ(count(t, Diag::kUnfinishedSpan), 1u);
  EXPECT_EQ(trace::Links::build(t).parent(1), 0u);
}

TEST(Oddities, AsyncPairsMeetByCategoryAndId) {
  const auto mark = [](char ph, const char* id, int ts) {
    return std::string("{\"cat\": \"r\", \"name\": \"x\", \"id\": \"") + id + "\", \"ph\": \"" + ph +
           "\", \"pid\": 0, \"ts\": " + std::to_string(ts) + "}";
  };
  const Trace t = read("[" + mark('b', "1", 10) + "," + mark('b', "2", 11) + "," + mark('e', "1", 15) + "," +
                       mark('e', "2", 31) + "," + mark('e', "3", 40) + "]");
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t.dur_ns(0), 5000);
  EXPECT_EQ(t.dur_ns(1), 20000);
  EXPECT_EQ(t.cls(0), EventClass::kAsyncSpan);
  EXPECT_EQ(count(t, Diag::kEndWithoutBegin), 1u);
}

TEST(Oddities, FlowsAreCountedAndPaired) {
  const auto flow = [](char ph, int id) {
    return std::string("{\"ph\": \"") + ph + "\", \"id\": " + std::to_string(id) +
           R"(, "pid": 1, "tid": 2, "ts": 1, "cat": "ac2g", "name": "ac2g"})";
  };
  const Trace t = read(document(flow('s', 1) + "," + flow('f', 1) + "," + flow('s', 2) + "," + flow('f', 3) +
                                "," + flow('f', 4) + "," + op("a")));
  EXPECT_EQ(t.totals().flow_events, 5u);
  EXPECT_EQ(t.size(), 1u);
  EXPECT_EQ(count(t, Diag::kFlowWithoutEnd), 1u);
  EXPECT_EQ(count(t, Diag::kFlowWithoutStart), 2u);
}

TEST(Oddities, TheFirstGenerationsCategoriesAndRows) {
  const Trace t = read(R"([
    {"ph": "X", "cat": "Operator", "name": "aten::mul", "pid": 5, "tid": "4093687616", "ts": 100, "dur": 13,
     "args": {"Input dims": [[2, 3]], "Input type": ["float"], "External id": 2}},
    {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": "4093687616", "ts": 105, "dur": 3,
     "args": {"cbid": 211, "correlation": 8, "external id": 2}},
    {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 110, "dur": 9,
     "args": {"device": 0, "context": 1, "stream": 7, "correlation": 8, "external id": 2, "registers per thread": 80,
              "shared memory": 6400, "warps per SM": 102.4, "grid": [4, 8, 32], "block": [8, 32, 1]}}])");
  EXPECT_EQ(t.era(), trace::Era::kTorch18Dev);
  const trace::Links l = trace::Links::build(t);
  EXPECT_EQ(l.launch(2), 1u);
  EXPECT_EQ(l.launched_by(2), 0u);
  EXPECT_EQ(t.operator_args(0).input_dims, "[[2, 3]]");
  EXPECT_EQ(t.kernel(2).queue, (trace::Queue{0, 1, 7}));
  EXPECT_EQ(l.device_link(2).confidence, trace::Confidence::kHigh);
}

TEST(Oddities, OtherVendorsRowsAreKnownAndLinked) {
  const Trace t = read(document(
      R"({"ph": "X", "cat": "xpu_runtime", "name": "urEnqueueKernelLaunch", "pid": 9, "tid": 9, "ts": 1, "dur": 2,
      "args": {"correlation": 5}},
    {"ph": "X", "cat": "kernel", "name": "gemm_kernel", "pid": 0, "tid": 3, "ts": 4, "dur": 6,
      "args": {"device": 0, "sycl queue": 3, "kernel_id": 17, "correlation": 5, "memory opration id": 2}},
    {"ph": "X", "cat": "mtia_runtime", "name": "runFunction", "pid": 9, "tid": 9, "ts": 10, "dur": 2, "args": {"correlation": 18}},
    {"ph": "X", "cat": "mtia_ccp_events", "name": "permute", "pid": 9, "tid": 408, "ts": 14, "dur": 6,
      "args": {"correlation": 18, "stream": 102, "column": "0"}},
    {"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 9, "tid": 9, "ts": 20, "dur": 2, "args": {"correlation": 19, "cid": 4}},
    {"ph": "X", "cat": "kernel", "name": "attn_fwd.kd", "pid": 2, "tid": 0, "ts": 24, "dur": 6,
      "args": {"device": 2, "stream": 0, "correlation": 19, "kind": "Dispatch Kernel", "grid": [0, 0, 0], "block": [256, 1, 1]}})"));
  ASSERT_EQ(t.size(), 6u);
  const trace::Links l = trace::Links::build(t);
  EXPECT_EQ(t.cls(3), EventClass::kDeviceOther);
  EXPECT_EQ(l.launch(1), 0u);
  EXPECT_EQ(l.launch(3), 2u);
  EXPECT_EQ(l.launch(5), 4u);
  EXPECT_EQ(t.kernel_config(5).grid, (std::array<int32_t, 3>{0, 0, 0}));
  EXPECT_EQ(t.kernel_config(1).registers, -1) << "not recorded is never 0";
}

TEST(Oddities, InputsScatteredAmongOtherArgumentsAreKept) {
  const Trace t =
      read(document(R"({"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1, "dur": 1,
    "args": {"Input Dims": [[8, 16]], "Call stack": "a;b \"c\"", "Input type": ["c10::BFloat16"], "External id": 1, "Concrete Inputs": ["x, y]"]}})"));
  const trace::OperatorArgs args = t.operator_args(0);
  EXPECT_EQ(args.input_dims, "[[8, 16]]");
  EXPECT_EQ(args.input_types, R"(["c10::BFloat16"])");
  EXPECT_EQ(args.concrete_inputs, R"(["x, y]"])");
}

TEST(Oddities, SpacingMayChangeFromEventToEvent) {
  const Trace t = read(
      "[{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\", \"pid\": 1, \"tid\": 1, \"ts\": 1, \"dur\": 2,"
      " \"args\": {\"External id\": 3}},\n"
      "{\"ph\":  \"X\", \"cat\": \n\"cpu_op\", \"name\":\t\"b\", \"pid\":  1, \"tid\": \r\n1, \"ts\":   5, "
      "\"dur\": \t2,"
      " \"args\":  {\"External id\":  4}}]");
  ASSERT_EQ(t.size(), 2u);
  EXPECT_EQ(t.name(1), "b");
  EXPECT_EQ(t.external_id(1), 4u);
  EXPECT_EQ(t.diagnostics(), trace::Diagnostics{});
}

TEST(Oddities, MembersInAnyOrder) {
  const Trace t = read(document(
      R"json({"args": {"bytes": 64, "correlation": 4, "stream": 3}, "dur": 2, "ts": 9, "tid": 3, "pid": 0,
    "name": "Memcpy DtoD (Device -> Device)", "cat": "gpu_memcpy", "ph": "X"})json"));
  ASSERT_EQ(t.size(), 1u);
  EXPECT_EQ(t.cls(0), EventClass::kMemcpy);
  EXPECT_EQ(t.copy(0).bytes, 64);
  EXPECT_EQ(t.copy(0).kind, trace::CopyKind::kDtoD);
  EXPECT_EQ(t.correlation(0), 4u);
}

TEST(Oddities, DuplicateKeysTakeTheLast) {
  const Trace t =
      read(document(R"({"ph": "X", "name": "a", "name": "b", "pid": 1, "tid": 2, "ts": 1, "dur": 1})"));
  EXPECT_EQ(t.name(0), "b");
  EXPECT_EQ(count(t, Diag::kDuplicateKey), 1u);
}

TEST(Oddities, MetadataBesideTheEvents) {
  const Trace t =
      read(R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA \"X\"", "numSms": 132,
      "totalGlobalMem": inf, "sharedMemPerBlockOptin": 232448}, {"id": 1}], "record_shapes": 1, "with_stack": 0,
      "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8}, "custom": {"a": [1, 2]},
      "traceEvents": [)" +
           op("a") + R"(], "baseTimeNanoseconds": 1790857026000000000, "displayTimeUnit": "ms"})");
  ASSERT_EQ(t.devices().size(), 2u);
  EXPECT_EQ(t.devices()[0].name, "NVIDIA \"X\"");
  EXPECT_EQ(t.devices()[0].num_sms, 132);
  EXPECT_EQ(t.devices()[0].total_memory_bytes, -1);
  EXPECT_EQ(t.devices()[0].shared_per_block_optin, 232448);
  EXPECT_TRUE(t.metadata().record_shapes);
  EXPECT_FALSE(t.metadata().with_stack);
  EXPECT_EQ(t.metadata().rank, 3);
  EXPECT_EQ(t.metadata().world_size, 8);
  EXPECT_THAT(t.metadata().other, testing::ElementsAre(testing::Pair("custom", "{\"a\": [1, 2]}")));
  EXPECT_EQ(t.clock().base_ns(), "1790857026000010000");
  EXPECT_EQ(t.era(), trace::Era::kTorch24);
}

}  // namespace
}  // namespace attnscope::formats::chrome
